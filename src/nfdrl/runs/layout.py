"""The names of all files and folders of a run and of a saved agent, and the removal of these and no others."""

from __future__ import annotations

import re
from contextlib import suppress
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
LOCK = ".lock"  # who is writing to it; there only while a process is

# A checkpoint, or an agent saved on its own; its settings are in a CONFIG of their own.
MANIFEST, STATE, WEIGHTS = "manifest.json", "state.json", "weights.safetensors"
SECOND = {CONFIG: "config-2.json", STATE: "state-2.json", WEIGHTS: "weights-2.safetensors"}  # where the first is in use

# The diagnostic of an update that failed.
NUMBERS, TENSORS = "diagnostic.json", "tensors.safetensors"

_CALIBRATIONS = (f"{CALIBRATION}.{kind}" for kind in ("json", "csv", "png", "svg"))
_FILES = (CONFIG, METRICS, SUMMARY, EVALUATION, EVALUATIONS, *_CALIBRATIONS)
_FOLDERS = (CHECKPOINTS, REPLAY, DIAGNOSTIC, TENSORBOARD, BEST)
_SAVED = (MANIFEST, CONFIG, STATE, WEIGHTS, *SECOND.values())
_STEP = re.compile(r"step-\d{12,}")
_UNFINISHED = re.compile(r"\.step-\d{12,}\.(\d+\.tmp|\d+\.old|aside)")  # half written, replaced, or set aside
_SEGMENT = re.compile(r"rows-\d{12,}-[0-9a-f]{8}\.npy")
_EVENTS = re.compile(r"events\.out\.tfevents\..+")
_FRESH = re.compile(rf"\.({'|'.join(map(re.escape, (*_FILES, MANIFEST, NUMBERS, TENSORS)))})\.\d+\.tmp")  # half written


def traces(folder: Path) -> list[str]:
    """Which files and folders of a run or of a saved agent a folder holds."""
    return [name for name in (*_FILES, MANIFEST, *_FOLDERS) if (folder / name).exists() or (folder / name).is_symlink()]


def links(run: Path) -> list[str]:
    """Which of the places that a run adds to are symbolic links."""
    return [name for name in (METRICS, EVALUATIONS, *_FOLDERS) if (run / name).is_symlink()]


def clear(folder: Path) -> None:
    """Remove the files of a run and of a saved agent, and no others; of a symbolic link, the link."""
    for path in _real(folder / CHECKPOINTS):
        if _is_checkpoint(path) or _is_unfinished(path):
            remove_checkpoint(path)
    for inner, names in (
        (REPLAY, _SEGMENT),
        (TENSORBOARD, _EVENTS),
        (DIAGNOSTIC, _named(NUMBERS, TENSORS)),
        (BEST, _named(*_SAVED)),
    ):
        _remove_files(folder / inner, names)
    for inner in _FOLDERS:
        _remove_folder(folder / inner)
    _remove_files(folder, _named(*_FILES, *_SAVED))


def remove_checkpoint(path: Path) -> None:
    """Remove the files of a checkpoint, and its folder unless something else is in it."""
    _remove_files(path, _named(*_SAVED))
    _remove_folder(path)


def unfinished(run: Path) -> list[Path]:
    """Checkpoints that were half written, replaced or set aside."""
    return [path for path in _real(run / CHECKPOINTS) if _is_unfinished(path)]


def segments(folder: Path) -> list[Path]:
    """The segments of a replay."""
    return [path for path in _real(folder) if _SEGMENT.fullmatch(path.name) and path.is_file()]


def segment_name(rows: int, unique: str) -> str:
    """The name of a segment that ends after this many rows.

    >>> segment_name(50_000, "0123abcd")
    'rows-000000050000-0123abcd.npy'
    """
    return f"rows-{rows:012d}-{unique}.npy"


def _named(*names: str) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, names)))


def _real(folder: Path) -> list[Path]:
    """What lies in a folder, without symbolic links; nothing if the folder is missing or a link itself."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if not path.is_symlink()]


def _remove_files(folder: Path, names: re.Pattern[str]) -> None:
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        own = names.fullmatch(path.name) or _FRESH.fullmatch(path.name)
        if own and (path.is_symlink() or path.is_file()):
            path.unlink(missing_ok=True)


def _remove_folder(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
        return
    with suppress(OSError):  # something else is in it, or there is none
        folder.rmdir()


def _is_checkpoint(path: Path) -> bool:
    own = _STEP.fullmatch(path.name) and not path.is_symlink() and path.is_dir()
    return bool(own) and any((path / name).exists() for name in _SAVED)


def _is_unfinished(path: Path) -> bool:
    return bool(_UNFINISHED.fullmatch(path.name)) and not path.is_symlink() and path.is_dir()


def checkpoint_name(step: int) -> str:
    """The name of the checkpoint at a step; names sort by step.

    >>> checkpoint_name(50_000)
    'step-000000050000'
    """
    return f"step-{step:012d}"


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    return sorted((path for path in (run / CHECKPOINTS).glob("step-*") if _is_checkpoint(path)), reverse=True)


def locate(path: Path) -> Path:
    """The folder of a saved agent: the path itself, or the newest checkpoint of a run."""
    found = [] if (path / MANIFEST).is_file() else checkpoints(path)
    return found[0] if found else path


def replay_of(saved: Path) -> Path:
    """The replay of a saved agent: inside its folder, or shared by all checkpoints of its run."""
    inner = saved / REPLAY
    return inner if inner.is_dir() else saved.parent.parent / REPLAY
