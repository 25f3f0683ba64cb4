"""The figure of a tuning: the objective by trial, and against each setting that was searched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from nfdrl.colours import BLUE, GREY, INK, ORANGE
from nfdrl.style import figure, legend_below
from nfdrl.sweeps.tuning_spec import Choice, Range, TuneSpec
from nfdrl.sweeps.tuning_trial import Record

PANEL = 2.9, 2.9  # inches
ACROSS = 4  # panels in a row
MARGIN = 0.04  # of a range, on each side
DECADES = 50  # a logarithmic range below this factor has marks at 1, 2 and 5
SPREAD = 0.12  # by which equal choices are drawn apart


def draw(spec: TuneSpec, records: Sequence[Record]) -> Figure:
    """One panel with the trials in order and the best so far, and one per setting."""
    space = spec.space()
    count = 1 + len(space)
    across = min(ACROSS, count)
    down = -(-count // across)
    made, axes = figure(max(PANEL[0] * across, 6.4), PANEL[1] * down + 0.5, down, across, sharey=True)
    panels = list(axes.ravel())
    _by_trial(panels[0], spec, records)
    for ax, (name, values) in zip(panels[1:], space.items(), strict=False):
        _slice(ax, spec, records, name, values)
    for ax in panels[count:]:
        ax.axis("off")
    for ax in axes[:, 0]:
        ax.set_ylabel(spec.objective if spec.objective != "return" else "mean return")
    legend_below(made, axes)
    return made


def _points(spec: TuneSpec, records: Sequence[Record], status: str) -> list[tuple[Record, float]]:
    return [(one, one.progress(spec.steps)[-1][1]) for one in records if one.status == status and one.readings]


def _by_trial(ax: Axes, spec: TuneSpec, records: Sequence[Record]) -> None:
    finished = _points(spec, records, "finished")
    _scatter(ax, [one.number for one, _ in finished], finished, True)
    stopped = _points(spec, records, "stopped")
    if stopped:
        _scatter(ax, [one.number for one, _ in stopped], stopped, False)
    if finished:
        so_far = (np.maximum if spec.aim.mode == "max" else np.minimum).accumulate([value for _, value in finished])
        numbers = [one.number for one, _ in finished]
        last = max(one.number for one in records)
        ax.step(
            [*numbers, last],
            [*so_far, so_far[-1]],
            where="post",
            color=INK,
            linewidth=1.2,
            label="best so far",
            zorder=1,
        )
        _star(ax, spec, finished, numbers)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(title="trials, in order")


def _slice(ax: Axes, spec: TuneSpec, records: Sequence[Record], name: str, values: Range | Choice) -> None:
    """The objective against one setting; choices are places on the axis."""
    words = list(values.values) if isinstance(values, Choice) else []

    def place(record: Record) -> float:
        value = record.settings[name]
        if not isinstance(values, Choice):
            return float(value)
        apart = np.random.default_rng(record.number).uniform(-SPREAD, SPREAD)
        return words.index(values.word(value)) + float(apart)

    for status in ("finished", "stopped"):
        found = _points(spec, records, status)
        x = [place(record) for record, _ in found]
        if found:
            _scatter(ax, x, found, status == "finished")
        if found and status == "finished":
            _star(ax, spec, found, x)
    if isinstance(values, Range):
        if values.log:
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())
            if values.high < DECADES * values.low:
                ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                ax.xaxis.set_major_formatter("{x:g}")
        margin = (values.high / values.low) ** MARGIN if values.log else MARGIN * (values.high - values.low)
        ends = (
            (values.low / margin, values.high * margin) if values.log else (values.low - margin, values.high + margin)
        )
        ax.set_xlim(*ends)
    else:
        ax.set_xticks(range(len(words)), words)
        ax.set_xlim(-0.5, len(words) - 0.5)
    ax.set(title=name)


def _scatter(ax: Axes, x: Sequence[float], points: Sequence[tuple[Record, float]], finished: bool) -> None:
    fill, label = (BLUE, "trained to the end") if finished else ("none", "stopped by ASHA")
    edge = BLUE if finished else GREY
    ax.scatter(x, [value for _, value in points], s=28, facecolors=fill, edgecolors=edge, label=label, zorder=2)


def _star(ax: Axes, spec: TuneSpec, points: Sequence[tuple[Record, float]], x: Sequence[float]) -> None:
    """Mark the best one."""
    values = [value for _, value in points]
    best = int(np.argmax(values) if spec.aim.mode == "max" else np.argmin(values))
    ax.scatter([x[best]], [values[best]], marker="*", s=170, color=ORANGE, edgecolors=INK, label="best", zorder=3)
