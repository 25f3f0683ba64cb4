"""What experiments, comparisons, benchmarks and reports write: numbers with their provenance, tables, figures."""

from __future__ import annotations

import csv
import io
import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfdrl.errors import NfdrlError
from nfdrl.files import ODD, read_json, replace_file, to_json
from nfdrl.provenance import hardware

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
DPI = 150
OWN = {"version", "date", "command"}  # that every report says of itself
ROW_KEYS = ("method", "state", "action")


def provenance(command: str | None, seconds: float | None = None) -> dict[str, Any]:
    """How a number was made: version, date, command, machine, and the time it took."""
    return {
        "version": version("nfdrl"),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command,
        "hardware": hardware(),
        **({} if seconds is None else {"seconds": round(seconds, 3)}),
    }


def command_of(verb: str, settings: Any) -> str:
    """The command line of a verb with these settings: positional ones first, then those that differ from the default.

    >>> from dataclasses import make_dataclass
    >>> paper = make_dataclass("Paper", [("name", str), ("seed", int, 0), ("smoke", bool, False), ("full", bool, True)])
    >>> command_of("paper", paper("theory", 1, True, False))
    'nfdrl paper theory --seed 1 --smoke --no-full'
    """
    words = ["nfdrl", verb]
    for field in sorted(fields(settings), key=lambda field: field.default is not MISSING):
        value, flag = getattr(settings, field.name), field.name.replace("_", "-")
        if field.default is MISSING:
            words += map(str, value if isinstance(value, tuple) else [value])
        elif value == field.default:
            continue
        elif isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, tuple) else [value])]
    return shlex.join(words)


def check_own(out: Path, name: str = "metrics", files: Sequence[str] = ("figure.png", "figure.svg")) -> None:
    """Refuse a folder whose NAME.json or other files no report wrote: those of a run, or somebody's own."""
    path = out / f"{name}.json"
    try:
        ours = read_json(path).keys() >= OWN
    except NfdrlError:  # missing, or none of ours
        ours = False
    found = [] if ours else [file for file in (path.name, f"{name}.csv", *files) if os.path.lexists(out / file)]
    if found:
        raise NfdrlError(
            f"{str(out)!r} holds a {found[0]!r} that no such command wrote: move it, or name another folder"
        )


def write_report(
    out: Path,
    metrics: Mapping[str, Any],
    *,
    tables: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    draw: Callable[[], Figure] | None = None,
    figure: str = "figure",
    name: str = "metrics",
    figures: Mapping[str, Callable[[], Figure]] | None = None,
    texts: Mapping[str, str] | None = None,
) -> list[str]:
    """Write NAME.json, a CSV file per table, all figures as PNG and SVG, and texts; returns the names of the files.

    Everything is made before anything is written, so that a failure leaves `out` as it was.
    """
    drawn = {**({} if draw is None else {figure: draw}), **(figures or {})}
    files = {f"{name}.json": to_json(plain(metrics))}  # first: it tells whose the others are
    files |= {file: content for stem, made in drawn.items() for file, content in _images(made, stem).items()}
    files |= {f"{table}.csv": _csv(rows) for table, rows in (tables or {}).items()}
    files |= {file: text.encode(errors=ODD) for file, text in (texts or {}).items()}
    out.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        replace_file(out / file, content)
    return list(files)


def _images(draw: Callable[[], Figure], name: str) -> dict[str, bytes]:
    import matplotlib  # it takes a second to import: not for `--help`

    from nfdrl.style import STYLE

    png, svg = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context(STYLE):
        made = draw()
        made.savefig(png, format="png", dpi=DPI)
        made.savefig(svg, format="svg", metadata={"Date": None})
    return {f"{name}.png": png.getvalue(), f"{name}.svg": svg.getvalue()}


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """One line per row; None is an empty cell, lists are left out."""
    names = [key for key, value in rows[0].items() if not isinstance(value, list)]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(plain(row) for row in rows)
    return text.getvalue().encode(errors=ODD)


def plain_row(row: Mapping[str, Any]) -> Row:
    """A row with every key of ROW_KEYS and values that JSON has; NaN and infinity become null.

    >>> import torch
    >>> plain_row({"method": "c51", "std": torch.tensor(0.5)})
    {'method': 'c51', 'state': None, 'action': None, 'std': 0.5}
    """
    return dict.fromkeys(ROW_KEYS) | {key: plain(value) for key, value in row.items()}


def plain(value: Any) -> Any:
    """The value in types that JSON has; NaN and infinity become null."""
    if hasattr(value, "tolist"):  # tensors, arrays and NumPy's scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
