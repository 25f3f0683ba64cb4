"""What a tuning shows while it runs, and what it leaves: the best setting as a preset, a table and a figure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nfdrl.reports import Row, write_report
from nfdrl.settings import words_of
from nfdrl.sweeps.board import LiveBoard, duration, glimpse
from nfdrl.sweeps.spec import listed
from nfdrl.sweeps.tuning_spec import Settings, TuneSpec
from nfdrl.sweeps.tuning_trial import Record, folder_of
from nfdrl.training.presets import PresetFile, write_preset

BEST = "best.toml"  # the preset of the best trial
SHOWN = 12  # lines of the live table


def best_of(spec: TuneSpec, records: Sequence[Record]) -> Record | None:
    """The best trial among those that trained with every seed to the end; the first of equal ones."""
    best: Record | None = None
    for record in records:
        if record.status == "finished" and (best is None or spec.aim.better(_last(spec, record), _last(spec, best))):
            best = record
    return best


def _last(spec: TuneSpec, record: Record) -> float:
    return record.progress(spec.steps)[-1][1]


def preset_of(spec: TuneSpec, settings: Settings) -> PresetFile:
    """A preset with these settings, from which `nfdrl train` makes the runs of the trial."""
    base = spec.base()
    return PresetFile({**base.set, **settings}, base.preset, base.method, spec.steps)


def said_of(settings: Settings) -> str:
    """Settings in a line; numbers are shortened.

    >>> said_of({"learning_rate": 0.00123456, "torso.mlp": [64, 64]})
    'learning_rate=0.001235 torso.mlp=(64, 64)'
    """
    short = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in settings.items()}
    return " ".join(words_of(short))


@final
class TuneBoard(LiveBoard):
    """How a tuning stands: live on a terminal, a line per ended trial elsewhere."""

    def __init__(self, spec: TuneSpec, out: Path, console: Console) -> None:
        super().__init__(console, by_itself=True)
        self.spec, self.out = spec, out
        self.records: dict[int, Record] = {}
        self._earlier: dict[int, int] = {}  # steps that trials had when this driver met them
        self._begun = time.monotonic()

    def update(self, record: Record) -> None:
        """Show a trial as it now stands, and keep the best setting so far."""
        before = self.records.get(record.number)
        self.records[record.number] = record
        self._earlier.setdefault(record.number, self._steps(record))
        if before is None or before.ended or not record.ended:
            return  # known from an earlier driver, or not over yet
        if best_of(self.spec, list(self.records.values())) is record:
            self.write_best(record)
        ended = sum(one.ended for one in self.records.values())
        left = "" if (seconds := self.seconds_left()) is None else f"; about {duration(seconds)} left"
        text = (
            f"{ended}/{self.spec.trials} trial {record.number}: {self._said(record)}, {said_of(record.settings)}{left}"
        )
        style = "red" if record.status == "failed" else None
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def write_best(self, record: Record) -> None:
        """Write a trial as a preset file."""
        spec, seeds = self.spec, ", ".join(map(str, listed(self.spec.seeds)))
        comment = (
            f"Trial {record.number} of a tuning on {spec.env}: {spec.objective} {_last(spec, record):.6g} with seeds "
            f"{seeds}.\nThese seeds chose it, so report it on others."
        )
        write_preset(self.out / BEST, preset_of(spec, record.settings), comment)

    def _said(self, record: Record) -> str:
        if record.status == "failed":
            return f"failed: {record.error}"
        if not record.readings:
            return record.status
        steps, value = record.progress(self.spec.steps)[-1]
        stopped = "" if record.status == "finished" else f", {record.status} at {steps:,} of {self.spec.work:,} steps"
        return f"{self.spec.objective} {value:.4g}{stopped}"

    def _steps(self, record: Record) -> int:
        return record.progress(self.spec.steps)[-1][0] if record.readings else 0

    def seconds_left(self) -> float | None:
        """What is left, if trials come as far as they did so far, at the speed so far."""
        records = list(self.records.values())
        ended = [self._steps(record) for record in records if record.ended]
        done = sum(self._steps(record) - self._earlier[record.number] for record in records)
        if not ended or done <= 0:
            return None
        rest = (self.spec.trials - len(ended)) * sum(ended) / len(ended)
        rest -= sum(self._steps(record) for record in records if not record.ended)
        return max(0.0, rest) * (time.monotonic() - self._begun) / done

    def _shown(self) -> Group:
        records, spec = list(self.records.values()), self.spec
        running = [record for record in records if not record.ended]
        best = best_of(spec, records)
        counts = f"{len(records) - len(running)} of {spec.trials} trials over, {len(running)} running"
        about = "" if (left := self.seconds_left()) is None else f"; about {duration(left)} left"
        table = Table("trial", "settings", "step", "steps/s", spec.objective, box=None, pad_edge=False)
        for record in running[:SHOWN]:
            table.add_row(*map(escape, (f"trial-{record.number:03d}", said_of(record.settings), *self._pace(record))))
        if best is not None:
            value = f"{_last(spec, best):.4g}"
            table.add_row(f"trial-{best.number:03d}", escape(said_of(best.settings)), "best", "", value, style="green")
        return Group(Text(f"{counts}{about}", style="bold"), table)

    def _pace(self, record: Record) -> tuple[str, str, str]:
        """How far a running trial is, how fast, and its objective so far."""
        spec, done = self.spec, len({reading.seed for reading in record.readings if reading.step >= self.spec.steps})
        seeds = listed(spec.seeds)
        seen = glimpse(folder_of(self.out, record.number) / f"seed-{seeds[min(done, len(seeds) - 1)]}")
        value = f"{_last(spec, record):.4g}" if record.readings else ""
        if seen is None:
            return "", "", value
        return f"{done * spec.steps + seen.step:,} of {spec.work:,}", f"{seen.speed:,.0f}", value


def rows_of(spec: TuneSpec, records: Sequence[Record]) -> list[Row]:
    """A row per trial: its settings, how it ended, its objective, and that of each seed."""
    rows = []
    for record in records:
        reached = record.progress(spec.steps)[-1] if record.readings else (0, None)
        latest = {reading.seed: reading.value for reading in record.readings}
        found = {
            name: said_of({"": value})[1:] if isinstance(value, list) else value
            for name, value in record.settings.items()
        }
        row: Row = {"trial": record.number, "status": record.status, spec.objective: reached[1], "steps": reached[0]}
        row |= found | {f"seed_{seed}": latest.get(seed) for seed in listed(spec.seeds)}
        rows.append(row | {"error": record.error})
    return rows


def table_of(spec: TuneSpec, records: Sequence[Record]) -> Table:
    """All trials, the best first; those that were stopped come after those that finished."""
    order = {"finished": 0, "stopped": 1, "running": 2, "failed": 3}
    sign = -1 if spec.aim.mode == "max" else 1
    ranked = sorted(
        records, key=lambda one: (order[one.status], sign * _last(spec, one) if one.readings else 0, one.number)
    )
    names = list(spec.space())
    table = Table("trial", *names, spec.objective, "steps", "", title=escape(f"{spec.env}, {spec.base().method}"))
    for column in table.columns[1:-1]:
        column.justify = "right"
    for record in ranked:
        steps, value = record.progress(spec.steps)[-1] if record.readings else (0, None)
        shown = [said_of({name: record.settings[name]}).partition("=")[2] for name in names]
        cells = [f"{record.number}", *shown, "" if value is None else f"{value:.4g}", f"{steps:,}"]
        table.add_row(*map(escape, [*cells, record.error or record.status]))
    return table


def write_tables(spec: TuneSpec, out: Path, records: Sequence[Record], made_by: Mapping[str, Any]) -> list[str]:
    """Write trials.csv, trials.json, and the figure; returns the names of the files."""
    from nfdrl.sweeps.tuning_figure import draw

    rows, best = rows_of(spec, records), best_of(spec, records)
    said = {**made_by, "spec": spec.plain(), "best": None if best is None else best.number, "trials": rows}
    return write_report(out, said, tables={"trials": rows}, draw=lambda: draw(spec, records), name="trials")
