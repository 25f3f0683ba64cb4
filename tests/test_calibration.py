"""Calibration: right laws are found right, wrong ones are flagged, and scores agree with numerical integration."""

import json
import math
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch
from scipy import integrate, stats

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.envs.cliff import risky_cliff
from nfdrl.envs.stepping import DirectStream
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.calibration import BINS, INTERVALS, TAILS, Scores, calibrate, calibration_of, half_mean_difference
from nfdrl.evaluation.observed import STORED, UNSEEN, Episode, Sampling, observe
from nfdrl.evaluation.scores import crps, levels_of
from nfdrl.evaluation.truth import exact_returns
from nfdrl.laws import METHODS
from nfdrl.laws.anchored import anchored_law
from nfdrl.laws.flow import FlowLaw
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.quantile import QuantileLaw

pytestmark = pytest.mark.usefixtures("double")

STATES = 4_000


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def flow_laws(n=STATES, seed=0):
    return anchored_law(torch.randn(n, 13, generator=generator(seed)), unit=3.0)


def atomic_laws(n=STATES, seed=0):
    return QuantileLaw(torch.randn(n, 7, generator=generator(seed)))


def drawn(law, seed=1):
    return law.sample(1, generator(seed)).squeeze(-1).numpy()


@pytest.mark.parametrize("laws", [flow_laws, atomic_laws], ids=["flow", "atomic"])
def test_right_laws_give_uniform_levels_and_nominal_coverage(laws):
    found = calibrate(laws(), drawn(laws()))
    assert found.calibrated
    assert stats.kstest(found.scores.pit(np.random.default_rng(0)), "uniform").pvalue > 0.01
    error = 3 / math.sqrt(STATES)  # more than 4 standard deviations of any share
    for level in INTERVALS:
        assert found.coverage[level].value == pytest.approx(level, abs=error)
    for tail in found.tails:
        assert tail.below.value == pytest.approx(tail.alpha, abs=error)
        assert abs(tail.shortfall.value) <= 2.5 * (tail.shortfall.high - tail.shortfall.low) / 2
    assert abs(found.bias.value) <= 2.5 * (found.bias.high - found.bias.low) / 2


@pytest.mark.parametrize("laws", [flow_laws, atomic_laws], ids=["flow", "atomic"])
def test_shifted_laws_are_flagged(laws):
    law = laws()
    shift = 0.5 * float(law.std().mean())
    found = calibrate(law, drawn(law) - shift)
    assert not found.calibrated
    assert found.bias.high < 0
    assert all(tail.below.low > tail.alpha and tail.shortfall.high < 0 for tail in found.tails)


def test_laws_that_are_too_narrow_cover_too_little_and_too_wide_ones_too_much():
    law, came = flow_laws(), drawn(flow_laws())
    middle = law.mean().numpy()
    narrow, wide = (calibrate(law, middle + factor * (came - middle)) for factor in (1.5, 0.6))
    assert narrow.coverage[0.8].high < 0.8 < wide.coverage[0.8].low
    assert not narrow.calibrated
    assert not wide.calibrated


def test_a_lost_tail_is_seen_in_the_shortfall():
    truth = MixtureLaw.atoms(
        torch.tensor([[-1.2, -0.4]]).repeat(STATES, 1), torch.tensor([[0.08, 0.92]]).repeat(STATES, 1)
    )
    blind = FlowLaw(*torch.ones(3, STATES, 1), torch.full((STATES,), 0.01), torch.full((STATES,), -0.4))
    assert calibrate(truth, drawn(truth)).calibrated
    lost = calibrate(blind, drawn(truth))
    assert not lost.calibrated
    assert lost.tails[1].returns.value < lost.tails[1].cvar.value - 0.3
    assert lost.tails[1].shortfall.high < 0


