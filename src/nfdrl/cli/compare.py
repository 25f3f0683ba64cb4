"""`nfdrl compare`: every method against exact return laws."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.markup import escape
from rich.table import Table

from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.files import check_writable, read_json
from nfdrl.progress import Progress, print_table
from nfdrl.reports import check_own, command_of, plain_row, provenance, write_report
from nfdrl.runs.layout import SUMMARY
from nfdrl.training.schedules import Decay

if TYPE_CHECKING:
    from nfdrl.evaluation.comparison import Entry, Problem

ENVS = "mdp1,mdp2,mdp3,FrozenLake-v1,cliff"
COLUMNS = {"cramer": "Cramér", "w1": "W1", "mean_error": "|mean|", "cvar_error": "|CVaR|"}

Row = dict[str, Any]


@dataclass(frozen=True)
class Compare:
    """Learn the return laws of the optimal policy with every method, and measure them against the exact ones.

    Writes comparison.csv, pairs.csv, metrics.json, figure.png and figure.svg. Finished parts are kept in cells/; after
    an interruption, the same command continues from there. With --beside, tables and figure also show what earlier
    comparisons found.

    Example: `nfdrl compare --envs mdp3,FrozenLake-v1 --methods nfdrl-s,c51[atoms=13] --seeds 3 --out out/compare`.
    """

    envs: str = ENVS
    """mdp1, mdp2, mdp3, cliff, or any Gymnasium id with a table P, with settings: `FrozenLake-v1[map_name=8x8]`."""

    methods: str = "all"
    """`all`, or methods separated by commas, with settings: `c51[atoms=13],nfdrl-s[comparison.bandwidth=0.05]`."""

    steps: int = 15_000
    """Updates per run."""

    batch: int = 128
    """Sampled transitions per update."""

    seeds: int = 3
    """Runs per method, with seeds 0, 1, …"""

    learning_rate_decay: Decay | None = None
    """constant, linear, quadratic or cosine; by default as each method's rate falls on a table of laws."""

    discount: float | None = None
    """Discount of all environments; by default the MDP's own, or 0.95 if it has none."""

    out: Path = Path("out/compare")
    """Folder for the files."""

    beside: tuple[Path, ...] = ()
    """Folders of earlier comparisons with as many updates, to stand beside this one: `--beside results/compare`."""

    overwrite: bool = False
    """Compute finished parts again."""

    smoke: bool = False
    """Run the same code in its smallest form, in seconds."""

    def run(self) -> int:
        from nfdrl.evaluation.comparison import Budget, Problem, Store, compare
        from nfdrl.evaluation.problems import contender, discount_for, finite_mdp

        torch.set_num_threads(1)  # the networks are too small to share
        check_at_least(1, steps=self.steps, batch=self.batch, seeds=self.seeds)
        contenders = [contender(word) for word in split_words("methods", self.methods)]
        mdps = {word: finite_mdp(word) for word in split_words("envs", self.envs)}
        budget = Budget(20, 16, 20, 2) if self.smoke else Budget(self.steps, self.batch)
        budget = replace(budget, learning_rate_decay=self.learning_rate_decay)
        discounts = {word: discount_for(mdp, self.discount) for word, mdp in mdps.items()}
        check_own(self.out, files=("comparison.csv", "pairs.csv", "figure.png", "figure.svg"))
        check_writable(self.out)
        settings = [
            {"env": word, "discount": discount, "updates": budget.updates, "batch_size": budget.batch_size}
            for word, discount in discounts.items()
        ]
        earlier = earlier_rows(self.beside, settings)
        begun = time.perf_counter()
        problems = [Problem.of(word, mdp, discounts[word]) for word, mdp in mdps.items()]
        store = Store(self.out / "cells", self.overwrite)
        seeds = 1 if self.smoke else self.seeds
        with Progress() as bars:

            def track(steps: Iterable[int], text: str) -> Iterable[int]:
                return bars.track(steps, escape(text))

            found = compare(problems, contenders, seeds, budget, store, track)
            entries = list(bars.track(found, "methods compared", len(problems) * len(contenders)))
        rows = [plain_row(entry.summary()) for entry in entries]
        shown = nearest_first([*rows, *earlier])
        names = self._write(entries, rows, shown, time.perf_counter() - begun)
        for problem in problems:
            print_table(table_of(problem, [row for row in shown if row["env"] == problem.label]))
        print(f"written to {self.out}: {', '.join(names)}")
        return 0

    def _write(self, entries: list[Entry], rows: list[Row], shown: list[Row], seconds: float) -> list[str]:
        from nfdrl.evaluation.comparison_figure import draw

        pairs = [plain_row(row) for entry in entries for row in entry.pairs()]
        made_by = provenance(command_of("compare", self), seconds)
        metrics = {"experiment": "compare", "smoke": self.smoke, **made_by, "rows": rows, "pairs": pairs}
        return write_report(self.out, metrics, tables={"comparison": rows, "pairs": pairs}, draw=lambda: draw(shown))


