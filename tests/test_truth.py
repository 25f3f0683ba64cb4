"""Exact return laws: against enumeration, linear algebra, closed forms and Monte-Carlo."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nfdrl.envs.finite import FiniteMDP
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.truth import exact_returns


def frozen_lake(**kwargs):
    return FiniteMDP.from_env("FrozenLake-v1", **kwargs)


def random_ending_mdp(rng, n_states=4, n_actions=2):
    """Random outcomes that only lead to later states, so that every episode can be enumerated."""
    table = {}
    for s in range(n_states):
        table[s] = {}
        for a in range(n_actions):
            p = rng.dirichlet(np.ones(3))
            nexts, rewards = rng.integers(s + 1, n_states + 1, size=3), rng.integers(-2, 3, size=3)
            table[s][a] = [
                (p[i], int(nexts[i]), float(rewards[i]), bool(rng.random() < 0.3 or nexts[i] == n_states))
                for i in range(3)
            ]
    return table


def enumerate_returns(table, policy, discount, state, action):
    """Every trajectory from a pair, one after the other: {return: probability}."""
    found = defaultdict(float)
    for p, next_state, reward, terminated in table[state][action]:
        if terminated:
            found[round(reward, 9)] += p
            continue
        for next_action, chance in enumerate(policy[next_state]):
            for value, q in enumerate_returns(table, policy, discount, next_state, next_action).items():
                found[round(reward + discount * value, 9)] += p * chance * q
    return found


def linear_action_values(mdp, policy, discount):
    """Q of the policy from (I − γ Pπ) V = rπ."""
    rows, matrix = mdp.rows, mdp.policy_matrix(policy)
    weight = rows.probability * matrix[rows.state, rows.action]
    system = np.eye(mdp.n_states)
    np.add.at(system, (rows.state, rows.next_state), -discount * weight * ~rows.terminated)
    value = np.linalg.solve(system, np.bincount(rows.state, weight * rows.reward, minlength=mdp.n_states))
    return mdp.action_values(value, discount)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.9, 0.5, 0.0]))
def test_the_law_is_that_of_enumerated_trajectories(seed, discount):
    rng = np.random.default_rng(seed)
    table, policy = random_ending_mdp(rng), rng.dirichlet(np.ones(2), size=5)
    truth = exact_returns(FiniteMDP.from_table(table), policy, discount)
    assert (truth.kind, truth.error, len(truth)) == ("exact", 0.0, 8)
    for (s, a), law in truth.items():
        expected = enumerate_returns(table, policy, discount, s, a)
        assert law.means.numpy() == pytest.approx(np.array(sorted(expected)), abs=1e-8)
        assert law.weights.numpy() == pytest.approx(np.array([expected[y] for y in sorted(expected)]), abs=1e-12)


def test_a_loop_gives_the_geometric_law():
    # With probability ½ a reward of 1 and another turn, otherwise the end: k rewards have probability 2^−(k+1) and
    # return (1 − γᵏ)/(1 − γ) = 2 − 2^(1−k) for γ = ½.
    table = {0: {0: [(0.5, 0, 1.0, False), (0.5, 1, 0.0, True)]}}
    law = exact_returns(FiniteMDP.from_table(table), [0, 0], 0.5)[0, 0]
    k = torch.arange(10, dtype=torch.float64)
    torch.testing.assert_close(law.means[:10], 2 - 2 ** (1 - k))
    torch.testing.assert_close(law.weights[:10], 2 ** -(k + 1))


def test_gaussian_rewards_add_their_discounted_variances():
    # Z = R₁ + ½R₂, R₁ ~ N(1, 3²), R₂ ~ N(−2, 4²): N(0, 9 + 4).
    mdp = FiniteMDP(3, 1, [0, 1], [0, 0], [1, 1], [1, 2], [1.0, -2.0], [False, True], reward_std=[3.0, 4.0])
    law = exact_returns(mdp, [0, 0, 0], 0.5)[0, 0]
    assert law.means.tolist() == [0.0]
    assert law.stds.item() == pytest.approx(math.sqrt(13), rel=1e-14)


def test_frozenlake_returns_are_powers_of_the_discount_and_zero():
    mdp = frozen_lake()
    truth = exact_returns(mdp, mdp.optimal_policy(0.95), 0.95)
    assert (truth.kind, len(truth)) == ("exact", 44)
    assert truth.error <= 1e-9
    for law in truth.values():
        positive = law.means[law.means > 0]
        power = positive.log() / math.log(0.95)
        # Below 1e-6 neighbouring powers are still 5e-8 apart, far more than what is merged.
        assert (power - power.round()).abs()[positive > 1e-6].max() < 1e-9
        assert law.cdf(0.0).item() > 0
    # The goal pays 1 itself when it is entered at once, with no rounding.
    assert truth[14, 2].means.max().item() == 1.0


@pytest.mark.parametrize(
    ("env_id", "options", "discount"),
    [
        ("FrozenLake-v1", {}, 0.95),
        ("FrozenLake-v1", {"map_name": "8x8"}, 0.99),
        ("FrozenLake-v1", {"is_slippery": False}, 0.9),
        ("CliffWalking-v1", {}, 0.99),
        ("CliffWalking-v1", {"is_slippery": True}, 0.9),
        ("Taxi-v4", {}, 0.99),
    ],
)
def test_the_mean_is_the_value_function_of_the_linear_solve(env_id, options, discount):
    mdp = FiniteMDP.from_env(env_id, **options)
    policy = mdp.optimal_policy(discount)
    truth = exact_returns(mdp, policy, discount)
    expected = linear_action_values(mdp, policy, discount)
    means = np.array([law.mean().item() for law in truth.laws])
    assert truth.kind == "exact"
    assert means == pytest.approx(expected[truth.pairs[:, 0], truth.pairs[:, 1]], abs=1e-9)


def test_a_stochastic_policy_has_the_value_of_its_linear_solve():
    mdp, uniform = frozen_lake(), np.full((16, 4), 0.25)
    truth = exact_returns(mdp, uniform, 0.95)
    expected = linear_action_values(mdp, uniform, 0.95)
    assert truth[14, 2].mean().item() == pytest.approx(expected[14, 2], abs=1e-9)
    assert truth[0, 0].mean().item() == pytest.approx(expected[0, 0], abs=1e-9)


def test_the_stated_error_bounds_the_distance_to_a_longer_run():
    # Never ending, reward 1: the return is 1/(1 − γ) and the truncated one misses γᵀ/(1 − γ): the bound.
    mdp = FiniteMDP.from_table({0: {0: [(1.0, 0, 1.0, False)]}})
    truth = exact_returns(mdp, [0], 0.9, tolerance=1e-3)
    missed = 10 - truth[0, 0].mean().item()
    assert 0 < missed <= truth.error + 1e-12
    assert truth.error <= 1e-3
    assert truth.error == pytest.approx(0.9**truth.steps / 0.1)


def test_the_error_of_an_undiscounted_law_is_the_probability_of_a_longer_episode():
    # It continues with probability ½ per step: after T steps 2^−T, first under 1e-3 at T = 10.
    table = {0: {0: [(0.5, 0, -1.0, False), (0.5, 1, 0.0, True)]}}
    truth = exact_returns(FiniteMDP.from_table(table), [0, 0], 1.0, tolerance=1e-3)
    assert (truth.steps, truth.error) == (10, 2.0**-10)


@pytest.mark.parametrize("discount", [0.95, 1.0])
def test_monte_carlo_agrees_with_the_exact_law_within_its_own_error(discount):
    mdp, uniform = frozen_lake(), np.full((16, 4), 0.25)
    exact = exact_returns(mdp, uniform, discount)
    sampled = exact_returns(mdp, uniform, discount, max_atoms=1, rollouts=4000)
    assert (exact.kind, sampled.kind) == ("exact", "monte-carlo")
    points = torch.linspace(-0.0131, 1.0117, 52, dtype=torch.float64)  # none of them a return
    for pair, law in exact.items():
        assert abs((sampled[pair].mean() - law.mean()).item()) <= 5 * sampled.error
        # Twice the 95 % band is left with probability 2·0.025⁴ < 1e-6.
        assert (sampled[pair].cdf(points) - law.cdf(points)).abs().max().item() <= 2 * sampled.cdf_error


def test_the_stated_monte_carlo_errors_shrink_with_the_root_of_the_rollouts():
    mdp, uniform = frozen_lake(), np.full((16, 4), 0.25)
    few, many = (exact_returns(mdp, uniform, 0.9, max_atoms=1, rollouts=n) for n in (400, 6400))
    assert few.cdf_error == pytest.approx(math.sqrt(math.log(40) / 800))
    assert few.cdf_error / many.cdf_error == pytest.approx(4)
    assert few.error / many.error == pytest.approx(4, rel=0.3)


def test_monte_carlo_is_a_function_of_its_seed():
    mdp, uniform = frozen_lake(), np.full((16, 4), 0.25)
    first, second, other = (exact_returns(mdp, uniform, 0.9, max_atoms=1, rollouts=300, seed=k) for k in (1, 1, 2))
    assert torch.equal(first[14, 2].weights, second[14, 2].weights)
    assert [law.mean().item() for law in first.laws] != [law.mean().item() for law in other.laws]


def test_a_support_that_explodes_is_sampled():
    # Two rewards at each step and no end: 2ᵏ distinct returns after k steps. With γ = 0.8 and rewards ±1 the mean is 0
    # and the variance 1/(1 − γ²) = 2.78.
    table = {0: {0: [(0.5, 0, 1.0, False), (0.5, 0, -1.0, False)]}}
    truth = exact_returns(FiniteMDP.from_table(table), [0], 0.8, max_atoms=500)
    assert truth.kind == "monte-carlo"
    assert truth.error == pytest.approx(math.sqrt(1 / 0.36 / 20_000), rel=0.05)
    assert abs(truth[0, 0].mean().item()) < 5 * truth.error
    assert truth[0, 0].variance().item() == pytest.approx(1 / 0.36, rel=0.05)


def test_returns_that_differ_by_rounding_are_one_atom():
    # 0.1 + 0.2 and 0.3 + 0 are the same return by two ways.
    table = {
        0: {0: [(0.5, 1, 0.1, False), (0.5, 2, 0.3, False)]},
        1: {0: [(1.0, 3, 0.2, True)]},
        2: {0: [(1.0, 3, 0.0, True)]},
    }
    law = exact_returns(FiniteMDP.from_table(table), [0, 0, 0, 0], 1.0)[0, 0]
    assert law.weights.tolist() == [1.0]


def test_an_undiscounted_policy_that_never_ends_is_refused():
    table = {0: {0: [(1.0, 0, 1.0, False)], 1: [(1.0, 1, 0.0, True)]}}
    mdp = FiniteMDP.from_table(table)
    with pytest.raises(NfdrlError, match="from state 0 this policy never ends"):
        exact_returns(mdp, [0, 0], 1.0)
    assert exact_returns(mdp, [1, 0], 1.0)[0, 0].means.tolist() == [1.0]


@pytest.mark.parametrize("max_atoms", [1, 1000])
def test_only_the_pairs_asked_for_are_returned(max_atoms):
    mdp, uniform = frozen_lake(), np.full((16, 4), 0.25)
    truth = exact_returns(mdp, uniform, 0.9, pairs=[(14, 2), (0, 1)], max_atoms=max_atoms, rollouts=100)
    assert list(truth) == [(14, 2), (0, 1)]
    assert truth[14, 2].mean() > truth[0, 1].mean()


def test_a_pair_that_is_not_live_has_no_law():
    mdp = frozen_lake()
    truth = exact_returns(mdp, mdp.optimal_policy(0.9), 0.9)
    assert (5, 0) not in truth
    with pytest.raises(NfdrlError, match=r"\(5, 0\) is not live"):
        truth[5, 0]
    with pytest.raises(NfdrlError, match=r"\(5, 0\) is not live"):
        exact_returns(mdp, mdp.optimal_policy(0.9), 0.9, pairs=[(5, 0)])
