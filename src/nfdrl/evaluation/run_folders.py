"""Run folders of `nfdrl train`, read for drawing: settings, the learning curve, the evaluation."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nfdrl.errors import NfdrlError

CONFIG, METRICS, SUMMARY, EVALUATION = "config.json", "metrics.csv", "metrics.json", "evaluation.json"
FRAME_SKIP = 4  # frames an agent step of ALE's v5 environments takes
REPORTED = ("step", "episodes", "episode_return", "steps_per_second")


@dataclass(frozen=True)
class Run:
    """One run; `curve` has a dict of REPORTED for each line of metrics.csv, NaN where a cell is empty."""

    folder: Path
    method: str
    env: str
    seed: int
    curve: list[dict[str, float]]
    evaluation: dict[str, Any] | None
    resumed: list[int]

    @property
    def step(self) -> int:
        """The agent steps that metrics.csv has."""
        return int(self.curve[-1]["step"]) if self.curve else 0

    @property
    def game(self) -> str:
        """The environment's id without its settings."""
        return self.env.partition("[")[0]

    @property
    def frame_skip(self) -> int:
        """Frames of the game in an agent step."""
        set_to = re.search(r"\[.*\bframe_skip=(\d+)", self.env)
        return int(set_to[1]) if set_to else FRAME_SKIP if self.env.startswith("ALE/") else 1

    @property
    def frames(self) -> int:
        """Frames of the game so far, skipped ones included."""
        return self.step * self.frame_skip


def find_runs(folder: Path) -> list[Run]:
    """Every run in `folder` and below, in the order of their paths; none is an error."""
    if not folder.is_dir():
        raise NfdrlError(f"there is no folder {str(folder)!r}")
    found = sorted(path.parent for path in folder.rglob(METRICS) if (path.parent / CONFIG).is_file())
    if not found:
        raise NfdrlError(f"no run in {str(folder)!r}: a run folder has {CONFIG} and {METRICS}")
    return [read_run(path) for path in found]


def read_run(folder: Path) -> Run:
    """A run folder, finished or not; what `nfdrl evaluate --out RUN/evaluation.json` wrote goes before metrics.json."""
    config, summary = _json(folder / CONFIG), _json(folder / SUMMARY, missing={})
    curve = _curve(folder / METRICS)
    try:
        method, env, seed = str(config["method"]["name"]), str(config["env"]), int(config["seed"])
    except (KeyError, TypeError, ValueError) as error:
        raise NfdrlError(f"{folder / CONFIG} is not that of a run: {error!r}") from None
    evaluation = _json(folder / EVALUATION, missing=summary.get("evaluation") or {})
    resumed = resumes(config | summary, curve)
    return Run(folder, method, env, seed, curve, evaluation if "mean" in evaluation else None, resumed)


def resumes(said: Mapping[str, Any], curve: list[dict[str, float]]) -> list[int]:
    """The steps at which a run was gone on with: `resumed` in its files, or where the count of episodes fell."""
    if said.get("resumed"):
        return [int(step) for step in said["resumed"]]
    return [int(before["step"]) for before, after in pairwise(curve) if after["episodes"] < before["episodes"]]


def _json(path: Path, missing: Mapping[str, Any] | None = None) -> dict[str, Any]:
    if missing is not None and not path.is_file():
        return dict(missing)
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise NfdrlError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise NfdrlError(f"{path} cannot be read: it holds no settings")
    return content


def _curve(path: Path) -> list[dict[str, float]]:
    with path.open(newline="", encoding="utf-8") as file:
        try:
            return [{name: float(row[name] or "nan") for name in REPORTED} for row in csv.DictReader(file)]
        except (KeyError, TypeError, ValueError) as error:
            raise NfdrlError(f"{path} is not the metrics of a run: {error!r}") from None
