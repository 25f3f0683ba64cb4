"""The conditional flow as a diagram (fig:architecture), and the toy MDPs drawn from their tables (fig:simpleMDP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from nfdrl.colours import BLUE, INK
from nfdrl.envs.finite import FiniteMDP
from nfdrl.envs.toy import TOY_MDPS
from nfdrl.laws.flow import FlowMethod
from nfdrl.paper.base import Experiment, Result
from nfdrl.progress import Progress

FEATURES, ACTIONS, COMPONENTS = 256, 6, 4  # paper, table of hyper-parameters; six actions as in Pong
INPUT, STEP, VALUE = "#d5efe6", "#fbe6c2", "#d6eaf8"


@dataclass(frozen=True)
class Box:
    """One node of the diagram: its centre, its words, its colour."""

    x: float
    y: float
    text: str
    color: str
    width: float = 1.25


# Rows of the diagram: prediction below, target above. Coordinates are in units of one box height.
BOXES: dict[str, Box] = {
    "x": Box(0.0, 0.0, "state $x$", INPUT, 1.0),
    "h": Box(1.75, 0.0, "network $h_\\theta$", STEP, 1.5),
    "w": Box(3.9, 1.0, "weights $w_i$", VALUE, 1.7),
    "m": Box(3.9, 0.33, "locations $\\mu_i$", VALUE, 1.7),
    "s": Box(3.9, -0.33, "scales $\\sigma_i$", VALUE, 1.7),
    "g": Box(3.9, -1.0, "range $G$", VALUE, 1.7),
    "z": Box(6.3, 1.6, "noise $z_k \\sim N(0, 1)$", INPUT, 2.2),
    "F": Box(6.3, 0.33, "$F(z)=\\sum w_i\\,\\Phi(\\frac{z-\\mu_i}{\\sigma_i})$", STEP, 2.5),
    "f": Box(6.3, -1.0, "$f(u) = G\\,(2u-1)$", STEP, 2.2),
    "y": Box(9.4, -1.0, "returns $y_k$, density $\\eta(y_k)$", VALUE, 2.9),
    "b": Box(9.4, 0.33, "$b(y) = r + \\gamma y$", STEP, 1.9),
    "r": Box(9.4, 1.6, "reward $r$, next state $x'$", INPUT, 2.4),
    "t": Box(12.3, 0.33, "target $T\\eta$", VALUE, 1.6),
    "L": Box(12.3, -1.0, "Cramér loss", STEP, 1.6),
}
ARROWS = ("xh", "hw", "hm", "hs", "hg", "wF", "mF", "sF", "gf", "zF", "Ff", "fy", "rb", "bt", "tL", "yL")


def compute(seed: int, smoke: bool, progress: Progress) -> Result:  # noqa: ARG001
    """Count the outputs of a real head, and the outcomes of the real MDPs."""
    head = FlowMethod(components=COMPONENTS).head(FEATURES, ACTIONS)
    outputs = head.linear.out_features
    rows: list[dict[str, Any]] = [
        {
            "method": "nfdrl",
            "what": "head",
            "features": FEATURES,
            "actions": ACTIONS,
            "components": COMPONENTS,
            "outputs": outputs,
            "per_action": outputs // ACTIONS,
            "parameters": sum(p.numel() for p in head.parameters()),
        }
    ]
    mdps = {name: make() for name, make in TOY_MDPS.items()}
    for name, mdp in mdps.items():
        counts = {"states": mdp.n_states, "outcomes": len(mdp.rows.state), "discount": mdp.discount}
        rows.append({"what": name, "actions": mdp.n_actions, **counts})
    return Result(rows, {"mdps": mdps, "outputs": outputs // ACTIONS})


def draw(result: Result) -> Figure:
    """The diagram above, the three MDPs below."""
    made = Figure(figsize=(9.6, 6.0), layout="constrained")
    layout = made.subplot_mosaic(
        [["flow"] * 3, ["mdp1", "mdp2", "mdp3"]], height_ratios=[1.25, 1], width_ratios=[1, 1, 1.25]
    )
    _draw_flow(layout["flow"], result.data["outputs"])
    for name, mdp in result.data["mdps"].items():
        draw_mdp(layout[name], mdp)
    return made


def _draw_flow(ax: Axes, outputs: int) -> None:
    for box in BOXES.values():
        _draw_box(ax, box)
    for arrow in ARROWS:
        _connect(ax, BOXES[arrow[0]], BOXES[arrow[1]])
    # The target is the same two flows at the next state; their returns enter the bootstrap.
    ax.add_patch(FancyArrowPatch((7.4, -0.8), (8.43, 0.2), linestyle="--", **_arrow_style()))
    ax.text(7.72, -0.28, "the same at $x'$", ha="right", va="center", fontsize=9)
    ax.text(3.9, -1.5, f"n = {COMPONENTS}: {outputs} outputs an action", ha="center", va="top")
    ax.text(7.8, -1.5, "prediction: the flow at $x$", ha="center", va="top")
    ax.text(9.4, -0.02, "one more affine flow", ha="center", va="top", fontsize=9)
    ax.set(title="The conditional flow", xlim=(-0.6, 13.25), ylim=(-1.95, 2.0))
    ax.axis("off")


def _draw_box(ax: Axes, box: Box) -> None:
    corner = (box.x - box.width / 2, box.y - 0.25)
    ax.add_patch(
        FancyBboxPatch(
            corner,
            box.width,
            0.5,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=box.color,
            edgecolor=INK,
            linewidth=1,
        )
    )
    ax.text(box.x, box.y, box.text, ha="center", va="center", fontsize=9.5)


def _connect(ax: Axes, start: Box, end: Box) -> None:
    """From side to side, or from top to bottom for boxes above each other."""
    if abs(start.x - end.x) < 0.1:
        sign = np.sign(end.y - start.y)
        points = (start.x, start.y + 0.25 * sign), (end.x, end.y - 0.25 * sign)
    else:
        points = (start.x + start.width / 2, start.y), (end.x - end.width / 2, end.y)
    ax.add_patch(FancyArrowPatch(*points, **_arrow_style()))


def _arrow_style() -> dict[str, Any]:
    return {"arrowstyle": "-|>", "mutation_scale": 11, "color": INK, "linewidth": 1, "shrinkA": 0, "shrinkB": 1}


def positions(mdp: FiniteMDP) -> dict[int, tuple[float, float]]:
    """A place for each state: the column is the number of steps from the start, states of one column are stacked."""
    depth = {int(np.argmax(np.asarray(mdp.initial))): 0}
    rows = mdp.rows
    for _ in range(mdp.n_states):
        for s, t in zip(rows.state.tolist(), rows.next_state.tolist(), strict=True):
            if s in depth and t not in depth:
                depth[t] = depth[s] + 1
    columns: dict[int, list[int]] = {}
    for state, column in depth.items():
        columns.setdefault(column, []).append(state)
    return {s: (float(c), (len(group) - 1) / 2 - k) for c, group in columns.items() for k, s in enumerate(group)}


def draw_mdp(ax: Axes, mdp: FiniteMDP) -> None:
    """States as circles (double where the episode ends), one arrow an outcome with action, chance and reward."""
    places, rows = positions(mdp), mdp.rows
    names = mdp.state_names or tuple(str(s) for s in range(mdp.n_states))
    for state, (x, y) in places.items():
        ax.scatter([x], [y], s=720, color=VALUE, edgecolor=BLUE, linewidth=1.4, zorder=3)
        if mdp.terminal[state]:
            ax.scatter([x], [y], s=480, color="none", edgecolor=BLUE, linewidth=1, zorder=4)
        ax.text(x, y, f"${names[state][0]}_{{{names[state][1:]}}}$", ha="center", va="center", zorder=5)
    pairs = list(zip(rows.state.tolist(), rows.next_state.tolist(), strict=True))
    for k, pair in enumerate(pairs):
        twins = [j for j, other in enumerate(pairs) if other == pair]
        bend = 0.0 if len(twins) == 1 else 0.55 * (1 if twins.index(k) == 0 else -1)
        _draw_outcome(ax, mdp, k, places, bend)
    last = max(x for x, _ in places.values())
    ax.set(title=f"{mdp.name.upper()}, γ = {mdp.discount:g}", xlim=(-0.15 * last, 1.15 * last), ylim=(-1.1, 1.1))
    ax.axis("off")


def _draw_outcome(ax: Axes, mdp: FiniteMDP, k: int, places: dict[int, tuple[float, float]], bend: float) -> None:
    start, end = places[int(mdp.rows.state[k])], places[int(mdp.rows.next_state[k])]
    style = _arrow_style() | {"shrinkA": 15, "shrinkB": 15}
    ax.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={-bend}", **style))
    rise = end[1] - start[1]
    above = rise > 0 or (rise == 0 and bend >= 0)
    ax.annotate(
        _outcome_label(mdp, k),
        ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.5 * bend),
        (-4 if rise else 0, 4 if above else -4),
        textcoords="offset points",
        ha="right" if rise else "center",
        va="bottom" if above else "top",
        fontsize=9,
        linespacing=1.1,
    )


def _outcome_label(mdp: FiniteMDP, k: int) -> str:
    """Action, chance where there is one, and the reward."""
    rows = mdp.rows
    name = (mdp.action_names or tuple(str(a) for a in range(mdp.n_actions)))[int(rows.action[k])]
    chance = "" if rows.probability[k] == 1 else f", {rows.probability[k]:g}"
    reward, std = rows.reward[k], rows.reward_std[k]
    paid = f"$r={reward:g}$" if std == 0 else f"$r\\sim N({reward:g}, {std:g})$"
    return f"${name[0]}_{{{name[1:]}}}${chance}\n{paid}"


EXPERIMENT = Experiment("architecture", "The conditional flow and the toy MDPs", compute, draw)
