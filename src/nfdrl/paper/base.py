"""The frame of every experiment: compute → rows and data, draw → figure, run → files."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nfdrl.errors import NfdrlError
from nfdrl.evaluation.comparison import Store
from nfdrl.files import check_writable
from nfdrl.progress import Progress
from nfdrl.reports import Row, check_own, plain, plain_row, provenance, write_report

SAMPLES = 128  # base points of the flows that learn here: twice the default, since a figure is learned once


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


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper: how its numbers are computed and how they are drawn.

    `compute(seed, smoke, progress)` must depend on its arguments alone; `smoke` asks for the smallest run that goes
    through the same code. One that `reads_runs` takes a folder of them as well, or None; one that `keeps_parts` a store
    in cells/, where it finds what an interrupted command has finished.
    """

    name: str
    title: str
    compute: Callable[..., Result]
    draw: Callable[[Result], Figure]
    reads_runs: bool = False
    keeps_parts: bool = False


def run_experiment(
    experiment: Experiment,
    seed: int,
    smoke: bool,
    out: Path,
    progress: Progress | None = None,
    runs: Path | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Compute and draw; write figure.png, figure.svg, metrics.json and tables; return what metrics.json says."""
    if runs is not None and not experiment.reads_runs:
        raise NfdrlError(f"experiment {experiment.name!r} reads no runs: leave --runs out")
    extra: dict[str, Any] = {"runs": runs} if experiment.reads_runs else {}
    if experiment.keeps_parts:
        extra["store"] = Store(out / "cells")
    check_own(out)
    if not experiment.reads_runs:  # what is read may not be there, and then nothing is written
        check_writable(out)
    begun = time.perf_counter()
    with progress or Progress() as bars:
        result = experiment.compute(seed, smoke, bars, **extra)
    metrics = {
        "experiment": experiment.name,
        "seed": seed,
        "smoke": smoke,
        **provenance(command, time.perf_counter() - begun),
        "rows": [plain_row(row) for row in result.rows],
        **({"tables": plain(result.tables)} if result.tables else {}),
    }
    write_report(out, metrics, tables=result.tables, draw=lambda: experiment.draw(result))
    return metrics
