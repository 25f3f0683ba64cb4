"""Statistics over seeds: hand-worked cases, independent oracles, and what must hold for any scores."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from nfdrl.errors import NfdrlError
from nfdrl.evaluation.statistics import bootstrap, improvement, iqm, mean, median, optimality_gap, profile

STATISTICS = (mean, median, iqm, optimality_gap)
SEEDS = st.integers(1, 6).flatmap(lambda n: arrays(np.float64, n, elements=st.integers(-20, 20).map(float)))
SCORES = st.lists(SEEDS, min_size=1, max_size=4)


def generator():
    return np.random.default_rng(0)


def test_iqm_leaves_out_the_lowest_and_the_highest_quarter():
    # Eight runs in two environments: 0 1 | 2 3 4 5 | 6 70, and (2 + 3 + 4 + 5)/4 = 3.5.
    assert iqm([np.array([70.0, 0.0, 3.0, 5.0]), np.array([2.0, 6.0, 1.0, 4.0])]) == 3.5
    # Of five runs a quarter is one, rounded down: (2 + 3 + 4)/3.
    assert iqm([np.array([1.0, 2.0, 3.0, 4.0, 90.0])]) == 3.0


@given(SCORES)
def test_iqm_is_the_trimmed_mean_of_scipy(scores):
    assert_allclose(iqm(scores), stats.trim_mean(np.concatenate(scores), 0.25), atol=1e-12)


def test_the_mean_weighs_environments_equally_and_the_median_takes_the_middle_one():
    scores = [np.array([0.0, 0.0, 0.0]), np.array([2.0, 4.0]), np.array([9.0])]
    assert mean(scores) == 4.0  # (0 + 3 + 9)/3
    assert median(scores) == 3.0
    assert median(scores[1:2]) == 3.0  # of one environment: over its seeds
    assert median([np.array([1.0, 2.0, 9.0])]) == 2.0


def test_optimality_gap_does_not_reward_what_exceeds_the_target():
    # Gaps 1, 0.5, 0 and 0 (the last two exceed 1): means 0.75 and 0 over seeds, 0.375 over environments.
    scores = [np.array([0.0, 0.5]), np.array([1.5, 100.0])]
    assert optimality_gap(scores) == 0.375
    assert optimality_gap([np.array([400.0, 500.0])], target=475.0) == 37.5


def test_ties_count_one_half_in_the_probability_of_improvement():
    ours, theirs = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0])
    # Of six pairs two are lost, two tied, two won: (0 + 1 + 2)/6.
    assert improvement([ours], [theirs]) == 0.5
    # A second environment that is always won: (0.5 + 1)/2.
    assert improvement([ours, ours], [theirs, theirs - 5]) == 0.75


@given(SEEDS, SEEDS)
def test_improvement_is_the_normalised_mann_whitney_statistic_and_complements_to_one(ours, theirs):
    oracle = stats.mannwhitneyu(ours, theirs, method="asymptotic").statistic if np.ptp([*ours, *theirs]) else None
    if oracle is not None:
        assert_allclose(improvement([ours], [theirs]), oracle / (ours.size * theirs.size), atol=1e-12)
    assert_allclose(improvement([ours], [theirs]) + improvement([theirs], [ours]), 1)


def test_a_profile_is_the_share_of_runs_above_each_threshold():
    scores, thresholds = [np.array([0.0, 1.0]), np.array([1.0, 2.0])], np.array([-1.0, 0.0, 1.0, 2.0])
    # Above −1: all. Above 0: 1/2 and 2/2. Above 1: 0 and 1/2. Above 2: none.
    assert_array_equal(profile(scores, thresholds), [1.0, 0.75, 0.25, 0.0])
    batch = profile([np.stack([env] * 5) for env in scores], thresholds)
    assert_array_equal(batch, np.repeat(profile(scores, thresholds)[:, None], 5, 1))


@pytest.mark.parametrize("statistic", STATISTICS)
@given(scores=SCORES, data=st.data())
@settings(max_examples=25)
def test_the_order_of_seeds_changes_neither_a_statistic_nor_its_interval(statistic, scores, data):
    shuffled = [np.array(data.draw(st.permutations(env.tolist()))) for env in scores]
    assert_allclose(statistic(scores), statistic(shuffled), atol=1e-12)
    ends = [bootstrap(statistic, either, generator(), resamples=50) for either in (scores, shuffled)]
    assert_array_equal(*ends)


@pytest.mark.parametrize("statistic", STATISTICS)
@given(scores=SCORES)
@settings(max_examples=25)
def test_a_batch_of_scores_gives_the_statistic_of_each(statistic, scores):
    batch = [np.stack([env, env - 1]) for env in scores]
    assert_allclose(statistic(batch), [statistic(scores), statistic([env - 1 for env in scores])])


@pytest.mark.parametrize("statistic", STATISTICS)
def test_intervals_shrink_as_the_root_of_the_number_of_seeds(statistic):
    # The same empirical law with four times as many seeds: half the width.
    rng = generator()
    few = [rng.normal(0.5, 1.0, 10) for _ in range(3)]
    many = [np.tile(env, 4) for env in few]
    narrow, wide = (np.diff(bootstrap(statistic, scores, generator()), axis=0) for scores in (many, few))
    assert 0.3 < float((narrow / wide).item()) < 0.75


def test_the_interval_of_a_mean_is_that_of_scipy():
    sample = generator().normal(size=12)
    ours = bootstrap(mean, [sample], generator(), resamples=20_000)
    oracle = stats.bootstrap((sample,), np.mean, method="percentile", n_resamples=20_000, rng=generator())
    assert_allclose(ours, oracle.confidence_interval, atol=0.02)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says():
    rng = generator()
    ends = [bootstrap(mean, [rng.normal(size=30)], rng, resamples=300) for _ in range(200)]
    covered = np.mean([low <= 0 <= high for low, high in ends])
    assert 0.87 < covered < 0.99  # 0.95 in theory, a little less with 30 seeds


def test_environments_are_resampled_apart_from_each_other():
    # Every seed of an environment scores the same: whatever is drawn, nothing changes.
    scores = [np.full(3, 1.0), np.full(4, 5.0)]
    assert_array_equal(bootstrap(mean, scores, generator()), (3.0, 3.0))


def test_a_level_outside_the_unit_interval_is_refused():
    with pytest.raises(NfdrlError, match="level must lie strictly between 0 and 1, got 95"):
        bootstrap(mean, [np.zeros(3)], generator(), level=95)


def published(agent):
    """Human-normalised scores of five runs in each of the 26 games of Atari 100k, as released with two papers.

    IRIS: Micheli et al. 2023, github.com/eloialonso/iris, results/data. DIAMOND: Alonso et al. 2024,
    github.com/eloialonso/diamond, results/data. Random and human scores are those that both use.
    """
    with (Path(__file__).parent / "atari100k.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    scores = []
    for row in rows:
        low, high = float(row["random"]), float(row["human"])
        scores.append((np.array([float(row[f"{agent} {k}"]) for k in range(5)]) - low) / (high - low))
    return scores


@pytest.mark.parametrize(
    ("agent", "statistics", "printed"),
    [
        ("iris", STATISTICS, (1.046, 0.289, 0.501, 0.512)),  # its table 1
        ("diamond", (mean, iqm), (1.459, 0.641)),  # its table 1, which repeats the mean and the IQM of IRIS
    ],
)
def test_published_aggregates_follow_from_the_published_runs_to_the_printed_digit(agent, statistics, printed):
    scores = published(agent)
    assert len(scores) == 26
    assert_allclose([float(statistic(scores)) for statistic in statistics], printed, rtol=0, atol=0.0005)
