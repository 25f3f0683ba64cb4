"""Runs read back for tables and figures: settings, the learning curve, the evaluation."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nfdrl.errors import MOST_STEPS, NfdrlError
from nfdrl.files import describing, read_json
from nfdrl.runs.layout import CONFIG, EVALUATION, MANIFEST, METRICS, SUMMARY

FRAME_SKIP = 4  # frames per agent step of ALE's v5 environments
FAILED = "failed.json"  # of a trial of `nfdrl sweep` that raised an error
REPORTED = ("step", "episodes", "episode_return", "steps_per_second")
ALSO = ("dormant",)  # not in the metrics of old runs


@dataclass(frozen=True)
class RunRecord:
    """What a run left; `curve` has a dict of REPORTED and ALSO per line of metrics.csv, NaN where a cell is empty."""

    folder: Path
    method: str
    env: str
    seed: int
    curve: list[dict[str, float]]
    evaluation: dict[str, Any] | None
    resumed: list[int]
    config: dict[str, Any]

    @property
    def seconds(self) -> float:
        """The time that training took, all resumes included: that of every line of metrics.csv."""
        total, before = 0.0, 0.0
        for line in self.curve:
            step, speed = line["step"], line["steps_per_second"]
            begun = max([before, *(at for at in self.resumed if at < step)])
            total += (step - begun) / speed if speed > 0 else 0.0
            before = step
        return total

    @property
    def step(self) -> int:
        """The last agent step in metrics.csv."""
        return int(self.curve[-1]["step"]) if self.curve else 0

    def last(self, name: str) -> float | None:
        """The last number in a column of metrics.csv."""
        return next((line[name] for line in reversed(self.curve) if not math.isnan(line[name])), None)

    @property
    def game(self) -> str:
        return self.env.partition("[")[0]

    @property
    def frame_skip(self) -> int:
        """Frames of the game per agent step."""
        set_to = re.search(r"\[.*\bframe_skip=(\d+)", self.env)
        return int(set_to[1]) if set_to else FRAME_SKIP if self.env.startswith("ALE/") else 1

    @property
    def frames(self) -> int:
        """Frames of the game so far, skipped ones included."""
        return self.step * self.frame_skip


def find_runs(folder: Path) -> list[RunRecord]:
    """Every run in `folder` and below, ordered by path; finding none is an error."""
    if not folder.is_dir():
        raise NfdrlError(f"there is no folder {str(folder)!r}")
    found = sorted(path.parent for path in folder.rglob(METRICS) if (path.parent / CONFIG).is_file())
    if not found:
        raise NfdrlError(f"no run in {str(folder)!r}: a run folder has {CONFIG} and {METRICS}")
    return [read_run(path) for path in found]


def unmeasured(folder: Path) -> list[str]:
    """What `find_runs` cannot show, in words: trials of a sweep that failed, and runs without a line of metrics."""
    failed = {path.parent: f"failed: {path.parent}: {read_json(path).get('error')}" for path in folder.rglob(FAILED)}
    begun = {
        path.parent: f"begun, and nothing measured yet: {path.parent}"
        for path in folder.rglob(CONFIG)
        if not any((path.parent / name).exists() for name in (METRICS, MANIFEST))
    }
    return [words for _, words in sorted((begun | failed).items())]


def read_run(folder: Path) -> RunRecord:
    """A run, finished or not; a later evaluation in evaluation.json takes precedence over that in metrics.json."""
    config, summary = read_json(folder / CONFIG), _if_there(folder / SUMMARY)
    curve = _curve(folder / METRICS)
    with describing("a run", folder / CONFIG):
        method, env, seed = str(config["method"]["name"]), str(config["env"]), int(config["seed"])
    later = _if_there(folder / EVALUATION)
    evaluation = _evaluation(later or summary.get("evaluation"), folder / (EVALUATION if later else SUMMARY))
    with describing("a run", folder):
        resumed = resumes(config | summary, curve)
    return RunRecord(folder, method, env, seed, curve, evaluation, resumed, config)


def _evaluation(found: Any, path: Path) -> dict[str, Any] | None:
    """An evaluation with its mean, its standard deviation and all returns; None if there is none."""
    if found is None or (isinstance(found, dict) and "mean" not in found):
        return None
    numbers = [found.get("mean"), found.get("std", 0.0)] if isinstance(found, dict) else [None]
    returns = found.get("returns", []) if isinstance(found, dict) else None
    if not isinstance(returns, list) or not all(type(number) in (int, float) for number in [*numbers, *returns]):
        raise NfdrlError(f"{path} does not describe an evaluation: {found!r:.80}")
    return dict(found)


def resumes(said: Mapping[str, Any], curve: list[dict[str, float]]) -> list[int]:
    """The steps at which a run was resumed: `resumed` in its files, or where the count of episodes fell."""
    if said.get("resumed"):
        return [int(step) for step in said["resumed"]]
    return [int(before["step"]) for before, after in pairwise(curve) if after["episodes"] < before["episodes"]]


def _if_there(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _curve(path: Path) -> list[dict[str, float]]:
    with path.open(newline="", encoding="utf-8") as file, describing("the metrics of a run", path):
        rows = [dict.fromkeys(ALSO) | row for row in csv.DictReader(file)]
        lines = [{name: float(row[name] or "nan") for name in (*REPORTED, *ALSO)} for row in rows]
        for line in lines:
            if not 0 <= line["step"] <= MOST_STEPS:
                raise ValueError(f"the step of a line is {line['step']}")
        return lines
