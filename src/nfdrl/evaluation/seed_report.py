"""The numbers of a report: every line and every setup with intervals over seeds, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import gymnasium as gym
import numpy as np

from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.evaluation.lines import FEW, Line, Setup
from nfdrl.evaluation.statistics import Floats, Scores, Statistic, bootstrap, improvement, iqm, mean, median
from nfdrl.evaluation.statistics import optimality_gap as gap
from nfdrl.reports import Row
from nfdrl.runs.reading import RunRecord

STATISTICS: dict[str, Statistic] = {"mean": mean, "median": median, "iqm": iqm}
SEED = 0  # of every bootstrap, so that an interval depends on its own scores only
ALL = "all"
HUMAN = "random and human scores"  # the source of human-normalised scores


@dataclass(frozen=True)
class Target:
    """The scores that count as 0 and as 1 in an environment."""

    low: float
    high: float
    source: str

    def __post_init__(self) -> None:
        if not (np.isfinite([self.low, self.high]).all() and self.high > self.low):
            raise NfdrlError(
                f"a target must be finite and higher than the score that counts as 0, got {self.low:g}:{self.high:g}"
            )

    def normalise(self, scores: Floats) -> Floats:
        return (scores - self.low) / (self.high - self.low)


def read_target(word: str) -> tuple[str, Target]:
    """An environment and its target from ENV=SCORE or ENV=LOW:SCORE.

    >>> read_target("LunarLander-v3=-200:200")
    ('LunarLander-v3', Target(low=-200.0, high=200.0, source='given'))
    """
    env, _, text = word.rpartition("=")
    low, _, high = text.rpartition(":")
    try:
        if not env:
            raise ValueError
        ends = float(low or 0), float(high)
    except ValueError:
        raise NfdrlError(f"a target must be written ENV=SCORE or ENV=LOW:SCORE, got {word!r}") from None
    return env, Target(*ends, "given")


def targets_of(envs: Sequence[str], given: Mapping[str, Target], known: Mapping[str, Target]) -> dict[str, Target]:
    """The target of each environment: given, known, or above 0 in Gymnasium's registry; none for the others."""
    for env in given:
        if env not in envs:
            raise unknown_name("environment of a target", env, envs)
    return {env: found for env in envs if (found := given.get(env) or known.get(env) or _registered(env))}


def _registered(env: str) -> Target | None:
    threshold = getattr(gym.registry.get(env), "reward_threshold", None)
    return Target(0.0, float(threshold), "Gymnasium's reward threshold") if threshold and threshold > 0 else None


def run_row(run: RunRecord, settings: Row) -> Row:
    """A run's row; None where it was not evaluated."""
    evaluation = run.evaluation or {}
    return {
        "env": run.env,
        "method": run.method,
        **settings,
        "seed": run.seed,
        "steps": run.step,
        "return": evaluation.get("mean"),
        "std": evaluation.get("std"),
        "episodes": len(evaluation.get("returns", ())) or None,
        "training_return": run.last("episode_return"),
        "dormant": run.last("dormant"),
        "seconds": round(run.seconds, 1),
        "folder": str(run.folder),
    }


def line_row(line: Line, label: str, settings: Row, target: Target | None) -> Row:
    """A line's row: statistics of its evaluated seeds, and means over its runs."""
    scores = line.scores
    row = {"env": line.env, "method": line.method, "label": label, **settings}
    row |= {"steps": max(run.step for run in line.runs), "seeds": scores.size, "runs": len(line.runs)}
    for name, statistic in STATISTICS.items():
        row |= _cells(name, statistic, [scores])
    strata = [] if target is None else [target.normalise(scores)]
    row |= _cells("normalised", mean, strata) | _cells("gap", gap, strata)
    row |= {"training_return": _last(line, "episode_return"), "dormant": _last(line, "dormant")}
    seconds = float(np.mean([run.seconds for run in line.runs]))
    return row | {"seconds": round(seconds, 1), "folders": [str(run.folder) for run in line.runs]}


def _last(line: Line, name: str) -> float | None:
    """The mean over runs of the last number in a column of their metrics."""
    known = [value for run in line.runs if (value := run.last(name)) is not None]
    return float(np.mean(known)) if known else None