def test_differences_below_the_resolution_do_not_count():
    law = MixtureLaw.dirac(torch.full((STATES,), -0.6))
    came = np.full(STATES, -0.601)
    assert not calibrate(law, came).calibrated
    assert calibrate(law, came, resolution=0.01).calibrated
    assert not calibrate(law, came - 0.1, resolution=0.01).calibrated


def test_levels_of_an_atom_lie_between_the_masses_below_and_up_to_it():
    law = MixtureLaw.atoms([[0.0, 1.0, 2.0]], [[0.2, 0.5, 0.3]])
    for y, expected in ((1.0, (0.2, 0.7)), (1.5, (0.7, 0.7)), (-1.0, (0, 0)), (2.0, (0.7, 1)), (3.0, (1, 1))):
        torch.testing.assert_close(torch.cat(levels_of(law, torch.tensor([y]))), torch.tensor(expected).double())


@pytest.mark.parametrize("laws", [flow_laws, atomic_laws], ids=["flow", "atomic"])
def test_the_cells_of_the_histogram_share_every_state_without_remainder(laws):
    scores = Scores.of(laws(200), np.linspace(-9, 9, 200))
    edges = np.linspace(0, 1, BINS + 1)
    shares = [scores.share_in(low, high) for low, high in pairwise(edges)]
    np.testing.assert_allclose(np.sum(shares, 0), 1)
    assert sum(bar.value for bar in calibrate(laws(200), drawn(laws(200))).histogram) == pytest.approx(BINS)


def by_integration(law, y, points):
    """∫ (F(x) − 1{x ≥ y})² dx, by the trapezoid rule on either side of y."""
    low, high = float(law.quantile(1e-9)) - 1, float(law.quantile(1 - 1e-9)) + 1
    total = 0.0
    for start, stop, above in ((min(low, y), y, 0.0), (y, max(high, y), 1.0)):
        x = np.linspace(start, stop, points)
        total += integrate.trapezoid((law.cdf(torch.from_numpy(x)).numpy() - above) ** 2, x)
    return total


@pytest.mark.parametrize(("laws", "points"), [(flow_laws, 3_001), (atomic_laws, 200_001)], ids=["flow", "atomic"])
def test_closed_crps_is_the_integral_that_defines_it(laws, points):
    batch = laws(6, seed=4)
    y = torch.tensor([-40.0, -1.0, 0.0, 0.7, 5.0, 40.0])
    expected = [by_integration(batch.select(k), float(y[k]), points) for k in range(6)]
    np.testing.assert_allclose(crps(batch, y), expected, rtol=3e-4, atol=3e-4)


def test_crps_by_quadrature_agrees_with_the_closed_forms():
    for law in (flow_laws(50), atomic_laws(50)):
        y = torch.linspace(-4, 4, 50)
        quadrature = crps.dispatch(object)(law, y)
        torch.testing.assert_close(quadrature, crps(law, y), rtol=0, atol=0.01 * float(law.std().max()))


def test_crps_of_a_point_is_the_absolute_error():
    law = MixtureLaw.dirac(torch.tensor([1.0, 1.0]))
    torch.testing.assert_close(crps(law, torch.tensor([3.0, 0.5])), torch.tensor([2.0, 0.5]))


def test_the_pooled_crps_is_half_the_mean_difference():
    values = np.random.default_rng(0).normal(size=60)
    assert half_mean_difference(values) == pytest.approx(np.abs(values[:, None] - values).mean() / 2)


def test_bounds_widen_where_states_of_an_episode_share_their_fate():
    raw, same = torch.randn(40, 13, generator=generator()), np.repeat(np.arange(40), 50)  # fifty copies of each state
    law, copies = anchored_law(raw), anchored_law(raw[same])
    came = np.repeat(drawn(law), 50)
    dependent, naive = calibrate(copies, came, same).coverage[0.8], calibrate(copies, came).coverage[0.8]
    alone = calibrate(law, drawn(law)).coverage[0.8]
    assert dependent.value == naive.value == pytest.approx(alone.value)
    assert dependent.high - dependent.low == pytest.approx(alone.high - alone.low, rel=0.15)
    assert dependent.high - dependent.low > 4 * (naive.high - naive.low)


