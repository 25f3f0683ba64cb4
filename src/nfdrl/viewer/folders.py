"""The runs and figures of a folder: found by looking, named by ids that are no paths."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdrl.colours import BLACK
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.lines import settings_of
from nfdrl.files import ODD, describing, read_json
from nfdrl.laws import METHODS
from nfdrl.runs import layout
from nfdrl.viewer.messages import pack
from nfdrl.viewer.schema import Curve, Figure, RunCard

MOST_BYTES = 64 << 20  # of one metrics.csv
MOST_FIGURES = 200
IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class FoundRun:
    """A run or a saved agent, and its card."""

    folder: Path
    card: RunCard

    def dormant(self) -> float | None:
        """The share of units at zero in the last line of metrics that says so."""
        columns, _ = _columns(self.folder / layout.METRICS, 0)
        known = [value for value in columns.get("dormant", ()) if not math.isnan(value)]
        return float(known[-1]) if known else None


@dataclass(frozen=True)
class FoundFigure:
    """A figure's file, and its card without the picture."""

    path: Path
    card: Figure


def identifier(path: Path) -> str:
    """A short name for a path that says nothing about it and leads nowhere."""
    return _short(str(path.resolve()))


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(errors=ODD), digest_size=6).hexdigest()


def find_run(folder: Path, root: Path | None = None) -> FoundRun:
    """The run or the saved agent in a folder; its name is its path below `root`."""
    saved = layout.locate(folder)
    playable = (saved / layout.MANIFEST).is_file()
    path = folder / layout.CONFIG
    if not path.is_file():
        path = saved / layout.CONFIG
    if not path.is_file():
        raise NfdrlError(f"no run in {str(folder)!r}: it has neither {layout.CONFIG} nor a checkpoint")
    config = read_json(path)
    name = folder.name if root is None or folder == root else str(folder.relative_to(root))
    with describing("a run", path):
        method, env, seed = str(config["method"]["name"]), str(config["env"]), int(config["seed"])
        setting = _short(json.dumps([method, env, *settings_of(config)], sort_keys=True))
    known = METHODS.get(method)
    label, colour = (method, BLACK) if known is None else (known.label, known.colour)
    newest = saved.name if playable and saved != folder else None
    card = RunCard(identifier(folder), name or folder.name, method, label, colour, env, seed, setting, playable, newest)
    return FoundRun(folder, card)


def find_runs(root: Path) -> dict[str, FoundRun]:
    """The run in this folder, or all runs below it, by id; those that cannot be read are left out."""
    if not root.is_dir():
        raise NfdrlError(f"there is no folder {str(root)!r}")
    found: dict[str, FoundRun] = {}
    for folder in sorted(_run_folders(root)):
        try:
            run = find_run(folder, root)
        except NfdrlError:
            continue
        found[run.card.id] = run
    return found


def _run_folders(folder: Path) -> Iterator[Path]:
    """Folders with a run or a saved agent; what lies inside a run is part of it."""
    inside = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    if layout.CONFIG in inside or layout.MANIFEST in inside:
        yield folder
        return
    for path in inside.values():
        if path.is_dir() and not path.is_symlink():
            yield from _run_folders(path)


def read_curve(run: FoundRun, offset: int = 0) -> Curve | None:
    """The rows of a run's metrics after `offset` bytes, or all of them if the file was cut; None if there are none."""
    path = run.folder / layout.METRICS
    size = path.stat().st_size if path.is_file() else 0
    fresh = offset <= 0 or size < offset
    columns, end = _columns(path, 0 if fresh else offset)
    if not columns:
        return None
    return Curve(run.card.id, {name: pack(values) for name, values in columns.items()}, end, fresh)


def _columns(path: Path, offset: int) -> tuple[dict[str, NDArray[np.float64]], int]:
    """The columns of all whole lines after `offset` bytes, NaN where a cell is no number, and where those lines end."""
    if not path.is_file():
        return {}, 0
    with path.open("rb") as file:
        header = file.readline()
        file.seek(max(offset, len(header)))
        text = file.read(MOST_BYTES)
    whole = text[: text.rfind(b"\n") + 1]
    try:
        (names,) = csv.reader([header.decode("utf-8", "replace")])
        table = _table(whole, len(names))
    except (ValueError, csv.Error):  # not even a header yet, or not a table
        return {}, 0
    numbers = dict(zip(names, table.T, strict=True)) if len(table) else {}
    return numbers, max(offset, len(header)) + len(whole)


def _table(text: bytes, width: int) -> NDArray[np.float64]:
    """The numbers in lines of cells, one line per row: at once where all are numbers, cell by cell otherwise."""
    if not text.strip():
        return np.empty((0, width))
    with suppress(ValueError):
        found = np.loadtxt(io.BytesIO(text), delimiter=",", comments=None, ndmin=2)
        if found.shape[1] == width:
            return found
    rows = csv.reader(io.StringIO(text.decode("utf-8", "replace"), newline=""))
    columns = zip(*(row for row in rows if len(row) == width), strict=True)
    return np.array([_numbers(column) for column in columns]).reshape(width, -1).T


def _numbers(cells: Sequence[str]) -> list[float]:
    try:
        return [float(cell or "nan") for cell in cells]
    except ValueError:  # a column of words
        return [math.nan] * len(cells)


def find_figures(root: Path) -> dict[str, FoundFigure]:
    """Figures below a folder, each next to the metrics.json that says by which command it was made; newest last."""
    found: dict[str, FoundFigure] = {}
    for path in sorted(root.rglob(layout.SUMMARY))[:MOST_FIGURES] if root.is_dir() else ():
        picture = next((p for name in ("figure", "curves") for p in _pictures(path.parent, name)), None)
        if picture is None:
            continue
        try:
            made_by = read_json(path)
        except NfdrlError:
            continue
        title, command, date = (_word(made_by, *names) for names in (("experiment", "bench"), ("command",), ("date",)))
        card = Figure(identifier(picture), title or path.parent.name, command, date, "")
        found[card.id] = FoundFigure(picture, card)
    return found


def _pictures(folder: Path, name: str) -> list[Path]:
    return [folder / f"{name}{suffix}" for suffix in (".png", ".svg") if (folder / f"{name}{suffix}").is_file()]


def _word(content: dict[str, Any], *names: str) -> str:
    return next((str(content[name]) for name in names if content.get(name)), "")
