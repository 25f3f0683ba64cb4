"""Listeners to the training loop: CSV files, TensorBoard, a progress bar."""

from __future__ import annotations

import csv
import io
import math
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nfdrl.errors import NfdrlError
from nfdrl.files import Appender, describing, replace_file
from nfdrl.progress import say
from nfdrl.training.events import Evaluation, Event, Report

WARN_EVERY = 60.0  # seconds between two warnings that a file cannot be written


class Tracker(Protocol):
    """Something that is told of every event, and of the end."""

    def track(self, event: Event) -> None:
        """Take note of an event."""

    def close(self) -> None:
        """Finish: there are no more events."""


class PatientFile:
    """A file without which training continues while there is no room: what is due is written when there is."""

    def __init__(self, file: Appender) -> None:
        self._file = file
        self._warn_at = -math.inf
        self.retry()

    def add(self, piece: bytes) -> None:
        self._file.waiting.append(piece)
        self.retry()

    def flush(self) -> None:
        """Write what is due, or raise."""
        self._file.flush()

    def retry(self) -> None:
        """Write what is due, or warn, but not every time."""
        try:
            self.flush()
        except OSError as error:
            if time.monotonic() < self._warn_at:
                return
            self._warn_at = time.monotonic() + WARN_EVERY
            name, waiting = self._file.path.name, len(self._file.waiting)
            say(
                f"warning: {name} cannot be written ({error.strerror or error}); training continues, and "
                f"{waiting:,} reports wait for room"
            )


class CsvTracker:
    """One line per report; an existing file is continued, after its first `keep` bytes if that is given."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        self._names = [field.name for field in fields(Report)]
        if keep is not None and path.exists():
            os.truncate(path, min(keep, path.stat().st_size))
        if path.exists() and path.stat().st_size:  # an older run has fewer columns
            self._names = _columns(path, self._names)
        self._file = PatientFile(Appender(path, _line(self._names)))

    def track(self, event: Event) -> None:
        if isinstance(event, Report):
            values = asdict(event)
            self._file.add(_line(["" if values[name] is None else values[name] for name in self._names]))

    def sync(self) -> None:
        """Write the lines that wait for room, or raise."""
        self._file.flush()

    def close(self) -> None:
        self._file.retry()


def _columns(path: Path, known: Sequence[str]) -> list[str]:
    """The names in the first line of a file, all of them known."""
    with path.open(newline="", encoding="utf-8") as file, describing("the metrics of a run", path):
        names = next(csv.reader(file), [])
        if "step" not in names or not set(names) <= set(known):
            raise NfdrlError(f"{path} does not hold the metrics of a run: its first line is {','.join(names)!r:.80}")
        return names


def _line(cells: Sequence[object]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


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
        try:
            replace_file(self._path, ("\n".join(lines) + "\n").encode())
        except OSError as error:
            say(f"warning: {self._path.name} cannot be written ({error.strerror or error}); training continues")

    def close(self) -> None:
        self._write()


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
            from tensorboard.compat.proto.event_pb2 import Event as Entry
            from tensorboard.compat.proto.event_pb2 import SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ModuleNotFoundError:
            raise NfdrlError('TensorBoard is not installed: pip install "nfdrl[tensorboard]"') from None
        self._entry, self._summary, self._frame = Entry, Summary, RecordWriter
        first = Entry(wall_time=time.time(), step=start + 1, file_version="brain.Event:2")
        hides = Entry(wall_time=time.time(), step=start + 1, session_log=SessionLog(status=SessionLog.START))
        folder.mkdir(parents=True, exist_ok=True)
        header = self._framed(first) + self._framed(hides)
        self._file = PatientFile(Appender(folder / _event_file(folder), header))

    def track(self, event: Event) -> None:
        numbers = [self._summary.Value(tag=name, simple_value=value) for name, value in scalars(event).items()]
        if numbers:
            entry = self._entry(wall_time=time.time(), step=event.step, summary=self._summary(value=numbers))
            self._file.add(self._framed(entry))

    def close(self) -> None:
        self._file.retry()

    def _framed(self, entry: Any) -> bytes:
        file = io.BytesIO()
        self._frame(file).write(entry.SerializeToString())
        return file.getvalue()


def _event_file(folder: Path) -> str:
    """A name that TensorBoard reads after those that are there, even if the clock was set back."""
    stamps = [path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*")]
    last = max((int(stamp) for stamp in stamps if stamp.isdecimal()), default=0)
    return f"events.out.tfevents.{max(int(time.time()), last + 1):010d}.{socket.gethostname()}.{os.getpid()}.0"


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
        with suppress(OSError):  # standard error may be a file on a full disk
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
