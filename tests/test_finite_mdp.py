"""FiniteMDP: its checks, its sampling and its optimal policy."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfdrl.envs.finite import FiniteMDP, TabularEnv
from nfdrl.envs.toy import mdp1, mdp3
from nfdrl.errors import NfdrlError

# State 0: action 0 stays (p ¾) or moves to 1 (p ¼); action 1 ends at once. State 1: both actions end.
COLUMNS = {
    "n_states": 3,
    "n_actions": 2,
    "state": [0, 0, 0, 1, 1],
    "action": [0, 0, 1, 0, 1],
    "probability": [0.75, 0.25, 1.0, 1.0, 1.0],
    "next_state": [0, 1, 2, 2, 2],
    "reward": [0.0, 1.0, 2.0, 5.0, 5.0],
    "terminated": [False, False, True, True, True],
}


def frozen_lake(**kwargs):
    return FiniteMDP.from_env("FrozenLake-v1", **kwargs)


def test_frozenlake_has_44_live_pairs():
    # 16 cells, four holes and the goal: 11 cells of four actions.
    pairs = frozen_lake().live_pairs()
    assert len(pairs) == 44
    assert not {5, 7, 11, 12, 15} & set(pairs[:, 0].tolist())


@pytest.mark.parametrize(
    ("env_id", "states"),
    [
        ("CliffWalking-v1", 37),  # 4 × 12 cells, less ten of cliff that are never entered and the goal
        (
            "Taxi-v4",
            400,
        ),  # 25 cells × 4 destinations × passenger in 4 places that are not it: at one of 3 stops or inside
    ],
)
def test_live_states_are_those_an_episode_can_reach(env_id, states):
    assert len(set(FiniteMDP.from_env(env_id).live_pairs()[:, 0].tolist())) == states


def test_a_custom_map_can_be_read_from_an_environment_or_its_id():
    description = ["SF", "HG"]
    by_id = frozen_lake(desc=description)
    by_env = FiniteMDP.from_env(gymnasium.make("FrozenLake-v1", desc=description))
    assert np.array_equal(by_id.probability, by_env.probability)
    assert by_id.live_pairs()[:, 0].tolist() == [0] * 4 + [1] * 4
    assert by_id.initial.tolist() == [1, 0, 0, 0]


def test_a_tabular_environment_returns_its_own_table():
    mdp = FiniteMDP.from_env("nfdrl/MDP3-v0", second_std=0.8)
    assert (mdp.name, mdp.discount, mdp.reward_std.tolist()) == ("mdp3", 1.0, [0, 0, 1.0, 0.8])


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("FrozenLak-v1", "unknown environment 'FrozenLak-v1': did you mean 'FrozenLake-v1'?"),
        ("Taxi-v3", "did you mean 'Taxi-v4'?"),
        ("CartPole-v1", "'CartPole-v1' has no transition table P"),
    ],
)
def test_an_environment_without_a_table_is_refused(env_id, message):
    with pytest.raises(NfdrlError) as caught:
        FiniteMDP.from_env(env_id)
    assert message in str(caught.value)


def test_an_outcome_that_enters_a_terminal_state_terminates():
    mdp = FiniteMDP(2, 1, [0], [0], [1.0], [1], [1.0], [False])
    assert mdp.terminated.tolist() == [True]
    assert mdp.live_pairs().tolist() == [[0, 0]]


def test_a_state_that_only_loops_without_reward_is_terminal():
    table = {0: {0: [(1.0, 1, 1.0, False)]}, 1: {0: [(1.0, 1, 0.0, False)]}}
    assert FiniteMDP.from_table(table).terminal.tolist() == [False, True]
    paid = {0: {0: [(1.0, 1, 1.0, False)]}, 1: {0: [(1.0, 1, 0.1, False)]}}
    assert FiniteMDP.from_table(paid).terminal.tolist() == [False, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": [0.7, 0.25, 1.0, 1.0, 1.0]}, "state 0, action 0 must sum to 1, got 0.95"),
        ({"probability": [1.25, -0.25, 1.0, 1.0, 1.0]}, "probability must be at least 0, got -0.25"),
        ({"next_state": [0, 1, 3, 2, 2]}, r"next_state must lie in 0\.\.2, got 3"),
        ({"action": [0, 0, 2, 0, 1]}, r"action must lie in 0\.\.1, got 2"),
        ({"reward": [0.0, np.nan, 2.0, 5.0, 5.0]}, "reward must be finite, got nan"),
        ({"reward": [0.0]}, r"reward must have shape \(5,\)"),
        ({"reward_std": [-1.0, 0, 0, 0, 0]}, "reward_std must be at least 0, got -1"),
        ({"discount": 1.5}, "discount must lie in .*got 1.5"),
        ({"initial": [0.5, 0.0, 0.0]}, "initial .* got a sum of 0.5"),
        ({"initial": [1.0]}, r"initial must have shape \(3,\)"),
        ({"state_names": ("a",)}, "state_names must have 3 names, got 1"),
    ],
)
def test_a_table_that_is_not_an_mdp_is_refused(change, message):
    with pytest.raises(NfdrlError, match=message):
        FiniteMDP(**(COLUMNS | change))


def test_the_table_cannot_be_changed():
    mdp = FiniteMDP(**COLUMNS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mdp.n_states = 4
    with pytest.raises(ValueError, match="read-only"):
        mdp.reward[0] = 1.0


def test_sampled_outcomes_have_the_table_frequencies():
    mdp = FiniteMDP(**COLUMNS)
    n = 40_000
    next_state, reward, terminated = mdp.sample(np.zeros(n, dtype=int), 0, np.random.default_rng(0))
    # Frequency of the ¼ outcome: standard deviation √(¼·¾/n) = 0.0022; five of them are 0.011.
    assert (next_state == 1).mean() == pytest.approx(0.25, abs=0.011)
    assert np.array_equal(reward, (next_state == 1).astype(float))
    assert not terminated.any()


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_sample_is_a_row_of_its_own_pair(seed):
    mdp = frozen_lake()
    rng = np.random.default_rng(seed)
    s, a = mdp.live_pairs()[rng.integers(0, 44, size=300)].T
    found = {tuple(map(float, x)) for x in zip(s, a, *mdp.sample(s, a, rng), strict=True)}
    columns = (mdp.state, mdp.action, mdp.next_state, mdp.reward, mdp.terminated)
    assert found <= {tuple(map(float, x)) for x in zip(*columns, strict=True)}


def test_the_largest_uniform_draw_stays_within_its_pair():
    class Top:
        def random(self, shape):
            return np.full(shape, np.nextafter(1.0, 0.0))  # pair + this rounds up to the next pair

    mdp = frozen_lake()
    s, a = mdp.live_pairs().T
    next_state, _, _ = mdp.sample(s, a, Top())
    last = [int(mdp.next_state[(mdp.state == i) & (mdp.action == j)][-1]) for i, j in zip(s, a, strict=True)]
    assert next_state.tolist() == last


def test_a_terminal_state_is_not_live_even_where_episodes_start():
    table = {0: {0: [(1.0, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}
    assert FiniteMDP.from_table(table, initial=[0.5, 0.5]).live_pairs().tolist() == [[0, 0]]


def test_gaussian_rewards_have_their_spread():
    _, reward, _ = mdp3(0.8).sample(np.full(40_000, 2), 0, np.random.default_rng(1))
    # ½N(−2,1) + ½N(2,0.8²): mean 0, variance 4 + (1 + 0.64)/2 = 4.82; standard error of the mean √(4.82/40000) = 0.011.
    assert reward.mean() == pytest.approx(0, abs=0.055)
    assert reward.var() == pytest.approx(4.82, abs=0.15)


def test_a_pair_without_outcomes_cannot_be_sampled():
    with pytest.raises(NfdrlError, match="state 2, action 0 has no outcomes in 'mdp1'"):
        mdp1().sample([0, 2], 0, np.random.default_rng(0))
    with pytest.raises(NfdrlError, match="state 0, action 7"):
        mdp1().sample(0, 7, np.random.default_rng(0))


@pytest.mark.parametrize("discount", [0.5, 0.9, 1.0])
def test_the_optimal_policy_of_a_hand_worked_table(discount):
    # Staying: V = ¾γV + ¼(1 + 5γ), so V = (¼ + 1.25γ)/(1 − ¾γ): 1.4 for ½, 4.23 for 0.9, 6 for 1.
    # Ending at once pays 2.
    expected = 1 if discount == 0.5 else 0
    assert FiniteMDP(**COLUMNS).optimal_policy(discount).tolist() == [expected, 0, 0]


def test_ties_go_to_the_lowest_action():
    table = {0: {a: [(1.0, 1, reward, True)] for a, reward in enumerate([0.1, 0.3, 0.1 + 0.2, 0.3])}}
    assert FiniteMDP.from_table(table).optimal_policy(0.9)[0] == 1


def test_no_deterministic_policy_of_a_small_mdp_is_better():
    mdp = frozen_lake(desc=["SFF", "FHF", "FFG"])
    live = np.flatnonzero(~mdp.terminal)

    def value(policy):
        rows, matrix = mdp.rows, mdp.policy_matrix(policy)
        weight = rows.probability * matrix[rows.state, rows.action]
        system = np.eye(mdp.n_states)
        np.add.at(system, (rows.state, rows.next_state), -0.9 * weight * ~rows.terminated)
        return np.linalg.solve(system, np.bincount(rows.state, weight * rows.reward, minlength=mdp.n_states))

    best = mdp.optimal_policy(0.9)
    for s in live:
        for a in range(4):
            other = best.copy()
            other[s] = a
            assert (value(other) <= value(best) + 1e-12).all()


def test_a_policy_is_actions_or_probabilities():
    mdp = FiniteMDP(**COLUMNS)
    assert mdp.policy_matrix([1, 0, 0]).tolist() == [[0, 1], [1, 0], [0, 0]]
    assert mdp.policy_matrix([[0.5, 0.5], [1, 0], [0, 0]]).tolist() == [[0.5, 0.5], [1, 0], [0, 0]]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 2, 0], r"actions must lie in 0\.\.1, got 2"),
        ([0, 1], "3 integers, got 2"),
        ([0.0, 1.0, 0.0], "3 integers, got 3 of type float64"),
        ([[0.5, 0.4], [1, 0], [1, 0]], "policy of state 0 must be probabilities"),
        (np.zeros((2, 2)), "got \\(2, 2\\)"),
    ],
)
def test_an_invalid_policy_is_refused(policy, message):
    with pytest.raises(NfdrlError, match=message):
        FiniteMDP(**COLUMNS).policy_matrix(policy)


def test_a_policy_may_not_take_an_absent_action():
    mdp = FiniteMDP(2, 2, [0], [1], [1.0], [1], [1.0], [True])
    with pytest.raises(NfdrlError, match="takes action 0 in state 0, which has no outcomes"):
        mdp.policy_matrix([0, 0])
    with pytest.raises(NfdrlError, match="state 0 lacks one"):
        TabularEnv(mdp)


def test_a_missing_discount_is_refused():
    with pytest.raises(NfdrlError, match="pass one"):
        FiniteMDP(**COLUMNS).optimal_policy()
    assert mdp1().resolve_discount() == 0.9


def test_an_episode_that_ended_must_be_reset():
    env = TabularEnv(mdp1())
    assert env.reset(seed=0)[0] == 0
    assert env.step(0)[:3] == (1, -0.8, False)
    assert env.step(0)[:3] == (2, 0.3, True)
    with pytest.raises(NfdrlError, match="reset"):
        env.step(0)


def test_episodes_start_from_the_initial_distribution():
    mdp = FiniteMDP(**(COLUMNS | {"initial": [0.25, 0.75, 0.0]}))
    env = TabularEnv(mdp)
    starts = [env.reset(seed=3)[0]] + [env.reset()[0] for _ in range(3999)]
    # Standard deviation √(¼·¾/4000) = 0.0068; five of them are 0.034.
    assert np.mean(np.array(starts) == 0) == pytest.approx(0.25, abs=0.034)
    assert set(starts) == {0, 1}
