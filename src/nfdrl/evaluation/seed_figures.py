"""Figures of a report: learning curves with bands, statistics with intervals, profiles, who beats whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nfdrl.colours import GREY, INK, LIGHT
from nfdrl.evaluation.lines import Line, Setup
from nfdrl.evaluation.seed_report import ALL, SEED, Target, normalised
from nfdrl.evaluation.statistics import Floats, Scores, Statistic, bootstrap, iqm, mean, profile
from nfdrl.reports import Row
from nfdrl.style import figure, legend_below

PANEL = 4.4, 3.0  # inches
ACROSS = 3  # panels in a row
POINTS = 200  # of a curve
MARKS = {"-": "D", "--": "o", "-.": "s", ":": "^"}
SHOWN = {"iqm": "IQM", "mean": "mean", "median": "median", "gap": "optimality gap"}


def curves(setups: Sequence[Setup], rows: Sequence[Row]) -> Figure:
    """One panel per environment: the return while training with its band, and a mark for the final evaluation."""
    envs = sorted({env for setup in setups for env in setup.lines})
    across = min(ACROSS, len(envs))
    down = -(-len(envs) // across)
    made, axes = figure(max(PANEL[0] * across, 7.0), PANEL[1] * down + 0.3 + 0.2 * len(setups) / 3, down, across)
    found = {(row["env"], row["label"]): row for row in rows}
    for ax, env in zip(axes.ravel(), envs, strict=False):
        for setup in (setup for setup in setups if env in setup.lines):
            steps, returns = curve_of(setup.lines[env])
            _band(ax, steps, mean, [returns], setup)
            _mark(ax, found[env, setup.label], setup)
        _step_axis(ax, env)
    for ax in axes.ravel()[len(envs) :]:
        ax.axis("off")
    for ax in axes[:, 0]:
        ax.set_ylabel("return, mean of 100 episodes")
    _legend(made, axes)
    return made


def curve_of(line: Line, at: Floats | None = None) -> tuple[Floats, Floats]:
    """Training returns of all seeds at steps that every seed has reached; shapes (T,) and (T, seeds)."""
    paths = []
    for run in line.runs:
        path = np.array([(row["step"], row["episode_return"]) for row in run.curve], dtype=np.float64).reshape(-1, 2)
        paths.append(path[np.isfinite(path).all(-1)])
    paths = [path for path in paths if len(path)]
    if at is None:
        at = _common(paths)
    columns = [np.interp(at, path[:, 0], path[:, 1]) for path in paths]
    return at, np.stack(columns, -1) if columns else np.empty((at.size, 0))


def _common(paths: Sequence[Floats]) -> Floats:
    if not paths:
        return np.empty(0)
    first, last = max(path[0, 0] for path in paths), min(path[-1, 0] for path in paths)
    return np.linspace(first, last, POINTS) if first <= last else np.empty(0)


def _band(ax: Axes, x: Floats, statistic: Statistic, scores: Scores, setup: Setup) -> None:
    """A statistic along x and, if every environment has two seeds or more, its 95 % band."""
    if not x.size or any(not env.shape[-1] for env in scores):
        ax.plot([], [], setup.style, color=setup.colour, label=setup.label)
        return
    ax.plot(x, statistic(scores), setup.style, color=setup.colour, label=setup.label, linewidth=1.5)
    if all(env.shape[-1] > 1 for env in scores):
        low, high = bootstrap(statistic, scores, np.random.default_rng(SEED), resamples=500)
        ax.fill_between(x, low, high, color=setup.colour, alpha=0.16, linewidth=0)


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


def statistics(setups: Sequence[Setup], rows: Sequence[Row]) -> Figure:
    """One panel per statistic of normalised scores: a tick for the number, a bar for its interval."""
    chosen = [(setup, row) for setup, row in zip(setups, rows, strict=True) if row["mean"] is not None]
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


def profiles(setups: Sequence[Setup], targets: Mapping[str, Target]) -> Figure:
    """The share of runs above each normalised score, and the IQM of normalised training returns by step."""
    made, axes = figure(10.0, 3.6 + 0.2 * len(setups) / 3, 1, 2)
    scores = {setup.label: list(normalised(setup, targets).values()) for setup in setups}
    pooled = np.concatenate([env for found in scores.values() for env in found])
    low, high = min(pooled.min(), 0.0), max(pooled.max(), 1.0)
    margin = 0.05 * (high - low)
    thresholds = np.linspace(low - margin, high + margin, POINTS)
    for setup in (setup for setup in setups if scores[setup.label]):
        shown = replace(setup, label=_counted(setup.label, len(scores[setup.label]), len(targets)))
        _band(axes[0, 0], thresholds, lambda drawn: profile(drawn, thresholds), scores[setup.label], shown)
        _efficiency(axes[0, 1], shown, targets)
    axes[0, 0].set(title="performance profile", xlabel="normalised score τ", ylabel="share of runs above τ")
    _step_axis(axes[0, 1], "sample efficiency")
    axes[0, 1].set_ylabel("IQM of normalised training returns")
    _legend(made, axes)
    return made


def _counted(label: str, count: int, of: int) -> str:
    """A label that says in how many environments the setup was run; nothing to say if there is only one."""
    return label if of == 1 else f"{label} ({count} of {of})"


def _efficiency(ax: Axes, setup: Setup, targets: Mapping[str, Target]) -> None:
    """Over the steps that every seed in every environment has."""
    lines = {env: line for env, line in setup.lines.items() if env in targets}
    ranges = [at for line in lines.values() if (at := curve_of(line)[0]).size]
    if len(ranges) < len(lines):
        return
    first, last = max(at[0] for at in ranges), min(at[-1] for at in ranges)
    steps = np.linspace(first, last, POINTS) if first < last else np.empty(0)
    strata = [targets[env].normalise(curve_of(line, steps)[1]) for env, line in lines.items()]
    _band(ax, steps, iqm, strata, setup)


def improvements(setups: Sequence[Setup], rows: Sequence[Row]) -> Figure:
    """P(row better than column) over the environments that both have."""
    labels, table = [setup.label for setup in setups], np.full((len(setups), len(setups)), np.nan)
    for row in (row for row in rows if row["env"] == ALL):
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
