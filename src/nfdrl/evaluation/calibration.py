"""Whether predicted laws are right, judged by the returns that came: no exact law is needed.

If laws are right, the level F(y) at which each return y falls is uniform (Dawid 1984). The central 80 % interval then
holds 80 % of the returns, a tenth of them falls below the 0.1-quantile, and those average to the CVaR. States of one
episode share their future, so all bounds come from a bootstrap over whole episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.evaluation.scores import crps, levels_of
from nfdrl.laws.base import Law

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

INTERVALS = (0.5, 0.8, 0.95)  # central intervals whose coverage is counted
TAILS = (0.05, 0.1, 0.25)  # the worst fractions whose CVaR is checked
BINS = 10  # of the histogram of levels
RESAMPLES = 2_000  # of the bootstrap: 95 % bounds are then steady to about a twentieth of their distance
CONFIDENCE = 0.95
LAWS_AT_ONCE = 128  # a law without a closed form is scored at a thousand quantiles
ROUNDING = 1e-9  # of a squared distance between CDFs: far below what any number of episodes can tell


@dataclass(frozen=True)
class Scores:
    """One entry per state: its return, what was predicted, and how they fit.

    `lower` and `upper` are P(Z < y) and P(Z ≤ y); `cvar` has a column for each of TAILS.
    """

    returns: Floats
    mean: Floats
    std: Floats
    lower: Floats
    upper: Floats
    crps: Floats
    cvar: Floats

    @classmethod
    def of(cls, law: Law, returns: ArrayLike, resolution: float = 0.0) -> Scores:
        """The scores of laws of batch shape (N,) against N returns, which are known to ± `resolution`."""
        values = np.asarray(returns, dtype=np.float64)
        if law.batch_shape != values.shape or values.ndim != 1:
            raise NfdrlError(f"{values.shape} returns cannot be held against laws of shape {tuple(law.batch_shape)}")
        if not (np.isfinite(values).all() and 0 <= resolution < np.inf):
            raise NfdrlError("returns must be finite, and the resolution finite and at least 0")
        like = law.reference
        with torch.no_grad():
            came = torch.as_tensor(values, dtype=like.dtype, device=like.device)
            lower, upper = levels_of(law, came, resolution)
            cvar = law.cvar(torch.tensor(TAILS, dtype=like.dtype, device=like.device))
            found = (law.mean(), law.std(), lower, upper, crps(law, came), cvar)
        return cls(values, *(_numpy(part) for part in found))

    @classmethod
    def by_parts(
        cls,
        laws: Callable[[Any, Any], Law],
        observation: NDArray[Any],
        action: NDArray[Any],
        returns: Floats,
        resolution: float = 0.0,
    ) -> Scores:
        """The scores of the laws that a function gives for observations and actions, a few at a time."""
        parts = []
        for at in range(0, len(returns), LAWS_AT_ONCE):
            rows = slice(at, at + LAWS_AT_ONCE)
            parts.append(cls.of(laws(observation[rows], action[rows]), returns[rows], resolution))
        return cls.join(parts)

    @classmethod
    def join(cls, parts: Sequence[Scores]) -> Scores:
        """All scores, one after the other."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    def share_in(self, low: float, high: float) -> Floats:
        """The share of each state's range of levels that lies in [low, high]: what a random level would do on average.

        This is the non-randomised transform of Czado, Gneiting and Held (2009): atoms need no random numbers.
        """
        width = self.upper - self.lower
        overlap = np.minimum(self.upper, high) - np.maximum(self.lower, low)
        inside = (self.lower >= low) & (self.lower < high)  # a point belongs to the cell that it begins
        inside |= (self.lower == 1) & (high == 1)
        return np.where(width > 0, overlap.clip(min=0) / np.where(width > 0, width, 1), inside)

    def pit(self, rng: np.random.Generator) -> Floats:
        """The randomised probability integral transform: a uniform level between `lower` and `upper`."""
        return np.asarray(self.lower + rng.random(self.lower.shape) * (self.upper - self.lower))


