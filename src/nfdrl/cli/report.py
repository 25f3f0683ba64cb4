"""`nfdrl report`: a folder of runs as one table and one figure of learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nfdrl.files import check_writable
from nfdrl.reports import command_of, provenance, write_report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nfdrl.runs.reading import RunRecord

COLUMNS = ("env", "method", "seed", "steps", "return", "std", "episodes", "folder")
PANEL = 4.4, 3.0  # inches


@dataclass(frozen=True)
class Report:
    """Put the runs of a folder side by side: a table of their evaluations, and their learning curves.

    Writes report.csv, metrics.json, curves.png and curves.svg.

    Example: `nfdrl report results/control --out out/report`.
    """

    runs: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUNS")]
    """Folder with runs of `nfdrl train`, finished or not, at any depth."""

    out: Path = Path("out/report")
    """Folder for the files."""

    def run(self) -> int:
        from nfdrl.runs.reading import find_runs

        found = sorted(find_runs(self.runs), key=lambda run: (run.env, run.method, run.seed))
        rows = [row_of(run, self.runs) for run in found]
        check_writable(self.out)
        metrics = {**provenance(command_of("report", self)), "runs": rows}
        write_report(self.out, metrics, tables={"report": rows}, draw=lambda: draw(found), figure="curves")
        print_rows(rows)
        print(f"written: {self.out}")
        return 0


def row_of(run: RunRecord, folder: Path) -> dict[str, Any]:
    """A run's row of the table; None where it was not evaluated."""
    evaluation = run.evaluation or {}
    return {
        "env": run.env,
        "method": run.method,
        "seed": run.seed,
        "steps": run.step,
        "return": evaluation.get("mean"),
        "std": evaluation.get("std"),
        "episodes": len(evaluation.get("returns", ())) or None,
        "folder": str(run.folder.relative_to(folder)),
    }


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    table = Table(title="greedy episodes after training")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("env", "method", "folder") else "right")
    for row in rows:
        cells = (f"{row[name]:,.4g}" if isinstance(row[name], float) else row[name] for name in COLUMNS)
        table.add_row(
            *("—" if cell is None else f"{cell:,}" if isinstance(cell, int) else escape(cell) for cell in cells)
        )
    Console().print(table)


def draw(runs: Sequence[RunRecord]) -> Figure:
    """One panel per environment: the return while training, and a mark for the final evaluation."""
    from nfdrl.style import color_of, figure, label_of, legend_below, line_of

    envs = sorted({run.env for run in runs})
    width, height = PANEL
    made, axes = figure(width * len(envs), height + 0.6, 1, len(envs))
    for ax, env in zip(axes[0], envs, strict=True):
        for run in (run for run in runs if run.env == env):
            steps, returns = ([line[name] for line in run.curve] for name in ("step", "episode_return"))
            look = {"color": color_of(run.method), "label": label_of(run.method)}
            ax.plot(steps, returns, line_of(run.method), linewidth=1.2, alpha=0.8, **look)
            if run.evaluation is not None:
                ax.plot([run.step], [run.evaluation["mean"]], "D", markersize=5, clip_on=False, **look)
        ax.set(title=env, xlabel="steps", ylabel="return, mean of 100 episodes" if ax is axes[0, 0] else "")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
    legend_below(made, axes, 5)
    return made
