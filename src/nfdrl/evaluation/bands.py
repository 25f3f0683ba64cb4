"""Curves of a report with 95 % bands over seeds: training returns, performance profiles, sample efficiency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nfdrl.evaluation.lines import Line, Setup
from nfdrl.evaluation.seed_report import SEED, Target, normalised
from nfdrl.evaluation.statistics import Floats, Scores, Statistic, bootstrap, iqm, mean, profile

POINTS = 200  # of a curve
RESAMPLES = 500


@dataclass(frozen=True)
class Band:
    """A statistic along x, and both ends of its interval if every environment has two seeds or more."""

    x: Floats
    values: Floats
    low: Floats | None = None
    high: Floats | None = None

    @classmethod
    def of(cls, x: Floats, statistic: Statistic, scores: Scores) -> Band | None:
        """None if there is nothing to draw."""
        if not x.size or any(not env.shape[-1] for env in scores):
            return None
        values = statistic(scores)
        if any(env.shape[-1] < 2 for env in scores):
            return cls(x, values)
        return cls(x, values, *bootstrap(statistic, scores, np.random.default_rng(SEED), resamples=RESAMPLES))


def training(line: Line) -> Band | None:
    """The mean over seeds of the return while training."""
    steps, returns = _curve(line)
    return Band.of(steps, mean, [returns])


def profiles(setups: Sequence[Setup], targets: Mapping[str, Target]) -> dict[str, Band]:
    """The share of runs above each normalised score, by the labels of setups that have any."""
    scores = {setup.label: list(normalised(setup, targets).values()) for setup in setups}
    pooled = [env for found in scores.values() for env in found]
    if not pooled:
        return {}
    low, high = min(*map(np.min, pooled), 0.0), max(*map(np.max, pooled), 1.0)
    margin = 0.05 * (high - low)
    thresholds = np.linspace(low - margin, high + margin, POINTS)
    bands = {
        label: Band.of(thresholds, lambda drawn: profile(drawn, thresholds), found)
        for label, found in scores.items()
        if found
    }
    return {label: band for label, band in bands.items() if band is not None}


def efficiency(setup: Setup, targets: Mapping[str, Target]) -> Band | None:
    """The IQM of normalised training returns over the steps that every seed in every environment has."""
    lines = {env: line for env, line in setup.lines.items() if env in targets}
    ranges = [at for line in lines.values() if (at := _curve(line)[0]).size]
    if not ranges or len(ranges) < len(lines):
        return None
    first, last = max(at[0] for at in ranges), min(at[-1] for at in ranges)
    steps = np.linspace(first, last, POINTS) if first < last else np.empty(0)
    return Band.of(steps, iqm, [targets[env].normalise(_curve(line, steps)[1]) for env, line in lines.items()])


def _curve(line: Line, at: Floats | None = None) -> tuple[Floats, Floats]:
    """Training returns of all seeds at steps that every seed has reached; shapes (T,) and (T, seeds)."""
    paths = []
    for run in line.runs:
        path = np.array([(row["step"], row["episode_return"]) for row in run.curve], dtype=np.float64).reshape(-1, 2)
        paths.append(path[np.isfinite(path).all(-1)])
    paths = [path for path in paths if len(path)]
    if at is None:
        at = _common(paths)
    columns = [np.interp(at, path[:, 0], path[:, 1]) for path in paths]
    return at, np.stack(columns, -1) if columns else np.empty((at.size, 0))


def _common(paths: Sequence[Floats]) -> Floats:
    if not paths:
        return np.empty(0)
    first, last = max(path[0, 0] for path in paths), min(path[-1, 0] for path in paths)
    return np.linspace(first, last, POINTS) if first <= last else np.empty(0)
