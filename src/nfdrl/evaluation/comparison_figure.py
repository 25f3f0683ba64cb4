"""The figure of a comparison with exact laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from nfdrl.colours import GREY, INK, LIGHT
from nfdrl.errors import NfdrlError
from nfdrl.laws import find_method
from nfdrl.style import figure, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = 44  # letters of a method in one line
LEAST_SPAN = 6.0  # on a logarithmic axis that shows less, every tick has a label, and labels overlap
FLOOR = 1e-4  # where a logarithmic axis shows smaller values, 0 included

Row = Mapping[str, Any]  # as `Entry.summary` makes it


def draw(rows: Sequence[Row]) -> Figure:
    """One panel per problem: the mean of each method, its seeds as dots, its family's limit as a tick."""
    problems = list(dict.fromkeys(row["env"] for row in rows))
    columns = min(3, len(problems))
    down = -(-len(problems) // columns)
    methods = max(sum(row["env"] == label for row in rows) for label in problems)
    lines = max(in_lines(row["method"]).count("\n") + 1 for row in rows)
    width, height = (3.4 if lines == 1 else 5.4), max(0.28, 0.14 * lines)
    made, axes = figure(width * columns + 1.2, (height * methods + 1.0) * down + 0.4, down, columns)
    panels = axes.ravel()
    for ax, label in zip(panels, problems, strict=False):
        draw_panel(ax, label, [row for row in rows if row["env"] == label])
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


def colour_of(label: str) -> str:
    """The colour of a method; grey for one of another comparison that cannot be found here."""
    try:
        return find_method(label).colour
    except NfdrlError:
        return GREY


def draw_panel(ax: Axes, title: str, rows: Sequence[Row]) -> None:
    """Methods down, Cramér distance to the right on a logarithmic axis."""
    for height, row in enumerate(rows):
        color = colour_of(row["method"])
        mean, seeds = max(row["cramer"], FLOOR), [max(value, FLOOR) for value in row["cramer_of_seeds"]]
        ax.axhline(height, color=LIGHT, linewidth=0.8, zorder=0)
        ax.scatter(mean, height, marker="D", s=42, color=color, zorder=2)
        ax.scatter(seeds, [height] * len(seeds), s=14, facecolor="white", edgecolor=color, zorder=3)
        if row["limit"] is not None:
            ax.scatter(max(row["limit"], FLOOR), height, marker="|", s=150, color=INK, linewidth=2, zorder=4)
    ax.scatter([], [], marker="D", s=42, color=GREY, label="mean of seeds")
    ax.scatter([], [], s=14, facecolor="white", edgecolor=GREY, label="one seed")
    ax.scatter([], [], marker="|", s=150, color=INK, linewidth=2, label="limit of its family")
    ax.set(yticks=range(len(rows)), xscale="log")
    low, high = ax.get_xlim()
    if (least := (LEAST_SPAN * low / high) ** 0.5) > 1:
        ax.set_xlim(low / least, high * least)
    ax.tick_params(axis="x", which="both", labelsize=7)
    labels = [in_lines(row["method"]) for row in rows]
    ax.set_yticklabels(labels, fontsize=7 if any("\n" in label for label in labels) else None)
    ax.set(title=title, xlabel="Cramér distance to truth")
    ax.invert_yaxis()
