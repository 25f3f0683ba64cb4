"""`nfdrl report`: folders of runs as tables with intervals over seeds, figures, and a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from nfdrl.errors import NfdrlError
from nfdrl.files import check_writable
from nfdrl.progress import print_table
from nfdrl.reports import Row, check_own, command_of, provenance, write_report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nfdrl.evaluation.lines import Setup
    from nfdrl.evaluation.numbers import Numbers
    from nfdrl.evaluation.seed_report import Target
    from nfdrl.evaluation.sheets import Sheet
    from nfdrl.runs.reading import RunRecord

PAIRS = 12  # more are only in the files


@dataclass(frozen=True)
class Report:
    """Put runs side by side: a line for all seeds of a setting, 95 % intervals over seeds, and learning curves.

    Writes report.html (a page with all of it), report.md, report.tex, report.csv (a row per run), lines.csv,
    aggregate.csv, improvement.csv, metrics.json, and the figures curves, statistics, profiles and improvement as PNG
    and SVG; docs/report.md explains them.

    Example: `nfdrl report results/control --out out/report`.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUNS")]
    """Folders with runs of `nfdrl train` or `nfdrl sweep`, finished or not, at any depth."""

    out: Path = Path("out/report")
    """Folder for the files."""

    target: tuple[str, ...] = ()
    """Scores that count as 1, and as 0 if that is not 0: `CartPole-v1=500 LunarLander-v3=-200:200`. Otherwise the
    human and random scores of Atari games, and Gymnasium's reward thresholds."""

    def run(self) -> int:
        from nfdrl.evaluation.lines import lines_of
        from nfdrl.evaluation.numbers import Numbers
        from nfdrl.evaluation.seed_report import read_target, targets_of
        from nfdrl.runs.reading import unmeasured

        found = all_runs(self.runs)
        lines, notes = lines_of(found)
        notes += dict.fromkeys(words for folder in self.runs for words in unmeasured(folder))
        envs = sorted({line.env for line in lines})
        targets = targets_of(envs, dict(map(read_target, self.target)), human_scores(envs))
        check_own(self.out, files=("report.html", "report.md", "report.tex", "report.csv", "curves.png"))
        check_writable(self.out)
        numbers = Numbers.of(lines, targets, notes, lambda setup: atari5_cells(setup, targets))
        names = write(numbers, self.out, command_of("report", self))
        print_sheets(sheets_of(numbers, PAIRS), numbers.notes)
        print(f"written to {self.out}: {', '.join(names)}")
        return 0


def all_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """The runs of all folders, each once."""
    from nfdrl.runs.reading import find_runs

    if not folders:
        raise NfdrlError("name at least one folder with runs")
    found = [run for folder in folders for run in find_runs(folder)]
    return list({run.folder.resolve(): run for run in reversed(found)}.values())[::-1]


def human_scores(envs: Sequence[str]) -> dict[str, Target]:
    """The random and human scores of the Atari games among these environments."""
    from nfdrl.evaluation.seed_report import HUMAN, Target
    from nfdrl.paper.human import random_and_human

    known = random_and_human()
    return {env: Target(*known[game], HUMAN) for env in envs if (game := game_of(env)) in known}


def game_of(env: str) -> str | None:
    """The name of an Atari game.

    >>> game_of("ALE/Qbert-v5[frame_skip=4]"), game_of("CartPole-v1")
    ('Qbert', None)
    """
    return env.removeprefix("ALE/").partition("-")[0] if env.startswith("ALE/") else None


def atari5_cells(setup: Setup, targets: Mapping[str, Target]) -> Row:
    """The Atari-5 score in percent with its interval; empty unless all five games are there, each once."""
    import numpy as np

    from nfdrl.evaluation.seed_report import interval, normalised
    from nfdrl.paper.atari5 import GAMES, atari5_score

    scores = normalised(setup, targets)
    games = {game_of(env): 100 * values for env, values in scores.items()}
    if not set(GAMES) <= games.keys() or len(games) < len(scores):
        return {}
    strata = [games[game] for game in GAMES]

    def score(drawn: Sequence[Any]) -> Any:
        means = np.stack([env.mean(-1) for env in drawn], -1)
        return np.apply_along_axis(lambda row: atari5_score(tuple(row.tolist())), -1, means)

    low, high = interval(score, strata) or (None, None)
    return {"atari5": float(score(strata)), "atari5_low": low, "atari5_high": high}


def sheets_of(numbers: Numbers, pairs: int | None = None) -> list[Sheet]:
    """The tables; that of pairs only if there are at most so many."""
    from nfdrl.evaluation import sheets

    made = [sheets.lines_sheet(numbers.lines, numbers.columns, numbers.targets)]
    if numbers.targets:
        made.append(sheets.aggregate_sheet(numbers.aggregate, numbers.targets))
        made.append(sheets.targets_sheet(numbers.targets))
    against = sheets.improvement_sheet(numbers.improvement)
    return made + ([against] if against.rows and (pairs is None or len(against.rows) <= pairs) else [])


def figures_of(numbers: Numbers) -> dict[str, Callable[[], Figure]]:
    """Those that there is something to draw for."""
    from nfdrl.evaluation import seed_figures as figures

    made: dict[str, Callable[[], Figure]] = {"curves": lambda: figures.curves(numbers)}
    if any(row["environments"] for row in numbers.aggregate):
        made["statistics"] = lambda: figures.statistics(numbers)
        made["profiles"] = lambda: figures.profiles(numbers)
    if numbers.improvement:
        made["improvement"] = lambda: figures.improvements(numbers)
    return made


def write(numbers: Numbers, out: Path, command: str) -> list[str]:
    """Write all files; returns their names."""
    from nfdrl.evaluation.sheets import latex, markdown
    from nfdrl.viewer.document import html
    from nfdrl.viewer.report import report_of

    parts = {
        "runs": numbers.runs,
        "lines": numbers.lines,
        "aggregate": numbers.aggregate,
        "improvement": numbers.improvement,
    }
    made_by = provenance(command)
    metrics = {**made_by, **parts, "targets": {env: asdict(end) for env, end in numbers.targets.items()}}
    tables = {"report" if name == "runs" else name: rows for name, rows in parts.items() if rows}
    texts = {
        "report.html": html(report_of(numbers, command, made_by["date"])),
        "report.md": markdown(sheets_of(numbers), numbers.notes, command),
        "report.tex": latex(sheets_of(numbers), numbers.notes, command),
    }
    return write_report(
        out, metrics | {"notes": numbers.notes}, tables=tables, figures=figures_of(numbers), texts=texts
    )


def print_sheets(sheets: Sequence[Sheet], notes: Sequence[str]) -> None:
    """Print tables, and what to bear in mind."""
    for sheet in sheets:
        table = Table(title=escape(sheet.title))
        for k, name in enumerate(sheet.head):
            table.add_column(escape(name), justify="left" if k < sheet.words else "right")
        for row in sheet.rows:
            table.add_row(*map(escape, row))
        print_table(table)
    for note in notes:
        print(f"• {note}")