def test_the_p_value_of_right_laws_is_uniform_even_if_states_are_dependent():
    """Pairs of states with the same level: of 200 experiments about a twentieth may fall below 0.05."""
    rng = np.random.default_rng(3)
    low = 0
    for trial in range(200):
        level = np.repeat(rng.random(60), 5)
        nothing = np.zeros(300)
        scores = Scores(nothing, nothing, nothing, level, level, nothing, np.zeros((300, len(TAILS))))
        low += not calibration_of(scores, np.repeat(np.arange(60), 5), seed=trial).calibrated
    assert 1 <= low <= 22  # binomial(200, 0.05): P(> 22) < 0.001


def play_exactly(mdp, truth, action, episodes, discount, seed):
    """States of sampled episodes that begin with `action`, with exact laws and the returns that followed."""
    rng = np.random.default_rng(seed)
    laws, returns, owner = [], [], []
    for episode in range(episodes):
        state, chosen, path, ended = 0, action, [], False
        while not ended:
            following, reward, over = mdp.sample(np.array([state]), np.array([chosen]), rng)
            path.append((state, chosen, float(reward[0])))
            state, chosen, ended = int(following[0]), 0, bool(over[0])
        value = 0.0
        for s, a, reward in reversed(path):
            value = reward + discount * value
            laws.append(truth[s, a])
            returns.append(value)
            owner.append(episode)
    return laws, np.array(returns), np.array(owner)


def joined(laws):
    """Mixtures of different sizes as one batch."""
    size = max(law.weights.shape[-1] for law in laws)
    pad = [
        [torch.nn.functional.pad(part, (0, size - len(part))) for part in (x.weights, x.means, x.stds)] for x in laws
    ]
    return MixtureLaw(*(torch.stack(parts) for parts in zip(*pad, strict=True)))


@pytest.mark.parametrize("action", [0, 1], ids=["short", "long"])
def test_exact_laws_of_a_finite_mdp_are_calibrated(action):
    mdp = risky_cliff(slip=0.2)
    truth = exact_returns(mdp, np.zeros(mdp.n_states, dtype=int), 0.9)
    laws, returns, owner = play_exactly(mdp, truth, action, 400, 0.9, seed=5)
    found = calibrate(joined(laws), returns, owner, resolution=1e-9)
    assert found.calibrated
    for level, share in found.coverage.items():
        assert abs(share.value - level) <= 2 * (share.high - share.low) + 1e-6
    assert abs(found.bias.value) <= 2 * (found.bias.high - found.bias.low) + 1e-6
    wrong = calibrate(joined(laws), returns - 0.3, owner, resolution=1e-9)
    assert not wrong.calibrated


