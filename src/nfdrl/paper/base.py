"""The frame of every experiment: compute → rows and data, draw → figure, run → files."""

from __future__ import annotations

import csv
import json
import math
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import matplotlib
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from typing_extensions import Self

from nfdrl.errors import NfdrlError
from nfdrl.provenance import hardware
from nfdrl.style import STYLE

T = TypeVar("T")
Row = dict[str, Any]

DPI = 150
SAMPLES = 128  # base points of the flows that learn here: twice the default, since a figure is learned once
ROW_KEYS = ("method", "state", "action")


@dataclass(frozen=True)
class Result:
    """What an experiment found: `rows` go to metrics.json, `data` only to its drawing.

    A table of `tables` becomes NAME.csv; the terminal shows the tables where there are some, and the rows otherwise.
    """

    rows: list[Row]
    data: Any = None
    tables: dict[str, list[Row]] = field(default_factory=dict)


class NoRunsError(NfdrlError):
    """An experiment that only draws runs found none."""


class Progress:
    """Progress bars on a terminal, and silence elsewhere.

    >>> with Progress(enabled=False) as progress:
    ...     sum(progress.track(range(4), "adding"))
    6
    """

    def __init__(self, enabled: bool | None = None, console: Console | None = None) -> None:
        """`enabled` None asks the console whether it is a terminal."""
        self.console = console or Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        shown = self.console.is_terminal if enabled is None else enabled
        self._bars = Bars(*columns, console=self.console, disable=not shown, transient=True)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Yield `items`, one step of a bar for each."""
        task = self.task(description, total if total is not None else _length(items))
        for item in items:
            yield item
            task.update()
        task.close()

    def task(self, description: str, total: int | None = None) -> Task:
        """A bar of its own for a loop that does not iterate: call `.update()`."""
        return Task(self._bars, description, total)


class Task:
    """One bar of a Progress."""

    def __init__(self, bars: Bars, description: str, total: int | None) -> None:
        self._bars = bars
        self._id = bars.add_task(description, total=total)

    def update(self, advance: float = 1, description: str | None = None) -> None:
        """Move the bar on, and say something else beside it where `description` is given."""
        self._bars.update(self._id, advance=advance, description=description)

    def close(self) -> None:
        """Take the bar away."""
        self._bars.remove_task(self._id)


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper: how its numbers are computed and how they are drawn.

    `compute(seed, smoke, progress)` must depend on its arguments alone; `smoke` asks for the smallest run that goes
    through the same code. One that `reads_runs` takes a folder of them as well, or None.
    """

    name: str
    title: str
    shows: str
    compute: Callable[..., Result]
    draw: Callable[[Result], Figure]
    reads_runs: bool = False


def run_experiment(
    experiment: Experiment,
    seed: int,
    smoke: bool,
    out: Path | str,
    progress: Progress | None = None,
    runs: Path | None = None,
) -> dict[str, Any]:
    """Compute and draw; write figure.png, figure.svg, metrics.json and tables; return what metrics.json says.

    Everything is written beside `out` first and moved in last, so that a run that fails leaves `out` as it was.
    """
    if runs is not None and not experiment.reads_runs:
        raise NfdrlError(f"experiment {experiment.name!r} reads no runs: leave --runs out")
    extra = {"runs": runs} if experiment.reads_runs else {}
    folder = Path(out)
    with _staging(folder) as staged:
        begun = time.perf_counter()
        with progress or Progress() as bars:
            result = experiment.compute(seed, smoke, bars, **extra)
        with matplotlib.rc_context(STYLE):
            figure = experiment.draw(result)
            figure.savefig(staged / "figure.png", dpi=DPI)
            figure.savefig(staged / "figure.svg", metadata={"Date": None})
        metrics: dict[str, Any] = {
            "experiment": experiment.name,
            "seed": seed,
            "smoke": smoke,
            "version": version("nfdrl"),
            "seconds": round(time.perf_counter() - begun, 3),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": _command(experiment.name, seed, smoke, folder, runs),
            "hardware": hardware(),
            "rows": [plain_row(row) for row in result.rows],
        }
        for name, table in result.tables.items():
            write_table(staged / f"{name}.csv", table)
            metrics.setdefault("tables", {})[name] = _plain(table)
        (staged / "metrics.json").write_text(json.dumps(metrics, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return metrics


class _staging:
    """A temporary folder beside `out`, whose files move into `out` when nothing has failed."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def __enter__(self) -> Path:
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self.folder = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=self.out))
        except OSError as error:
            raise NfdrlError(f"cannot write to {str(self.out)!r}: {error.strerror or error}") from None
        return self.folder

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for file in sorted(self.folder.iterdir()):
                    os.replace(file, self.out / file.name)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of the same keys as CSV; None is an empty cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(_plain(row) for row in rows)


def plain_row(row: Mapping[str, Any]) -> Row:
    """A row with every key of ROW_KEYS and values that JSON knows; NaN and infinity become null.

    >>> import torch
    >>> plain_row({"method": "c51", "std": torch.tensor(0.5)})
    {'method': 'c51', 'state': None, 'action': None, 'std': 0.5}
    """
    return dict.fromkeys(ROW_KEYS) | {key: _plain(value) for key, value in row.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # tensors, arrays and NumPy's scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _command(name: str, seed: int, smoke: bool, out: Path, runs: Path | None) -> str:
    words = ["nfdrl", "paper", name, "--seed", str(seed), "--out", str(out), *(["--smoke"] if smoke else [])]
    return shlex.join([*words, *([] if runs is None else ["--runs", str(runs)])])


def _length(items: Iterable[Any]) -> int | None:
    return len(items) if isinstance(items, Sized) else None
