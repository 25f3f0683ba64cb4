"""What a sweep shows while it runs, and the table that it leaves."""

from __future__ import annotations

import csv
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, final

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text
from typing_extensions import Self

from nfdrl.evaluation.comparison import DISTANCES
from nfdrl.reports import Row, write_report
from nfdrl.runs.layout import LOCK, METRICS
from nfdrl.sweeps.trial import Trial, TruthTrial

LOOK = 5.0  # seconds between two looks into the folders of running trials
WRITE = 10.0  # seconds between two versions of the table
TAIL = 2048  # bytes from the end of metrics.csv that hold its last line
SHOWN = 20  # running trials; more are only counted


@dataclass(frozen=True)
class Glimpse:
    """The last line of a run's metrics."""

    step: int
    speed: float
    episode_return: float | None


def glimpse(folder: Path) -> Glimpse | None:
    """How far a run is; None before its first report."""
    try:
        with (folder / METRICS).open("rb") as file:
            names = file.readline().decode().strip().split(",")
            file.seek(max(file.tell(), file.seek(0, 2) - TAIL))
            lines = file.read().decode(errors="replace").split("\n")[:-1]  # the last one may be half written
        row = dict(zip(names, next(csv.reader(lines[-1:])), strict=True))
        score = row["episode_return"]
        return Glimpse(int(row["step"]), float(row["steps_per_second"]), float(score) if score else None)
    except (OSError, ValueError, KeyError, StopIteration, csv.Error):
        return None


class LiveBoard(ABC):
    """A table that is shown while something runs, on a terminal only."""

    def __init__(self, console: Console, *, by_itself: bool) -> None:
        """Refreshed once per second by a thread, or by `refresh` alone."""
        self.console, self._by_itself = console, by_itself
        self._live: Live | None = None

    @abstractmethod
    def _shown(self) -> Group:
        """The table as it now stands."""

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            often: dict[str, Any] = {"auto_refresh": self._by_itself, "refresh_per_second": 1}
            self._live = Live(console=self.console, get_renderable=self._shown, transient=True, **often)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def refresh(self) -> None:
        """Show the table as it now stands."""
        if self._live is not None:
            self._live.refresh()

    def close(self) -> None:
        """Show it no more."""
        if self._live is not None:
            self._live.stop()


