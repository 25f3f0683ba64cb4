"""Figures of a report: learning curves with bands, statistics with intervals, profiles, who beats whom."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nfdrl.colours import GREY, INK, LIGHT
from nfdrl.evaluation.bands import Band
from nfdrl.evaluation.lines import Setup
from nfdrl.evaluation.numbers import Numbers
from nfdrl.evaluation.seed_report import ALL
from nfdrl.reports import Row
from nfdrl.style import figure, legend_below

PANEL = 4.4, 3.0  # inches
ACROSS = 3  # panels in a row
MARKS = {"-": "D", "--": "o", "-.": "s", ":": "^"}
SHOWN = {"iqm": "IQM", "mean": "mean", "median": "median", "gap": "optimality gap"}


def curves(numbers: Numbers) -> Figure:
    """One panel per environment: the return while training with its band, and a mark for the final evaluation."""
    setups = numbers.setups
    envs = sorted({env for setup in setups for env in setup.lines})
    across = min(ACROSS, len(envs))
    down = -(-len(envs) // across)
    made, axes = figure(max(PANEL[0] * across, 7.0), PANEL[1] * down + 0.3 + 0.2 * len(setups) / 3, down, across)
    found = {(row["env"], row["label"]): row for row in numbers.lines}
    for ax, env in zip(axes.ravel(), envs, strict=False):
        for setup in (setup for setup in setups if env in setup.lines):
            _band(ax, numbers.curves.get((env, setup.label)), setup, setup.label)
            _mark(ax, found[env, setup.label], setup)
        _step_axis(ax, env)
    for ax in axes.ravel()[len(envs) :]:
        ax.axis("off")
    for ax in axes[:, 0]:
        ax.set_ylabel("return, mean of 100 episodes")
    _legend(made, axes)
    return made


def _band(ax: Axes, band: Band | None, setup: Setup, label: str) -> None:
    """A curve, and its band if it has one; without a curve the legend still has its entry."""
    if band is None:
        ax.plot([], [], setup.style, color=setup.colour, label=label)
        return
    ax.plot(band.x, band.values, setup.style, color=setup.colour, label=label, linewidth=1.5)
    if band.low is not None and band.high is not None:
        ax.fill_between(band.x, band.low, band.high, color=setup.colour, alpha=0.16, linewidth=0)


def _mark(ax: Axes, row: Row, setup: Setup) -> None:
    if row["mean"] is None:
        return
    ends = None
    if row["mean_low"] is not None:
        ends = [[max(row["mean"] - row["mean_low"], 0)], [max(row["mean_high"] - row["mean"], 0)]]
    look: dict[str, Any] = {"color": setup.colour, "markersize": 5, "capsize": 3, "zorder": 4, "clip_on": False}
    ax.errorbar([row["steps"]], [row["mean"]], yerr=ends, fmt=MARKS[setup.style], **look)


def _step_axis(ax: Axes, title: str) -> None:
    ax.set(title=title, xlabel="steps")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")


def statistics(numbers: Numbers) -> Figure:
    """One panel per statistic of normalised scores: a tick for the number, a bar for its interval."""
    pairs = zip(numbers.setups, numbers.aggregate, strict=True)
    chosen = [(setup, row) for setup, row in pairs if row["mean"] is not None]
    made, axes = figure(11.0, 0.34 * len(chosen) + 1.1, 1, len(SHOWN), sharey=True)
    for ax, (name, title) in zip(axes[0], SHOWN.items(), strict=True):
        for height, (setup, row) in enumerate(chosen):
            ax.axhline(height, color=LIGHT, linewidth=0.8, zorder=0)
            if row[f"{name}_low"] is not None:
                ax.barh(height, row[f"{name}_high"] - row[f"{name}_low"], 0.55, row[f"{name}_low"],
                        color=setup.colour, alpha=0.45, linewidth=0)  # fmt: skip
            ax.plot(row[name], height, MARKS[setup.style], color=setup.colour, markersize=5)
        ax.set_title(title)
        ax.margins(x=0.12)
        ax.locator_params(axis="x", nbins=4)
    labels = [_counted(setup.label, row["environments"], row["of"]) for setup, row in chosen]
    axes[0, 0].set(yticks=range(len(chosen)), yticklabels=labels, ylim=(len(chosen) - 0.4, -0.6))
    made.supxlabel(
        "normalised score, 95 % intervals over seeds; of the gap, less is better; in brackets: environments", fontsize=9
    )
    return made


def profiles(numbers: Numbers) -> Figure:
    """The share of runs above each normalised score, and the IQM of normalised training returns by step."""
    made, axes = figure(10.0, 3.6 + 0.2 * len(numbers.setups) / 3, 1, 2)
    for setup, row in zip(numbers.setups, numbers.aggregate, strict=True):
        if setup.label in numbers.profiles:
            label = _counted(setup.label, row["environments"], row["of"])
            _band(axes[0, 0], numbers.profiles[setup.label], setup, label)
            _band(axes[0, 1], numbers.efficiency.get(setup.label), setup, label)
    axes[0, 0].set(title="performance profile", xlabel="normalised score τ", ylabel="share of runs above τ")
    _step_axis(axes[0, 1], "sample efficiency")
    axes[0, 1].set_ylabel("IQM of normalised training returns")
    _legend(made, axes)
    return made


def _counted(label: str, count: int, of: int) -> str:
    """A label that says in how many environments the setup was run; nothing to say if there is only one."""
    return label if of == 1 else f"{label} ({count} of {of})"


def improvements(numbers: Numbers) -> Figure:
    """P(row better than column) over the environments that both have."""
    labels = [setup.label for setup in numbers.setups]
    table = np.full((len(labels), len(labels)), np.nan)
    for row in (row for row in numbers.improvement if row["env"] == ALL):
        one, other = labels.index(row["label"]), labels.index(row["other"])
        table[one, other], table[other, one] = row["probability"], 1 - row["probability"]
    side = 0.5 * len(labels)
    made, axes = figure(side + 3.2, side + 2.6)
    ax = axes[0, 0]
    ax.imshow(table, cmap="RdBu", vmin=-0.6, vmax=1.6)
    for (down, right), value in np.ndenumerate(table):
        text = "·" if down == right else "—" if np.isnan(value) else f"{value:.2f}"
        ax.text(right, down, text, ha="center", va="center", fontsize=8.5, color=GREY if np.isnan(value) else INK)
    ax.set(xticks=range(len(labels)), yticks=range(len(labels)), yticklabels=labels)
    ax.set_xticklabels(labels, rotation=35, ha="right", rotation_mode="anchor")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.set_title("P(row better than column), ties ½")
    return made


def _legend(made: Figure, axes: np.ndarray[tuple[int, ...], np.dtype[np.object_]]) -> None:
    """As many columns as the figure's width has room for."""
    labels = [label for ax in axes.ravel() for label in ax.get_legend_handles_labels()[1]]
    legend_below(made, axes, max(1, int(made.get_figwidth() * 11 / (max(map(len, labels), default=0) + 8))))
