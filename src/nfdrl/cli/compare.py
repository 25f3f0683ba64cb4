"""`nfdrl compare`: every method against exact return laws."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import torch
from rich.markup import escape
from rich.table import Table

from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.files import check_writable
from nfdrl.progress import Progress, print_table
from nfdrl.reports import check_own, command_of, plain_row, provenance, write_report
from nfdrl.training.schedules import Decay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from nfdrl.evaluation.comparison import Entry

ENVS = "mdp1,mdp2,mdp3,FrozenLake-v1,cliff"
COLUMNS = {"cramer": "Cramér", "w1": "W1", "mean_error": "|mean|", "cvar_error": "|CVaR|"}
LABEL = 44  # letters of a method in one line of the figure
LEAST_SPAN = 6.0  # on a logarithmic axis that shows less, every tick has a label, and labels overlap
FLOOR = 1e-4  # where a logarithmic axis shows smaller values, 0 included


@dataclass(frozen=True)
class Compare:
    """Learn the return laws of the optimal policy with every method, and measure them against the exact ones.

    Writes comparison.csv, pairs.csv, metrics.json, figure.png and figure.svg. Finished parts are kept in cells/; after
    an interruption, the same command continues from there.

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
        begun = time.perf_counter()
        problems = [Problem.of(word, mdp, discounts[word]) for word, mdp in mdps.items()]
        store = Store(self.out / "cells", self.overwrite)
        seeds = 1 if self.smoke else self.seeds
        with Progress() as bars:

            def track(steps: Iterable[int], text: str) -> Iterable[int]:
                return bars.track(steps, escape(text))

            found = compare(problems, contenders, seeds, budget, store, track)
            entries = list(bars.track(found, "methods compared", len(problems) * len(contenders)))
        names = self._write(entries, time.perf_counter() - begun)
        for problem in problems:
            print_table(table_of([entry for entry in entries if entry.problem is problem]))
        print(f"written to {self.out}: {', '.join(names)}")
        return 0

    def _write(self, entries: list[Entry], seconds: float) -> list[str]:
        rows = [plain_row(entry.summary()) for entry in entries]
        pairs = [plain_row(row) for entry in entries for row in entry.pairs()]
        made_by = provenance(command_of("compare", self), seconds)
        metrics = {"experiment": "compare", "smoke": self.smoke, **made_by, "rows": rows, "pairs": pairs}
        return write_report(self.out, metrics, tables={"comparison": rows, "pairs": pairs}, draw=lambda: draw(entries))


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


def table_of(entries: list[Entry]) -> Table:
    """The comparison on one problem, the method nearest to the truth first."""
    problem = entries[0].problem
    pairs = len(problem.truth)
    title = (
        f"{problem.label}, γ = {problem.discount:g}: distance to the {problem.truth.kind} law, mean of {pairs} pairs"
    )
    table = Table(title=escape(title))
    table.add_column("method", overflow="fold")  # one with many settings must not crowd out the numbers
    for name in (*COLUMNS.values(), "limit", "outputs", "head", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted((entry.summary() for entry in entries), key=lambda row: float(row["cramer"])):
        spread = "" if row["cramer_std"] is None else f" ± {row['cramer_std']:.4f}"
        distances = [f"{row[name]:.4f}{spread if name == 'cramer' else ''}" for name in COLUMNS]
        limit = "" if row["limit"] is None else f"{row['limit']:.4f}"
        outputs = "" if row["outputs"] is None else str(row["outputs"])
        cost = f"{row['head_parameters']:,}", f"{row['milliseconds']:.2f}"
        table.add_row(escape(row["method"]), *distances, limit, outputs, *cost)
    return table


def draw(entries: list[Entry]) -> Figure:
    """One panel per problem: the mean of each method, its seeds as dots, its family's limit as a tick."""
    from nfdrl.style import figure, legend_below

    problems = list(dict.fromkeys(entry.problem.label for entry in entries))
    columns = min(3, len(problems))
    rows = -(-len(problems) // columns)
    methods = max(sum(entry.problem.label == label for entry in entries) for label in problems)
    lines = max(in_lines(entry.contender.label).count("\n") + 1 for entry in entries)
    width, height = (3.4 if lines == 1 else 5.4), max(0.28, 0.14 * lines)
    made, axes = figure(width * columns + 1.2, (height * methods + 1.0) * rows + 0.4, rows, columns)
    panels = axes.ravel()
    for ax, label in zip(panels, problems, strict=False):
        draw_panel(ax, label, [entry for entry in entries if entry.problem.label == label])
    for ax in panels[len(problems) :]:
        ax.axis("off")
    legend_below(made, panels[0])
    return made


def in_lines(label: str) -> str:
    """A method with many settings in several lines.

    >>> print(in_lines("nfdrl-s[comparison.rooted=true,comparison.averaged=true,samples=500]"))
    nfdrl-s[comparison.rooted=true,
    comparison.averaged=true,samples=500]
    """
    return fill(label.replace(",", ", "), LABEL, break_on_hyphens=False).replace(", ", ",")


def draw_panel(ax: Axes, title: str, entries: list[Entry]) -> None:
    """Methods down, Cramér distance to the right on a logarithmic axis."""
    from nfdrl.colours import GREY, INK, LIGHT

    for height, entry in enumerate(entries):
        row, color = entry.summary(), entry.contender.method.colour
        mean, seeds = max(row["cramer"], FLOOR), [max(value, FLOOR) for value in row["cramer_of_seeds"]]
        ax.axhline(height, color=LIGHT, linewidth=0.8, zorder=0)
        ax.scatter(mean, height, marker="D", s=42, color=color, zorder=2)
        ax.scatter(seeds, [height] * len(seeds), s=14, facecolor="white", edgecolor=color, zorder=3)
        if row["limit"] is not None:
            ax.scatter(max(row["limit"], FLOOR), height, marker="|", s=150, color=INK, linewidth=2, zorder=4)
    ax.scatter([], [], marker="D", s=42, color=GREY, label="mean of seeds")
    ax.scatter([], [], s=14, facecolor="white", edgecolor=GREY, label="one seed")
    ax.scatter([], [], marker="|", s=150, color=INK, linewidth=2, label="limit of its family")
    ax.set(yticks=range(len(entries)), xscale="log")
    low, high = ax.get_xlim()
    if (least := (LEAST_SPAN * low / high) ** 0.5) > 1:
        ax.set_xlim(low / least, high * least)
    ax.tick_params(axis="x", which="both", labelsize=7)
    labels = [in_lines(entry.contender.label) for entry in entries]
    ax.set_yticklabels(labels, fontsize=7 if any("\n" in label for label in labels) else None)
    ax.set(title=title, xlabel="Cramér distance to truth")
    ax.invert_yaxis()
