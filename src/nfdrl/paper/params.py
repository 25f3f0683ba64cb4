"""Parameters against resolution: C51's head grows with its atoms, a flow head does not (fig:n_params, left)."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from nfdrl.colours import BLUE, GREY, INK, ORANGE, SKY
from nfdrl.laws.base import Method
from nfdrl.laws.categorical import C51
from nfdrl.laws.flow import FlowMethod
from nfdrl.paper.base import Experiment, Result
from nfdrl.progress import Progress
from nfdrl.style import figure

# Minimal action sets of the Atari-5 games and Pong in the Arcade Learning Environment.
ACTIONS = {"Pong": 6, "NameThisGame": 6, "Q*bert": 6, "Phoenix": 8, "BattleZone": 18, "DoubleDunk": 18}
ATOMS = (2, 5, 8, 11, 13, 21, 31, 41, 51, 71, 101)
COMPONENTS = (2, 4, 8)
PAPER_COMPONENTS, PAPER_CROSSING = 4, 11
HIDDEN_1, HIDDEN_2 = 512, 256  # paper, table of hyper-parameters: hidden_size_1, hidden_size_2


@dataclass(frozen=True)
class Curve:
    """Head parameters of C51 over ATOMS, and of NFDRL over COMPONENTS, for one number of actions."""

    actions: int
    torso: int
    c51: list[int]
    flow: dict[int, int]


def paper_torso() -> nn.Module:
    """CleanRL's convolutions on 84×84×4 frames, then the paper's hidden layers 512 and 256."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, HIDDEN_1), nn.ReLU(),
        nn.Linear(HIDDEN_1, HIDDEN_2), nn.ReLU(),
    )  # fmt: skip


def count(module: nn.Module) -> int:
    """The number of trained numbers, counted on the module itself."""
    return sum(parameter.numel() for parameter in module.parameters())


def compute(seed: int, smoke: bool, progress: Progress) -> Result:  # noqa: ARG001
    """Build every head on the paper's torso and count."""
    torso = count(paper_torso())
    rows, curves = [], []
    for actions in progress.track(sorted(set(ACTIONS.values())), "heads"):
        methods: list[tuple[str, int, Method]] = [("c51", k, C51(atoms=k)) for k in ATOMS]
        methods += [("nfdrl", n, FlowMethod(components=n)) for n in COMPONENTS]
        counted = {(name, size): count(method.head(HIDDEN_2, actions)) for name, size, method in methods}
        for (name, size), parameters in counted.items():
            rows.append(_row(name, size, actions, parameters, torso, counted["nfdrl", PAPER_COMPONENTS]))
        c51 = [counted["c51", k] for k in ATOMS]
        curves.append(Curve(actions, torso, c51, {n: counted["nfdrl", n] for n in COMPONENTS}))
    rows += [_crossing(curve, n) for curve in curves for n in COMPONENTS]
    return Result(rows, curves)


def _row(name: str, size: int, actions: int, parameters: int, torso: int, flow: int) -> dict[str, object]:
    """`size` is atoms or components, `outputs` those of one action, `ratio` to the head of NFDRL with 4 components."""
    return {
        "method": name,
        "size": size,
        "actions": actions,
        "outputs": parameters // ((HIDDEN_2 + 1) * actions),
        "head": parameters,
        "network": torso + parameters,
        "ratio": round(parameters / flow, 4),
    }


def _crossing(curve: Curve, components: int) -> dict[str, object]:
    """The number of atoms at which C51's head is as large as NFDRL's, by the line through two counted heads."""
    slope = (curve.c51[-1] - curve.c51[0]) / (ATOMS[-1] - ATOMS[0])
    atoms = ATOMS[0] + (curve.flow[components] - curve.c51[0]) / slope
    return {
        "method": "crossing",
        "size": components,
        "actions": curve.actions,
        "crossing": round(atoms, 6),
        "printed": PAPER_CROSSING if components == PAPER_COMPONENTS else None,
    }


def draw(result: Result) -> Figure:
    """Head alone, and the whole network, for the fewest and the most actions."""
    made, axes = figure(9.0, 3.9, 1, 2)
    curves = (result.data[0], result.data[-1])
    _draw_head(axes[0, 0], curves[-1])
    _draw_network(axes[0, 1], curves)
    for ax in axes.flat:
        ax.set_xlabel("atoms of C51")
        ax.set_ylim(0)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return made


def _draw_head(ax: Axes, curve: Curve) -> None:
    ax.plot(ATOMS, [p / 1e3 for p in curve.c51], "o-", color=ORANGE, markersize=4, label="C51")
    for (n, parameters), style in zip(curve.flow.items(), (":", "-", "--"), strict=True):
        ax.axhline(parameters / 1e3, color=BLUE, linestyle=style, label=f"NFDRL, n = {n}")
    flow, height = curve.flow[PAPER_COMPONENTS] / 1e3, curve.c51[-1] / 1e3
    ax.plot([13], [flow], "o", color=INK, markersize=7, zorder=5)
    ax.annotate("13 atoms: equal\n(3n + 1 outputs per action)", (13, flow), (4, 0.62 * height), arrowprops=ARROW)
    ax.plot([PAPER_CROSSING], [0], "^", color=GREY, markersize=8, clip_on=False, zorder=5)
    ax.annotate("paper: 11", (PAPER_CROSSING, 0), (45, 0.185 * height), arrowprops=ARROW, va="center")
    ax.set(title=f"Head alone, {curve.actions} actions", ylabel="parameters (thousands)")


ARROW = {"arrowstyle": "-", "color": GREY, "linewidth": 1}


def _draw_network(ax: Axes, curves: tuple[Curve, ...]) -> None:
    for curve, style, (dark, light) in zip(curves, ("--", "-"), ((ORANGE, SKY), (ORANGE, BLUE)), strict=True):
        whole = [(curve.torso + p) / 1e6 for p in curve.c51]
        flow = (curve.torso + curve.flow[PAPER_COMPONENTS]) / 1e6
        ax.plot(ATOMS, whole, style, color=dark, label=f"C51, {curve.actions} actions")
        ax.axhline(flow, color=light, linestyle=style, label=f"NFDRL n = 4, {curve.actions} actions")
    ax.axhspan(0, curves[0].torso / 1e6, color="#f0f0f0", zorder=0)
    ax.text(50, 0.5 * curves[0].torso / 1e6, "shared torso", ha="center", va="center")
    ax.set(title="Whole network on the same torso", ylabel="parameters (millions)")


EXPERIMENT = Experiment("params", "Parameters against resolution", compute, draw)