@final
class Board(LiveBoard):
    """How a sweep stands: live on a terminal, a line per ended trial elsewhere; and `sweep.csv`, `sweep.json`."""

    def __init__(self, trials: Sequence[Trial], out: Path, made_by: Mapping[str, Any], console: Console) -> None:
        super().__init__(console, by_itself=False)
        self.trials, self.out = trials, out
        self.outcomes: dict[str, dict[str, Any]] = {}
        self._made_by, self._begun = made_by, time.time()
        self._glimpses: dict[str, Glimpse | None] = {}  # of running trials
        self._most = 1  # trials at once
        self._looked = self._written = 0.0

    def close(self) -> None:
        super().close()
        self.write()

    @property
    def failed(self) -> list[Trial]:
        return [trial for trial in self.trials if "error" in self.outcomes.get(trial.name, {})]

    @property
    def done(self) -> int:
        return len(self.outcomes) - len(self.failed)

    def end(self, trial: Trial, outcome: dict[str, Any], *, earlier: bool = False) -> None:
        """A trial has ended, now or in an earlier session."""
        self.outcomes[trial.name] = outcome
        self._glimpses.pop(trial.name, None)
        if not earlier:
            left = "" if (seconds := self.seconds_left()) is None else f"; about {duration(seconds)} left"
            text = f"{len(self.outcomes)}/{len(self.trials)} {trial.name}: {said(outcome)}{left}"
            self.console.print(Text(text, style="red" if "error" in outcome else ""), soft_wrap=True)

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            self._look()
        if now - self._written >= WRITE:
            try:
                self.write()
            except OSError as error:  # a full disk, perhaps: trials wait for room, and so does the table
                self.console.print(
                    f"warning: the table cannot be written ({error.strerror or error}); it is tried again",
                    markup=False,
                    soft_wrap=True,
                )
        self.refresh()

    def _look(self) -> None:
        """Find the running trials, by their locks, and see how far they are."""
        self._glimpses = {}
        for trial in self.trials:
            folder = self.out / trial.name
            with suppress(OSError):  # no lock: it waits
                if trial.name not in self.outcomes and (folder / LOCK).stat().st_mtime >= self._begun - LOOK:
                    self._glimpses[trial.name] = glimpse(folder)
        self._most = max(self._most, len(self._glimpses))

    def seconds_left(self) -> float | None:
        """What is left, at the speed of each cell so far; a cell without one is as fast as the others on average.

        None if nothing is left, or no speed is known.
        """
        pace: dict[tuple[object, ...], float] = {}  # seconds per step
        for trial in self.trials:
            result = self.outcomes.get(trial.name, {}).get("result")
            if result and result["seconds"]:
                pace[trial.cell] = result["seconds"] / trial.work
            elif (seen := self._glimpses.get(trial.name)) and seen.speed:
                pace.setdefault(trial.cell, 1 / seen.speed)
        if not pace:
            return None
        usual, left = sum(pace.values()) / len(pace), []
        for trial in self.trials:
            if trial.name not in self.outcomes:
                seen = self._glimpses.get(trial.name)
                left.append(pace.get(trial.cell, usual) * (trial.work - (seen.step if seen else 0)))
        return max(sum(left) / self._most, max(left)) if left else None

    def _shown(self) -> Group:
        running, left = self._glimpses, self.seconds_left()
        waiting = len(self.trials) - len(self.outcomes) - len(running)
        counts = f"{self.done} done, {len(running)} running, {waiting} waiting, {len(self.failed)} failed"
        name = Column("trial", overflow="fold")  # a name without its end would be that of another trial, too
        table = Table(name, "step", "steps/s", "return", "left", box=None, pad_edge=False, show_header=bool(running))
        for trial in [trial for trial in self.trials if trial.name in running][:SHOWN]:
            seen = running[trial.name]
            cells = ["", "", "", ""]
            if seen is not None:
                score = "" if seen.episode_return is None else f"{seen.episode_return:.4g}"
                rest = duration((trial.work - seen.step) / seen.speed) if seen.speed else ""
                cells = [f"{seen.step:,} of {trial.work:,}", f"{seen.speed:,.0f}", score, rest]
            table.add_row(escape(trial.name), *cells)
        about = "" if left is None else f"; about {duration(left)} left"
        return Group(Text(f"{counts}{about}", style="bold"), table)

    def rows(self) -> list[Row]:
        """A row per trial."""
        keys = list(dict.fromkeys(name for trial in self.trials for name, _ in trial.varied))
        truth = isinstance(self.trials[0], TruthTrial)
        numbers = (*DISTANCES, "updates", "seconds") if truth else ("mean", "std", "episodes", "steps", "seconds")
        rows = []
        for trial in self.trials:
            outcome = self.outcomes.get(trial.name, {})
            status = "done" if "result" in outcome else "failed" if outcome else "unfinished"
            row: Row = {"trial": trial.name, "method": trial.method, "env": trial.env, "seed": trial.seed}
            row |= {name: dict(trial.varied).get(name) for name in keys} | {"status": status}
            row |= {name: outcome.get("result", {}).get(name) for name in numbers}
            rows.append(row | {"error": outcome.get("error")})
        return rows

    def write(self) -> None:
        """Write the table as it now stands."""
        self._written = time.monotonic()
        rows = self.rows()
        write_report(self.out, {**self._made_by, "trials": rows}, tables={"sweep": rows}, name="sweep")

    def summary(self) -> Table:
        """A line per cell: its seeds, and their results."""
        cells: dict[tuple[object, ...], list[Row]] = defaultdict(list)
        for trial, row in zip(self.trials, self.rows(), strict=True):
            cells[trial.cell].append(row)
        key = "cramer" if "cramer" in self.rows()[0] else "mean"
        table = Table("environment", "method", "settings", "seeds", "cramer" if key == "cramer" else "mean return", "s")
        for (method, env, varied), rows in cells.items():
            values = [row[key] for row in rows if row[key] is not None]
            done = [row for row in rows if row["status"] == "done"]
            failed = sum(row["status"] == "failed" for row in rows)
            seeds = f"{len(done)} of {len(rows)}" + (f", {failed} failed" if failed else "")
            mean = "" if not values else f"{sum(values) / len(values):.4g} ({min(values):.4g} to {max(values):.4g})"
            spent = f"{sum(row['seconds'] for row in done) / len(done):,.0f}" if done else ""
            words = ", ".join(f"{name}={text}" for name, text in varied)  # type: ignore[attr-defined]
            table.add_row(*map(escape, (str(env), str(method), words, seeds, mean, spent)))
        return table


def said(outcome: Mapping[str, Any]) -> str:
    """How a trial ended, in a line."""
    if "error" in outcome:
        return f"failed: {outcome['error']}"
    result = outcome["result"]
    if "cramer" in result:
        return f"Cramér distance {result['cramer']:.4g} in {duration(result['seconds'])}"
    score = "done" if result["mean"] is None else f"return {result['mean']:.4g} ± {result['std']:.3g}"
    return f"{score} in {duration(result['seconds'])}"


def duration(seconds: float) -> str:
    """A time in its two largest units.

    >>> duration(42), duration(200), duration(9_000), duration(200_000)
    ('42 s', '3 min 20 s', '2 h 30 min', '2 d 7 h')
    """
    whole = round(seconds)
    for size, name, inner, inner_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // inner} {inner_name}"
    return f"{whole} s"