def earlier_rows(folders: Iterable[Path], settings: Iterable[Row]) -> list[Row]:
    """What earlier comparisons found with one of these `settings`; a folder without any such row is refused."""
    wanted, found = list(settings), []
    for folder in folders:
        content = read_json(folder / SUMMARY)
        rows = content.get("rows", []) if content.get("experiment") == "compare" else []
        fitting = [row for row in rows if any(one.items() <= row.items() for one in wanted)]
        if not fitting:
            asked = "; ".join(", ".join(f"{name} {value}" for name, value in one.items()) for one in wanted)
            raise NfdrlError(f"{folder} holds no comparison to stand beside this one, which has {asked}")
        found += fitting
    return found


def nearest_first(rows: Sequence[Row]) -> list[Row]:
    """Environments in their order, in each the method nearest to the truth first; of two equal ones the first row."""
    envs = list(dict.fromkeys(row["env"] for row in rows))
    kept = {(row["env"], row["method"]): row for row in reversed(rows)}
    return sorted(kept.values(), key=lambda row: (envs.index(row["env"]), float(row["cramer"])))


def split_words(what: str, text: str) -> list[str]:
    """Words separated by commas outside brackets, each once.

    >>> split_words("methods", "dqn, c51[atoms=13,v_min=0]")
    ['dqn', 'c51[atoms=13,v_min=0]']
    """
    words = [word.strip() for word in re.split(r",(?![^\[]*\])", text)]
    words = list(dict.fromkeys(word for word in words if word))
    if not words:
        raise NfdrlError(f"{what} must name at least one, got {text!r}")
    if words == ["all"] and what == "methods":
        from nfdrl.laws import METHODS

        return list(METHODS)
    return words


def table_of(problem: Problem, rows: list[Row]) -> Table:
    """The comparison on one problem."""
    pairs = len(problem.truth)
    title = (
        f"{problem.label}, γ = {problem.discount:g}: distance to the {problem.truth.kind} law, mean of {pairs} pairs"
    )
    table = Table(title=escape(title))
    table.add_column("method", overflow="fold")  # one with many settings must not crowd out the numbers
    for name in (*COLUMNS.values(), "limit", "outputs", "head", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        spread = "" if row["cramer_std"] is None else f" ± {row['cramer_std']:.4f}"
        distances = [f"{row[name]:.4f}{spread if name == 'cramer' else ''}" for name in COLUMNS]
        limit = "" if row["limit"] is None else f"{row['limit']:.4f}"
        outputs = "" if row["outputs"] is None else str(row["outputs"])
        cost = f"{row['head_parameters']:,}", f"{row['milliseconds']:.2f}"
        table.add_row(escape(row["method"]), *distances, limit, outputs, *cost)
    return table
