"""Listeners to the training loop: CSV files, TensorBoard, a progress bar."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nfdrl.errors import NfdrlError
from nfdrl.files import describing, replace_file
from nfdrl.training.events import Evaluation, Event, Report


class Tracker(Protocol):
    """Something that is told of every event, and of the end."""

    def track(self, event: Event) -> None:
        """Take note of an event."""

    def close(self) -> None:
        """Finish: there are no more events."""


class CsvTracker:
    """One line per report; an existing file is continued, after its first `keep` bytes if that is given."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        names = [field.name for field in fields(Report)]
        if keep is not None and path.exists():
            os.truncate(path, min(keep, path.stat().st_size))
        new = not path.exists() or not path.stat().st_size
        if not new:  # an older run has fewer columns
            with path.open(newline="", encoding="utf-8") as file:
                names = next(csv.reader(file))
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, names, extrasaction="ignore")
        if new:
            self._writer.writeheader()
            self._file.flush()

    def track(self, event: Event) -> None:
        if isinstance(event, Report):
            self._writer.writerow({name: "" if value is None else value for name, value in asdict(event).items()})
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class EvaluationsTracker:
    """One line per evaluation; of an existing file, the lines up to a step are kept."""

    def __init__(self, path: Path, step: int) -> None:
        self._path, self._kept = path, read_evaluations(path, step)
        self._write()

    def track(self, event: Event) -> None:
        if isinstance(event, Evaluation):
            self._kept.append(event)
            self._write()

    def _write(self) -> None:
        """Replace the whole file, which is short, so that it never has half a line."""
        names = [field.name for field in fields(Evaluation)]
        lines = [",".join(names), *(",".join(str(getattr(row, name)) for name in names) for row in self._kept)]
        replace_file(self._path, ("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        """Everything is written."""


def read_evaluations(path: Path, step: int | None = None) -> list[Evaluation]:
    """The evaluations in a file, up to a step."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file, describing("evaluations", path):
        rows = [_evaluation(row) for row in csv.DictReader(file)]
    return [row for row in rows if step is None or row.step <= step]


def _evaluation(row: Mapping[str, str]) -> Evaluation:
    mean, std, least, most, length = (float(row[name]) for name in ("mean", "std", "least", "most", "length"))
    return Evaluation(int(row["step"]), int(row["episodes"]), mean, std, least, most, length, row["best"] == "True")


def scalars(event: Event) -> dict[str, float]:
    """The numbers of a report or an evaluation by the names that dashboards show."""
    if not isinstance(event, Report | Evaluation):
        return {}
    place = "train" if isinstance(event, Report) else "evaluate"
    numbers = {name: value for name, value in asdict(event).items() if name != "step" and value is not None}
    return {f"{place}/{name}": value for name, value in numbers.items()}


class TensorBoardTracker:
    """Scalars for TensorBoard; those that an earlier session wrote after step `start` are hidden."""

    def __init__(self, folder: Path, start: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError:
            raise NfdrlError('TensorBoard is not installed: pip install "nfdrl[tensorboard]"') from None
        self._writer: Any = SummaryWriter(str(folder), purge_step=start + 1 if start else None)

    def track(self, event: Event) -> None:
        for name, value in scalars(event).items():
            self._writer.add_scalar(name, value, event.step)

    def close(self) -> None:
        self._writer.close()


class ProgressTracker:
    """A bar with speed, return, loss, the last evaluation and the time left."""

    def __init__(self, total: int, done: int = 0, console: Console | None = None) -> None:
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=total, completed=done, numbers="warming up")
        self._evaluated = ""
        self._bar.start()

    def track(self, event: Event) -> None:
        if isinstance(event, Evaluation):
            self._evaluated = f"  evaluation {event.mean:.4g}"
        if isinstance(event, Report):
            self._bar.update(self._task, completed=event.step, numbers=_numbers(event) + self._evaluated)

    def close(self) -> None:
        self._bar.stop()


def _numbers(report: Report) -> str:
    parts = [f"{report.steps_per_second:,.0f} steps/s"]
    if report.episode_return is not None:
        parts.append(f"return {report.episode_return:.4g}")
    if report.loss is not None:
        parts.append(f"loss {report.loss:.3g}")
    return "  ".join(parts)


def tracked(events: Iterable[Event], trackers: Iterable[Tracker]) -> Iterator[Event]:
    """The same events, each after all trackers were told; trackers are closed at the end, even after an error."""
    with ExitStack() as stack:
        listening = list(trackers)
        for tracker in listening:
            stack.callback(tracker.close)
        for event in events:
            for tracker in listening:
                tracker.track(event)
            yield event
