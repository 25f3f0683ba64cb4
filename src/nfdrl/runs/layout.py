"""The names of all files and folders of a run and of a saved agent."""

from __future__ import annotations

import shutil
from pathlib import Path

# A run.
CONFIG = "config.json"  # its settings
METRICS = "metrics.csv"  # one line per report
SUMMARY = "metrics.json"  # how it ended, with the final evaluation
EVALUATIONS = "evaluations.csv"  # one line per evaluation during training
EVALUATION = "evaluation.json"  # a later evaluation, which takes precedence over that one
BEST = "best"  # the agent with the best of these evaluations
CALIBRATION = "calibration"  # the name of the files of `nfdrl evaluate --calibration`
CHECKPOINTS, REPLAY, DIAGNOSTIC, TENSORBOARD = "checkpoints", "replay", "diagnostic", "tensorboard"

# A checkpoint, or an agent saved on its own; its settings are in a CONFIG of their own.
MANIFEST, STATE, WEIGHTS = "manifest.json", "state.json", "weights.safetensors"
SECOND = {CONFIG: "config-2.json", STATE: "state-2.json", WEIGHTS: "weights-2.safetensors"}  # where the first is in use

# The diagnostic of an update that failed.
NUMBERS, TENSORS = "diagnostic.json", "tensors.safetensors"

SEGMENTS = "rows-*.npy"  # of a replay

_CALIBRATIONS = (f"{CALIBRATION}.{kind}" for kind in ("json", "csv", "png", "svg"))
_FILES = (CONFIG, METRICS, SUMMARY, EVALUATION, EVALUATIONS, *_CALIBRATIONS)
_FOLDERS = (CHECKPOINTS, REPLAY, DIAGNOSTIC, TENSORBOARD, BEST)


def holds_run(folder: Path) -> bool:
    """Whether the folder holds a run or a part of one."""
    return any((folder / name).exists() for name in (CONFIG, *_FOLDERS))


def clear(folder: Path) -> None:
    """Remove the files of a run, and no others."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    for name in _FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)


def checkpoint_name(step: int) -> str:
    """The name of the checkpoint at a step; names sort by step.

    >>> checkpoint_name(50_000)
    'step-000000050000'
    """
    return f"step-{step:012d}"


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    return sorted((run / CHECKPOINTS).glob("step-*"), reverse=True)


def locate(path: Path) -> Path:
    """The folder of a saved agent: the path itself, or the newest checkpoint of a run."""
    found = [] if (path / MANIFEST).is_file() else checkpoints(path)
    return found[0] if found else path


def replay_of(saved: Path) -> Path:
    """The replay of a saved agent: inside its folder, or shared by all checkpoints of its run."""
    inner = saved / REPLAY
    return inner if inner.is_dir() else saved.parent.parent / REPLAY
