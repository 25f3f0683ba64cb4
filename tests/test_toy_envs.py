"""The paper's toy MDPs: their return laws by hand, and as Gymnasium environments."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

import nfdrl.envs
from nfdrl.envs.toy import TOY_MDPS, mdp1, mdp2, mdp3
from nfdrl.evaluation.truth import exact_returns

IDS = ["nfdrl/MDP1-v0", "nfdrl/MDP2-v0", "nfdrl/MDP3-v0"]


def test_mdp1_returns_are_diracs():
    truth = exact_returns(mdp1(), np.zeros(3, dtype=int))
    assert truth[1, 0].quantile(0.5).item() == pytest.approx(0.3, abs=1e-15)
    # −0.8 + 0.9 · 0.3 = −0.53
    assert truth[0, 0].quantile(0.5).item() == pytest.approx(-0.53, abs=1e-15)
    assert truth[0, 0].variance().item() == truth[1, 0].variance().item() == 0


def test_mdp1_with_a_final_reward_of_0_8_returns_it_from_s2():
    truth = exact_returns(mdp1(r2=0.8), np.zeros(3, dtype=int))
    assert truth[1, 0].quantile(0.5).item() == 0.8


def test_mdp2_returns_0_8_or_0_3_with_equal_probability():
    law = exact_returns(mdp2(), np.zeros(3, dtype=int))[0, 0]
    assert law.means.tolist() == [0.3, 0.8]
    assert law.weights.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("second_std", [1.0, 0.8])
def test_mdp3_has_one_bimodal_law_in_every_state(second_std):
    truth = exact_returns(mdp3(second_std), np.zeros(4, dtype=int))
    assert list(truth) == [(0, 0), (1, 0), (2, 0)]
    for y in (-3.0, -1.0, 0.0, 1.5):
        expected = 0.5 * stats.norm.pdf(y, -2, 1) + 0.5 * stats.norm.pdf(y, 2, second_std)
        for law in truth.values():
            assert law.pdf(y).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_accepts_the_environment(env_id):
    check_env(gymnasium.make(env_id).unwrapped, skip_render_check=True)


def test_every_toy_mdp_is_registered():
    assert [f"nfdrl/{name.upper()}-v0" for name in TOY_MDPS] == IDS
    assert all(build().name == name for name, build in TOY_MDPS.items())


def test_make_passes_options_through():
    env = gymnasium.make("nfdrl/MDP3-v0", second_std=0.8)
    assert env.unwrapped.mdp.reward_std.max() == 1.0
    assert env.unwrapped.mdp.reward_std[-1] == 0.8
    assert gymnasium.make("nfdrl/MDP2-v0", p=0.7).unwrapped.mdp.probability[0] == 0.7


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    nfdrl.envs.register_finite_mdps()
    assert dict(gymnasium.registry) == before


def test_the_id_works_in_another_process():
    code = "import gymnasium, nfdrl.envs; e = gymnasium.make('nfdrl/MDP2-v0'); e.reset(seed=0); print(e.step(0)[1])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(found.stdout) in (0.8, 0.3)


@pytest.mark.parametrize("env_id", IDS)
def test_an_episode_is_a_function_of_its_seed(env_id):
    def play(seed):
        env = gymnasium.make(env_id)
        env.reset(seed=seed)
        outcomes = []
        while not outcomes or not outcomes[-1][2]:
            outcomes.append(env.step(0)[:3])
        return outcomes

    assert play(5) == play(5)
    assert len(play(5)) == {"nfdrl/MDP1-v0": 2, "nfdrl/MDP2-v0": 1, "nfdrl/MDP3-v0": 3}[env_id]
    if env_id != "nfdrl/MDP1-v0":
        assert len({play(seed)[-1][1] for seed in range(12)}) > 1