def normalised(setup: Setup, targets: Mapping[str, Target]) -> dict[str, Floats]:
    """The normalised scores of a setup in each environment that has a target and an evaluated run."""
    return {
        env: targets[env].normalise(line.scores)
        for env, line in sorted(setup.lines.items())
        if env in targets and line.scores.size
    }


def aggregate_row(setup: Setup, targets: Mapping[str, Target]) -> Row:
    """A setup's row: statistics of normalised scores over its environments."""
    scores = normalised(setup, targets)
    strata = list(scores.values())
    row: Row = {"method": setup.method, "label": setup.label, "environments": len(strata), "of": len(targets)}
    row["fewest_seeds"] = min((env.size for env in strata), default=0)
    for name, statistic in {**STATISTICS, "gap": gap}.items():
        row |= _cells(name, statistic, strata)
    return row | {"envs": list(scores)}


def improvement_rows(setups: Sequence[Setup]) -> list[Row]:
    """P(one > other) for each pair of setups, in each environment that both have, and over all of these."""
    rows = []
    for one, other in combinations(setups, 2):
        pairs = {
            env: (one.lines[env].scores, other.lines[env].scores)
            for env in sorted(one.lines.keys() & other.lines.keys())
            if one.lines[env].scores.size and other.lines[env].scores.size
        }
        for env in (*pairs, ALL) if pairs else ():
            chosen = list(pairs.values()) if env == ALL else [pairs[env]]
            row = {"env": env, "label": one.label, "other": other.label, "environments": len(chosen)}
            rows.append(
                row | _cells("probability", _halves, [part for half in zip(*chosen, strict=True) for part in half])
            )
    return rows


def _halves(scores: Scores) -> Floats:
    """The probability of improvement of the first half of all strata over the second."""
    return improvement(scores[: len(scores) // 2], scores[len(scores) // 2 :])


def _cells(name: str, statistic: Statistic, scores: Scores) -> dict[str, float | None]:
    """A statistic and both ends of its interval; None without scores, or where one seed leaves nothing to resample."""
    known = bool(scores) and all(env.size for env in scores)
    ends = interval(statistic, scores) if known else None
    low, high = ends or (None, None)
    return {name: float(statistic(scores)) if known else None, f"{name}_low": low, f"{name}_high": high}


def interval(statistic: Statistic, scores: Scores) -> tuple[float, float] | None:
    """The 95 % interval, if every environment has at least two seeds."""
    if any(env.shape[-1] < 2 for env in scores):
        return None
    low, high = bootstrap(statistic, scores, np.random.default_rng(SEED))
    return float(low), float(high)


def missing(setups: Sequence[Setup], envs: Sequence[str], targets: Mapping[str, Target]) -> list[str]:
    """What a reader must know before trusting the numbers: few seeds, empty cells, unfinished runs, no target."""
    notes = []
    for env in envs:
        lines = {setup.label: setup.lines[env] for setup in setups if env in setup.lines}
        few = [f"{label} ({line.scores.size})" for label, line in lines.items() if line.scores.size < FEW]
        if few:
            notes.append(f"fewer than {FEW} evaluated seeds in {env}: {'; '.join(few)}")
        if absent := [setup.label for setup in setups if env not in setup.lines]:
            notes.append(f"not run in {env}: {'; '.join(absent)}")
        for label, line in lines.items():
            notes += [f"{state}: {label} in {env}, seed {run.seed}, {run.folder}" for run, state in _open_ends(line)]
    if free := [env for env in envs if env not in targets]:
        notes.append(f"no target score for {'; '.join(free)}: not normalised; give one by --target '{free[0]}=SCORE'")
    if any(line.scores.size < FEW for setup in setups for line in setup.lines.values()):
        notes.append("one seed gives no interval, and that of two says little")
    return notes


def _open_ends(line: Line) -> list[tuple[RunRecord, str]]:
    """Runs that were not evaluated or not finished, and how far they are."""
    found = []
    for run in line.runs:
        steps = run.config.get("steps")
        short = isinstance(steps, int) and run.step < steps
        if short or run.evaluation is None:
            words = ["not evaluated"] * (run.evaluation is None) + [f"{run.step:,} of {steps:,} steps"] * short
            found.append((run, ", ".join(words)))
    return found
