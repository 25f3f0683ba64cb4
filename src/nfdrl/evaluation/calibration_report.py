"""A calibration as a table for the terminal and as a figure: levels, coverage, tails."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from nfdrl.colours import GREY, INK, LIGHT
from nfdrl.evaluation.calibration import BINS, RESAMPLES, Calibration, Estimate
from nfdrl.evaluation.observed import UNSEEN
from nfdrl.style import figure, legend_below

PANEL = 3.2, 2.3  # inches


def said_of(found: Calibration) -> str:
    """What was played, in one line."""
    text = f"{len(found.episode):,} states of {len(np.unique(found.episode)):,} episodes"
    counts = found.counts
    if counts.get("cut_off"):
        text += (
            f"; {counts['cut_off']:,} episodes were cut off, and {counts['discarded']:,} of {counts['steps']:,} steps "
            f"discarded, since more than {UNSEEN:.0%} of their return would have followed"
        )
    return text


def table_of(found: Calibration) -> Table:
    """Expected and found, with 95 % bounds from a bootstrap over episodes."""
    table = Table(title="predicted laws against returns that came")
    for name in ("", "expected", "found", "95 %"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for level, share in found.coverage.items():
        table.add_row(f"returns in the central {level:.0%}", f"{level:.0%}", *_cells(share, percent=True))
    for tail in found.tails:
        table.add_row(f"returns below VaR({tail.alpha:g})", f"{tail.alpha:.0%}", *_cells(tail.below, percent=True))
        table.add_row("  their mean, against the CVaR", _cells(tail.cvar)[0], *_cells(tail.returns))
    table.add_row("return − predicted mean", "0", *_cells(found.bias))
    table.add_row("CRPS, against one pooled law", f"< {found.crps_pooled:.3g}", *_cells(found.crps))
    uniform = "yes" if found.calibrated else "no"
    table.add_row("levels uniform?", "yes", uniform, p_value(found))
    return table


def p_value(found: Calibration) -> str:
    """The p-value of uniform levels, as far as the bootstrap can tell it."""
    least = 2 / RESAMPLES
    return f"p < {least:g}" if found.uniformity < least else f"p = {found.uniformity:.2g}"


def _cells(found: Estimate, percent: bool = False) -> tuple[str, str]:
    if math.isnan(found.value):
        return "—", ""
    low, value, high = ((f"{x:.1%}" if percent else f"{x:.4g}") for x in (found.low, found.value, found.high))
    return value, f"{low} to {high}"


def draw(found: Mapping[str, tuple[Calibration, str]], title: str = "") -> Figure:
    """One row of three panels for each label, with its calibration and colour."""
    width, height = PANEL
    made, axes = figure(3 * width, height * len(found) + 0.6, len(found), 3)
    for row, (label, (calibration, colour)) in zip(axes, found.items(), strict=True):
        _draw_levels(row[0], calibration, colour)
        _draw_coverage(row[1], calibration, colour)
        _draw_tails(row[2], calibration, colour)
        row[0].set_title(label)
    axes[0, 1].set_title("coverage of central intervals")
    axes[0, 2].set_title("the worst returns")
    axes[-1, 0].set_xlabel("level at which the return fell")
    axes[-1, 1].set_xlabel("predicted")
    axes[-1, 2].set_xlabel("worst fraction")
    legend_below(made, axes[0])
    if title:
        made.suptitle(title, x=0.01, ha="left")
    return made


def _draw_levels(ax: Axes, found: Calibration, colour: str) -> None:
    """The histogram of levels, and where 95 % of each bar would lie if laws were right."""
    heights = np.array([bar.value for bar in found.histogram])
    # As wide as the bootstrap says, and no narrower than if all states were independent.
    independent = 1.96 * math.sqrt((BINS - 1) / len(found.episode))
    half = np.array([max((bar.high - bar.low) / 2, independent) for bar in found.histogram])
    edges = np.linspace(0, 1, BINS + 1)
    ax.bar(edges[:-1], heights, width=1 / BINS, align="edge", color=colour, alpha=0.75, edgecolor="white")
    low, high = (1 + side * np.append(half, half[-1]) for side in (-1, 1))
    ax.fill_between(edges, low, high, step="post", color=GREY, alpha=0.35, linewidth=0, label="95 % if laws are right")
    ax.axhline(1, color=INK, linewidth=1)
    ax.set(xlim=(0, 1), ylim=(0, max(2.0, 1.25 * heights.max())), ylabel="density")
    look = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
    ax.text(0.03, 0.95, f"uniform: {p_value(found)}", transform=ax.transAxes, va="top", fontsize=9, bbox=look)


def _draw_coverage(ax: Axes, found: Calibration, colour: str) -> None:
    """The share of returns inside every central interval, with bounds at the three that the table has."""
    levels = np.linspace(0.02, 1, 50)
    shares = [found.scores.share_in((1 - level) / 2, (1 + level) / 2).mean() for level in levels]
    ax.plot([0, 1], [0, 1], color=LIGHT, linewidth=3, zorder=0)
    ax.plot(levels, shares, color=colour)
    for level, share in found.coverage.items():
        ax.errorbar(level, share.value, [[share.value - share.low], [share.high - share.value]], fmt="o", color=colour,
                    markersize=4.5, capsize=2.5, ecolor=INK, elinewidth=1, zorder=3)  # fmt: skip
    ax.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="found")


def _draw_tails(ax: Axes, found: Calibration, colour: str) -> None:
    """The predicted CVaR and the mean of the returns below the quantile, in the same states."""
    for k, tail in enumerate(found.tails):
        came = not math.isnan(tail.returns.value)
        predicted = tail.cvar.value if came else found.scores.cvar[:, k].mean()
        ax.plot([k - 0.3, k + 0.3], [predicted] * 2, color=INK, linewidth=1.6, label="predicted CVaR")
        mean = tail.returns
        error = [[max(mean.value - mean.low, 0)], [max(mean.high - mean.value, 0)]]
        label = "mean of the returns below VaR"
        ax.errorbar(k, mean.value, error, fmt="o", color=colour, markersize=5.5, capsize=3, label=label)
    labels = [f"{tail.alpha:.0%}\n{tail.below.value:.1%} below" for tail in found.tails]
    ax.set_xticks(range(len(labels)), labels, fontsize=8)
    ax.set(xlim=(-0.6, len(labels) - 0.4), ylabel="return")
    ax.margins(y=0.25)
