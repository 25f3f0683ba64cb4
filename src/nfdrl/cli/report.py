"""`nfdrl report`: folders of runs as tables with intervals over seeds, and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nfdrl.errors import NfdrlError
from nfdrl.files import check_writable
from nfdrl.reports import Row, command_of, provenance, write_report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nfdrl.evaluation.lines import Line, Setup
    from nfdrl.evaluation.seed_report import Target
    from nfdrl.evaluation.sheets import Sheet
    from nfdrl.runs.reading import RunRecord

WIDTH = 150  # of tables that are not printed to a terminal
PAIRS = 12  # more are only in the files


@dataclass(frozen=True)
class Report:
    """Put runs side by side: a line for all seeds of a setting, 95 % intervals over seeds, and learning curves.

    Writes report.csv (a row per run), lines.csv, aggregate.csv, improvement.csv, metrics.json, report.md, report.tex,
    and the figures curves, statistics, profiles and improvement as PNG and SVG; docs/report.md explains them.

    Example: `nfdrl report results/control --out out/report`.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUNS")]
    """Folders with runs of `nfdrl train`, finished or not, at any depth."""

    out: Path = Path("out/report")
    """Folder for the files."""

    target: tuple[str, ...] = ()
    """Scores that count as 1, and as 0 if that is not 0: `CartPole-v1=500 LunarLander-v3=-200:200`. Otherwise the
    human and random scores of Atari-5's games, and Gymnasium's reward thresholds."""

    def run(self) -> int:
        from nfdrl.evaluation.lines import lines_of
        from nfdrl.evaluation.seed_report import read_target, targets_of

        found = all_runs(self.runs)
        lines, notes = lines_of(found)
        envs = sorted({line.env for line in lines})
        targets = targets_of(envs, dict(map(read_target, self.target)), human_scores(envs))
        check_writable(self.out)
        numbers = Numbers.of(lines, targets, notes)
        names = numbers.write(self.out, command_of("report", self))
        print_sheets(numbers.sheets(PAIRS), numbers.notes)
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
    """The random and human scores of the games of Atari-5 among these environments."""
    from nfdrl.evaluation.seed_report import Target
    from nfdrl.paper.atari5 import GAMES, read_references

    references = read_references()[1]
    ends = dict(zip(GAMES, zip(references.random, references.human, strict=True), strict=True))
    known = {env: ends[game] for env in envs if (game := game_of(env)) in ends}
    return {env: Target(low, high, "random and human scores") for env, (low, high) in known.items()}


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


@dataclass(frozen=True)
class Numbers:
    """All that a report says."""

    setups: list[Setup]
    targets: dict[str, Target]
    columns: list[str]
    runs: list[Row]
    lines: list[Row]
    aggregate: list[Row]
    improvement: list[Row]
    notes: list[str]

    @classmethod
    def of(cls, lines: list[Line], targets: dict[str, Target], notes: list[str]) -> Numbers:
        from nfdrl.evaluation import seed_report as made
        from nfdrl.evaluation.lines import ABSENT, columns_of, setups_of

        setups, columns = setups_of(lines), [name for name in columns_of(lines) if name != "steps"]
        told = [{name: line.settings.get(name, ABSENT) for name in columns} for line in lines]
        labels = {id(line): setup.label for setup in setups for line in setup.lines.values()}
        pairs = list(zip(lines, told, strict=True))
        by_line = [made.line_row(line, labels[id(line)], row, targets.get(line.env)) for line, row in pairs]
        return cls(
            setups=setups,
            targets=targets,
            columns=columns,
            runs=[made.run_row(run, row) for line, row in pairs for run in line.runs],
            lines=by_line,
            aggregate=[made.aggregate_row(setup, targets) | atari5_cells(setup, targets) for setup in setups],
            improvement=made.improvement_rows(setups),
            notes=notes + made.missing(setups, sorted({line.env for line in lines}), targets),
        )

    def sheets(self, pairs: int | None = None) -> list[Sheet]:
        """The tables; that of pairs only if there are at most so many."""
        from nfdrl.evaluation import sheets

        made = [sheets.lines_sheet(self.lines, self.columns)]
        if self.targets:
            made += [sheets.aggregate_sheet(self.aggregate), sheets.targets_sheet(self.targets)]
        against = sheets.improvement_sheet(self.improvement)
        return made + ([against] if against.rows and (pairs is None or len(against.rows) <= pairs) else [])

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Those that there is something to draw for."""
        from nfdrl.evaluation import seed_figures as figures

        made: dict[str, Callable[[], Figure]] = {"curves": lambda: figures.curves(self.setups, self.lines)}
        if any(row["environments"] for row in self.aggregate):
            made["statistics"] = lambda: figures.statistics(self.setups, self.aggregate)
            made["profiles"] = lambda: figures.profiles(self.setups, self.targets)
        if self.improvement:
            made["improvement"] = lambda: figures.improvements(self.setups, self.improvement)
        return made

    def write(self, out: Path, command: str) -> list[str]:
        """Write all files; returns their names."""
        from nfdrl.evaluation.sheets import latex, markdown

        parts = {"runs": self.runs, "lines": self.lines, "aggregate": self.aggregate, "improvement": self.improvement}
        ends = {
            env: {"low": found.low, "high": found.high, "source": found.source} for env, found in self.targets.items()
        }
        metrics = {**provenance(command), **parts, "targets": ends, "notes": self.notes}
        tables = {"report" if name == "runs" else name: rows for name, rows in parts.items() if rows}
        texts = {
            "report.md": markdown(self.sheets(), self.notes, command),
            "report.tex": latex(self.sheets(), self.notes, command),
        }
        return write_report(out, metrics, tables=tables, figures=self.figures(), texts=texts)


def print_sheets(sheets: Sequence[Sheet], notes: Sequence[str]) -> None:
    """Print tables, and what to bear in mind."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for sheet in sheets:
        table = Table(title=escape(sheet.title))
        for k, name in enumerate(sheet.head):
            table.add_column(escape(name), justify="left" if k < sheet.words else "right")
        for row in sheet.rows:
            table.add_row(*map(escape, row))
        console.print(table)
    for note in notes:
        console.print(escape(f"• {note}"), soft_wrap=True)
