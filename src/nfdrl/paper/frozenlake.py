"""FrozenLake: the law of every state-action pair with the exact law behind it (fig:frozen_lake, fig:frozen_env)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from nfdrl.colours import GREEN, GREY, INK, LIGHT, SKY
from nfdrl.envs.finite import FiniteMDP
from nfdrl.evaluation.distances import batch_distances
from nfdrl.evaluation.truth import ReturnTruth, exact_returns
from nfdrl.laws.base import Law
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.paper.base import SAMPLES, Experiment, Result
from nfdrl.progress import Progress
from nfdrl.style import color_of
from nfdrl.training.policy_laws import PolicyLearning, learn_policy_laws

DISCOUNT = 0.95
BINS, LARGEST_MASS = 52, 0.1
ARROWS = ("←", "↓", "→", "↑")
SETTINGS = PolicyLearning(updates=8_000, batch_size=128, learning_rate=2e-2)
SMOKE = PolicyLearning(updates=30, batch_size=32, learning_rate=2e-2)


@dataclass(frozen=True)
class Lake:
    """What the figure draws."""

    map: NDArray[Any]
    policy: NDArray[np.int64]
    truth: ReturnTruth
    law: Law


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Learn the optimal policy's laws by TD on sampled transitions, and measure all 44 against the exact ones."""
    settings = SMOKE if smoke else SETTINGS
    mdp = FiniteMDP.from_env("FrozenLake-v1", map_name="4x4", is_slippery=True)
    policy = mdp.optimal_policy(DISCOUNT)
    truth = exact_returns(mdp, policy, DISCOUNT)
    learned = learn_policy_laws(
        mdp, policy, FlowMethod(samples=SAMPLES), settings, discount=DISCOUNT, seed=seed,
        track=lambda steps: progress.track(steps, "nfdrl-s on FrozenLake", settings.updates),
    )  # fmt: skip
    law = learned.laws(truth.pairs)
    measured = batch_distances(law, truth.laws)
    means = law.mean()
    rows = [
        {
            "method": "nfdrl-s",
            "state": int(state),
            "action": ARROWS[action],
            "mean": means[k],
            "true_mean": truth.laws[k].mean(),
            **{name: values[k] for name, values in measured.items()},
        }
        for k, (state, action) in enumerate(truth.pairs)
    ]
    average = {name: float(values.mean()) for name, values in measured.items()}
    rows.insert(0, {"method": "nfdrl-s", "state": "all", "action": "mean", "mean": None, "true_mean": None, **average})
    lake = gymnasium.make("FrozenLake-v1", map_name="4x4").unwrapped.desc.astype(str)  # type: ignore[attr-defined]
    return Result(rows, Lake(lake, policy, truth, law))


def draw(result: Result) -> Figure:
    """The map on the left; on the right a row for each state that is not final, a column for each action."""
    lake: Lake = result.data
    states = sorted({int(state) for state, _ in lake.truth.pairs})
    made = Figure(figsize=(12.5, 1.0 * len(states) + 1.2), layout="constrained")
    parts: Any = made.subfigures(1, 2, width_ratios=(1, 2.6))  # Matplotlib types a single subfigure only
    left, right = parts
    _draw_map(left.subplots(), lake, result)
    axes = right.subplots(len(states), 4, sharex=True, sharey=True)
    distances = {(row["state"], row["action"]): float(row["cramer"]) for row in result.rows}
    for k, (state, action) in enumerate(lake.truth.pairs):
        ax = axes[states.index(int(state))][action]
        _draw_pair(ax, lake.truth.laws[k], lake.law.select(k), distances[int(state), ARROWS[action]])
    for action, arrow in enumerate(ARROWS):
        axes[0][action].set_title(f"action {arrow}", loc="center")
        axes[-1][action].set_xlabel("return")
    for row, state in zip(axes, states, strict=True):
        row[0].set_ylabel(f"state {state}", rotation=0, ha="right", va="center")
    right.suptitle(
        f"exact (grey), learned by NFDRL-S (blue): masses in bins of {1.04 / BINS:.2f}; {LARGEST_MASS} fills a panel\n"
        "thin lines: P(Z ≤ return); ℓ₂: Cramér distance",
        fontsize=10,
    )
    return made


def _draw_pair(ax: Axes, truth: MixtureLaw, law: Law, distance: float) -> None:
    """Modes on top, as far as a law of atoms has any: exact masses and learned ones per bin; CDFs behind."""
    edges = torch.linspace(-0.02, 1.02, BINS + 1, dtype=torch.float64)
    middles = 0.5 * (edges[1:] + edges[:-1])
    exact, learned = (part.cdf(edges.to(part.reference.dtype)).double() for part in (truth, law))
    ax.plot(edges, exact, color=LIGHT, linewidth=2.4, zorder=0)
    ax.plot(edges, learned, color=color_of("nfdrl-s"), linewidth=0.9, alpha=0.6, zorder=1)
    heights = (exact.diff() / LARGEST_MASS).clamp(max=1)
    ax.vlines(middles, 0, heights, color=GREY, linewidth=2.2, zorder=2)
    ax.step(
        middles, (learned.diff() / LARGEST_MASS).clamp(max=1), where="mid", color=color_of("nfdrl-s"), linewidth=1.2
    )
    ax.set(ylim=(0, 1.05), yticks=(0, 1), xticks=(0, 0.5, 1))
    ax.set_title(f"ℓ₂ = {distance:.3f}", fontsize=7.5, loc="right", pad=1)


def _draw_map(ax: Axes, lake: Lake, result: Result) -> None:
    colors = {"S": SKY, "F": "#eef6fb", "H": "#44546a", "G": GREEN}
    for state, tile in enumerate(lake.map.ravel()):
        row, column = divmod(state, 4)
        ax.add_patch(_square(column, row, colors[tile]))
        ax.text(column + 0.08, row + 0.22, str(state), fontsize=9, color="white" if tile in "HG" else INK)
        if tile in "SF":
            ax.text(column + 0.5, row + 0.55, ARROWS[lake.policy[state]], ha="center", va="center", fontsize=18)
    ax.set(xlim=(0, 4), ylim=(4, 0), aspect="equal", anchor="N", xticks=(), yticks=())
    total = next(row for row in result.rows if row["state"] == "all")
    best = f"mean distance to the exact law\nover 44 pairs: ℓ₂ = {total['cramer']:.4f}, W₁ = {total['w1']:.4f}"
    ax.set_title(
        f"FrozenLake 4×4, slippery, γ = {DISCOUNT}\narrows: the optimal policy; dark: holes\n{best}", fontsize=10
    )
    ax.spines[:].set_visible(False)


def _square(column: int, row: int, color: str) -> Rectangle:
    return Rectangle((column + 0.02, row + 0.02), 0.96, 0.96, facecolor=color, edgecolor="white")


EXPERIMENT = Experiment("frozenlake", "The return law of every state-action pair of FrozenLake", compute, draw)