def _numpy(values: Tensor) -> Floats:
    return np.asarray(values.detach().double().cpu().numpy(), dtype=np.float64)


@dataclass(frozen=True)
class Estimate:
    """A mean over states, with the 95 % bounds of a bootstrap over episodes; NaN where there was nothing to average."""

    value: float
    low: float
    high: float

    def holds(self, expected: float) -> bool:
        """Whether the expected value lies within the bounds."""
        return self.low <= expected <= self.high

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Tail:
    """The worst fraction `alpha`: the share of returns below its quantile, and what they came to.

    `shortfall` is the mean of those returns minus the CVaR predicted in the same states: below 0, losses are worse than
    predicted. `returns` and `cvar` are its two parts.
    """

    alpha: float
    below: Estimate
    returns: Estimate
    cvar: Estimate
    shortfall: Estimate


@dataclass(frozen=True)
class Calibration:
    """How well laws foretold returns; `counts` says what was played."""

    scores: Scores
    episode: Ints
    histogram: tuple[Estimate, ...]  # density of the levels in BINS cells; 1 everywhere if laws are right
    uniformity: float  # p-value: how often right laws would stray as far from uniform levels
    coverage: dict[float, Estimate]
    crps: Estimate
    crps_pooled: float  # of one law for all states: the returns themselves, pooled
    bias: Estimate  # mean of return − predicted mean
    tails: tuple[Tail, ...]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def calibrated(self) -> bool:
        """Whether levels are uniform as far as these episodes can tell, at 5 %."""
        return self.uniformity >= 1 - CONFIDENCE

    @property
    def skill(self) -> float:
        """The share of the pooled law's CRPS that is saved; below 0, the laws are worse than no prediction."""
        return 1 - self.crps.value / self.crps_pooled if self.crps_pooled > 0 else float("nan")

    def summary(self) -> dict[str, Any]:
        """Everything but the states, as JSON has it."""
        return {
            **self.counts,
            "states": len(self.episode),
            "uniformity": self.uniformity,
            "histogram": [asdict(bar) for bar in self.histogram],
            "coverage": {f"{level:g}": asdict(found) for level, found in self.coverage.items()},
            "crps": asdict(self.crps),
            "crps_pooled": self.crps_pooled,
            "skill": self.skill,
            "bias": asdict(self.bias),
            "predicted_std": float(self.scores.std.mean()),
            "tails": [asdict(tail) for tail in self.tails],
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per state."""
        names = [each.name for each in fields(self.scores) if each.name != "cvar"]
        columns = {name: getattr(self.scores, name).tolist() for name in names}
        columns |= {f"cvar_{alpha:g}": self.scores.cvar[:, k].tolist() for k, alpha in enumerate(TAILS)}
        columns = {"episode": self.episode.tolist()} | columns
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def calibrate(
    law: Law, returns: ArrayLike, episode: ArrayLike | None = None, *, resolution: float = 0.0, seed: int = 0
) -> Calibration:
    """Hold laws of batch shape (N,) against the N returns that came.

    `episode` says which states belong together; by default all are independent. Returns and laws are compared to within
    ± `resolution`: differences below it do not count. `seed` is the bootstrap's.
    """
    scores = Scores.of(law, returns, resolution)
    groups = np.arange(len(scores.returns)) if episode is None else np.asarray(episode, dtype=np.int64)
    return calibration_of(scores, groups, seed=seed)


def calibration_of(
    scores: Scores, episode: Ints, *, seed: int = 0, counts: Mapping[str, int] | None = None
) -> Calibration:
    """The calibration of states that belong to these episodes."""
    if episode.shape != scores.returns.shape:
        raise NfdrlError(f"{len(scores.returns)} states need as many episode numbers, got {episode.shape}")
    resampled = _Bootstrap.of(episode, seed)
    edges = np.linspace(0, 1, BINS + 1)
    cells = np.stack([scores.share_in(low, high) for low, high in pairwise(edges)], -1)
    inside = np.stack([scores.share_in((1 - level) / 2, (1 + level) / 2) for level in INTERVALS], -1)
    means = resampled.means(np.column_stack([BINS * cells, inside, scores.crps, scores.returns - scores.mean]))
    return Calibration(
        scores,
        episode,
        histogram=tuple(means[:BINS]),
        uniformity=resampled.uniformity(cells),
        coverage=dict(zip(INTERVALS, means[BINS:-2], strict=True)),
        crps=means[-2],
        crps_pooled=half_mean_difference(scores.returns),
        bias=means[-1],
        tails=tuple(_tail(scores, k, resampled) for k in range(len(TAILS))),
        counts={} if counts is None else dict(counts),
    )


def _tail(scores: Scores, k: int, resampled: _Bootstrap) -> Tail:
    worst, cvar = scores.share_in(0, TAILS[k]), scores.cvar[:, k]
    (below,) = resampled.means(worst[:, None])
    parts = np.column_stack([scores.returns, cvar, scores.returns - cvar])
    return Tail(TAILS[k], below, *resampled.means(parts, worst))


def half_mean_difference(values: Floats) -> float:
    """½E|Y − Y′|: the mean CRPS of the pooled returns as one law."""
    ordered, n = np.sort(values), len(values)
    return float((ordered * (2 * np.arange(1, n + 1) - n - 1)).sum() / n**2)


@dataclass(frozen=True)
class _Bootstrap:
    """Resamples of whole episodes: how often each is drawn, and which states it has."""

    draws: Floats  # (RESAMPLES, episodes)
    owner: Ints  # the episode of each state, from 0

    @classmethod
    def of(cls, episode: Ints, seed: int) -> _Bootstrap:
        names, owner = np.unique(episode, return_inverse=True)
        check_at_least(2, episodes=len(names))
        draws = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), RESAMPLES)
        return cls(draws.astype(np.float64), owner)

    def _sums(self, values: Floats) -> Floats:
        """Sums over each episode; (N, S) → (episodes, S)."""
        sums = np.zeros((self.draws.shape[1], values.shape[1]))
        np.add.at(sums, self.owner, values)
        return sums

    def _ratios(self, values: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
        """Weighted means of the columns, of all states and of each resample; shapes (S,), (RESAMPLES, S)."""
        weight = np.ones(len(values)) if weights is None else weights
        top, bottom = self._sums(values * weight[:, None]), self._sums(weight[:, None])
        with np.errstate(invalid="ignore", divide="ignore"):
            return top.sum(0) / bottom.sum(0), (self.draws @ top) / (self.draws @ bottom)

    def means(self, values: Floats, weights: Floats | None = None) -> list[Estimate]:
        """The weighted mean of each column, with percentiles of its resamples."""
        found, resampled = self._ratios(values, weights)
        known = resampled[np.isfinite(resampled).all(-1)]
        if not len(known):
            return [Estimate(float("nan"), float("nan"), float("nan"))] * values.shape[1]
        low, high = np.quantile(known, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
        return [Estimate(*map(float, three)) for three in zip(found, low, high, strict=True)]

    def uniformity(self, cells: Floats) -> float:
        """A p-value for uniform levels: Cramér–von Mises on the cells' edges, against resamples around their mean."""
        found, resampled = self._ratios(cells, None)
        expected = np.arange(1, cells.shape[1] + 1) / cells.shape[1]
        seen = found.cumsum()
        distance = np.square(seen - expected).sum()
        by_chance = np.square(resampled.cumsum(-1) - seen).sum(-1)
        return float((1 + (by_chance >= distance - ROUNDING).sum()) / (1 + len(by_chance)))
