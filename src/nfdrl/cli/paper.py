"""`nfdrl paper`: the figures of the paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nfdrl.errors import NfdrlError, check_seed
from nfdrl.paper import EXPERIMENTS, load
from nfdrl.reports import command_of

OUT = Path("out/paper")
COLUMNS = 10  # as many as fit a terminal; metrics.json has them all
ROWS = 40


@dataclass(frozen=True)
class Paper:
    """Make a figure of the paper and its numbers: figure.png, figure.svg, metrics.json, and tables as CSV.

    Examples: `nfdrl paper list`, `nfdrl paper theory --seed 1`, `nfdrl paper all --smoke --out /tmp/figures`.
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """An experiment, `all`, or `list` to see what there is."""

    seed: int = 0
    """The same seed gives the same numbers."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for the files; out/paper/NAME by default. `all` makes a folder per experiment inside it."""

    smoke: bool = False
    """Run the same code in its smallest form, in seconds."""

    runs: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of runs that `nfdrl train` wrote, for `atari5` and `pong` (by default results/pong)."""

    def run(self) -> int:
        torch.set_num_threads(1)  # the laws are too small to share
        check_seed(self.seed)
        console = Console()
        if self.name == "list":
            console.print(_catalogue())
        elif self.name == "all":
            return self._run_all(console)
        else:
            self._run_one(self.name, self.out or OUT / self.name, console, self.runs)
        return 0

    def _run_all(self, console: Console) -> int:
        """Run every experiment; one that fails does not stop the others."""
        from nfdrl.paper.base import NoRunsError

        summary = Table("experiment", "seconds", "rows", "files", title="figures of the paper")
        failed = 0
        for name in EXPERIMENTS:
            folder = (self.out or OUT) / name
            try:
                runs = self.runs if load(name).reads_runs else None
                metrics = self._run_one(name, folder, console, runs, show=False)
            except NoRunsError as error:
                summary.add_row(name, "", "", escape(f"left out: {error}"))
            except NfdrlError as error:
                failed += 1
                summary.add_row(name, "", "", escape(f"failed: {error}"))
            else:
                summary.add_row(name, f"{metrics['seconds']:.1f}", str(len(metrics["rows"])), escape(str(folder)))
        console.print(summary)
        return 2 if failed else 0

    def _run_one(self, name: str, out: Path, console: Console, runs: Path | None, show: bool = True) -> dict[str, Any]:
        experiment = load(name)
        from nfdrl.paper.base import run_experiment  # Matplotlib takes a second to import: not for `--help`

        command = command_of("paper", replace(self, name=name, out=out, runs=runs))
        metrics = run_experiment(experiment, self.seed, self.smoke, out, runs=runs, command=command)
        if show:
            tables = metrics.get("tables", {})
            for title, rows in tables.items():
                console.print(_table(title, rows, _table_cell))
            if not tables:
                console.print(_table(experiment.title, metrics["rows"], _cell))
            files = ["figure.png", "figure.svg", "metrics.json", *(f"{name}.csv" for name in tables)]
            written = f"{metrics['seconds']:.1f} s; written: {out}/{', '.join(files)}"
            console.print(escape(written), soft_wrap=True)
        return metrics


def _catalogue() -> Table:
    table = Table("experiment", "shows")
    for name, shows in EXPERIMENTS.items():
        table.add_row(name, shows)
    return table


def _table(title: str, rows: list[dict[str, Any]], cell: Callable[[Any], str]) -> Table:
    """The first rows, without columns that are empty or too wide."""
    keys = dict.fromkeys(key for row in rows for key, value in row.items() if value is not None)
    wide = {key for row in rows for key, value in row.items() if key == "note" or isinstance(value, (list, dict))}
    shown = [key for key in keys if key not in wide][:COLUMNS]
    caption = f"{ROWS} of {len(rows)} rows; all are in metrics.json" if len(rows) > ROWS else None
    table = Table(*(_words(key) for key in shown), title=title, caption=caption, box=box.SIMPLE, pad_edge=False)
    for row in rows[:ROWS]:
        table.add_row(*(escape(cell(row.get(key))) for key in shown))
    return table


def _words(key: str) -> str:
    """frames_millions and BattleZone as words, so that a narrow terminal can break the line between them."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", key).replace("_", " ")


def _table_cell(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.4g}"
    return _cell(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):  # aligned at four digits, without a fixed width that a narrow terminal would cut
        return f"{value:.4f}" if 1e-3 <= abs(value) < 1e3 else f"{value:.2g}"
    return str(value)