class Corridor(gymnasium.Env):
    """Reward 1 per step; terminates after `length` steps or is cut off after `limit`."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length, limit=10**9):
        self.length, self.limit, self.at = length, limit, 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        self.at = 0
        return np.array([0.0]), {}

    def step(self, action):  # noqa: ARG002
        self.at += 1
        return np.array([float(self.at)]), 1.0, self.at >= self.length, self.at >= self.limit, {}


def watch(env, sampling, value=7.0):
    greedy, values = lambda rows: np.zeros(len(rows), int), lambda rows: np.full(len(rows), value)
    return observe(DirectStream([env, Corridor(env.length, env.limit)]), greedy, values, sampling, progress=False)


def test_returns_are_discounted_sums_to_the_end_of_the_episode():
    seen = watch(Corridor(12), Sampling(5, 0.9, states=100))
    left = 12 - seen.observation[:, 0]
    np.testing.assert_allclose(seen.returns, (1 - 0.9**left) / 0.1)
    assert np.bincount(seen.episode).tolist() == [12] * 5
    assert seen.counts == {"episodes": 5, "steps": 60, "cut_off": 0, "discarded": 0}


def test_steps_whose_future_was_cut_off_are_discarded_and_counted():
    seen = watch(Corridor(10**9, limit=30), Sampling(4, 0.8, states=100))
    weight = 0.8 ** (30 - seen.observation[:, 0])
    assert (weight <= UNSEEN).all()
    np.testing.assert_allclose(seen.returns, (1 - weight) / 0.2 + 7.0 * weight)
    gone = sum(0.8**left > UNSEEN for left in range(1, 31))
    assert seen.counts == {"episodes": 4, "steps": 120, "cut_off": 4, "discarded": 4 * gone}


def test_without_discount_an_episode_that_was_cut_off_says_nothing():
    with pytest.raises(NfdrlError, match="4 of 4 episodes were cut off"):
        watch(Corridor(10**9, limit=30), Sampling(4, 1.0))


def test_long_episodes_keep_few_observations_and_all_rewards():
    seen = watch(Corridor(5 * STORED), Sampling(2, 0.999, states=10**6))
    assert STORED / 2 <= np.bincount(seen.episode).max() <= STORED
    np.testing.assert_allclose(seen.returns, (1 - 0.999 ** (5 * STORED - seen.observation[:, 0])) / 0.001)


def test_a_lost_life_ends_the_return_but_not_the_episode():
    episode = Episode(0, rewards=[1.0, 2.0, 4.0], ends=[False, True, True])
    returns, weights = episode.returns(0.5, 0.0)
    np.testing.assert_allclose(returns, [2.0, 2.0, 4.0])
    np.testing.assert_allclose(weights, 0)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_calibrated(name):
    torch.set_default_dtype(torch.float32)
    agent = Agent(name, "nfdrl/RiskyCliff-v0", seed=0)
    found = agent.calibration(episodes=4, states=3, progress=False)
    assert found.scores.crps.shape == found.episode.shape == (12,)
    assert np.isfinite(found.scores.crps).all()
    assert (found.scores.crps >= -1e-5).all()
    assert json.dumps(found.summary(), allow_nan=True)


def test_a_calibration_repeats_itself_and_leaves_training_alone():
    torch.set_default_dtype(torch.float32)
    one, other = (Agent("c51", "CartPole-v1", seed=3) for _ in range(2))
    first, second = (one.calibration(episodes=3, progress=False) for _ in range(2))
    np.testing.assert_array_equal(first.scores.returns, second.scores.returns)
    for agent in (one, other):
        agent.learn(1_100, progress=False)
    for mine, theirs in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_command_writes_numbers_states_and_a_figure(tmp_path, capsys):
    torch.set_default_dtype(torch.float32)
    Agent("nfdrl-s", "CartPole-v1").save(tmp_path)
    assert main(["evaluate", str(tmp_path), "--episodes", "6", "--calibration", "--states", "5"]) == 0
    text = capsys.readouterr().out
    assert "returns in the central 80%" in text
    assert "30 states of 6 episodes" in text
    saved = json.loads((tmp_path / "calibration.json").read_text())
    assert saved["states"] == 30
    assert len((tmp_path / "calibration.csv").read_text().splitlines()) == 31
    assert (tmp_path / "calibration.png").stat().st_size > 10_000


@pytest.mark.parametrize("given", [["--episodes", "1"], ["--states", "0"], ["--resolution", "-1"]])
def test_the_command_refuses_what_makes_no_sense(given, tmp_path, capsys):
    torch.set_default_dtype(torch.float32)
    Agent("dqn", "CartPole-v1").save(tmp_path)
    assert main(["evaluate", str(tmp_path), "--calibration", *given]) == 2
    assert "must be" in capsys.readouterr().err


def test_laws_and_returns_must_match():
    with pytest.raises(NfdrlError, match="cannot be held against"):
        calibrate(flow_laws(3), np.zeros(4))
    with pytest.raises(NfdrlError, match="finite"):
        calibrate(flow_laws(2), [0.0, math.nan])
