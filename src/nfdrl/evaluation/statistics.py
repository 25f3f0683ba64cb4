"""Scores of several runs as one number with an interval (Agarwal et al. 2021, "Deep RL at the edge").

Scores are one array per environment, with seeds along the last axis; environments may have different numbers of seeds.
Axes before the last are a batch: thresholds, steps, or the resamples of a bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nfdrl.errors import NfdrlError, check_at_least

Floats = NDArray[np.float64]
Scores = Sequence[Floats]
Statistic = Callable[[Scores], Floats]

LEVEL = 0.95
RESAMPLES = 2_000


def mean(scores: Scores) -> Floats:
    """The mean over environments of the mean over seeds.

    >>> float(mean([np.array([0.0, 1.0]), np.array([3.0])]))
    1.75
    """
    return _over_environments([env.mean(-1) for env in scores])


def median(scores: Scores) -> Floats:
    """The median over environments of the mean over seeds; of a single environment, the median over its seeds."""
    if len(scores) == 1:
        return np.asarray(np.median(scores[0], -1))
    return np.asarray(np.median(np.stack([env.mean(-1) for env in scores]), 0))


def iqm(scores: Scores) -> Floats:
    """The interquartile mean: that of all runs but the lowest and the highest quarter, both rounded down.

    >>> float(iqm([np.array([1.0, 2.0, 3.0, 100.0])]))
    2.5
    """
    pooled = np.sort(np.concatenate(scores, -1), -1)
    cut = pooled.shape[-1] // 4
    return np.asarray(pooled[..., cut : pooled.shape[-1] - cut].mean(-1))


def optimality_gap(scores: Scores, target: float = 1.0) -> Floats:
    """By how much runs miss the target on average; what exceeds it does not count.

    >>> float(optimality_gap([np.array([0.5, 3.0])]))
    0.25
    """
    return _over_environments([np.maximum(target - env, 0).mean(-1) for env in scores])


def improvement(ours: Scores, theirs: Scores) -> Floats:
    """P(X > Y) + ½ P(X = Y) for a run X of ours and Y of theirs in the same environment; the mean over environments.

    >>> float(improvement([np.array([1.0, 2.0])], [np.array([1.0, 0.0])]))
    0.875
    """
    pairs = zip(ours, theirs, strict=True)
    won = [(1 + np.sign(x[..., :, None] - y[..., None, :]).mean((-2, -1))) / 2 for x, y in pairs]
    return _over_environments(won)


def profile(scores: Scores, thresholds: Floats) -> Floats:
    """The share of runs with more than each threshold, the mean over environments; thresholds are the first axis."""
    above = [env > np.expand_dims(thresholds, tuple(range(1, env.ndim + 1))) for env in scores]
    return _over_environments([part.mean(-1) for part in above])


def bootstrap(
    statistic: Statistic,
    scores: Scores,
    generator: np.random.Generator,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> tuple[Floats, Floats]:
    """Both ends of the percentile interval of a statistic, with seeds drawn anew within each environment.

    Seeds are sorted first, so that their order does not matter.
    """
    check_at_least(1, resamples=resamples)
    if not 0 < level < 1:
        raise NfdrlError(f"level must lie strictly between 0 and 1, got {level}")
    drawn = []
    for env in scores:
        seeds = env.shape[-1]
        drawn.append(np.sort(env, -1)[..., generator.integers(seeds, size=(resamples, seeds))])
    low, high = np.quantile(statistic(drawn), [(1 - level) / 2, (1 + level) / 2], axis=-1)
    return low, high


def _over_environments(values: Sequence[Floats]) -> Floats:
    return np.asarray(np.mean(np.stack(values), 0))
