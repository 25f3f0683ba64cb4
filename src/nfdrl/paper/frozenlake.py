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
from nfdrl.paper.base import SAMPLES, Experiment, Result
from nfdrl.progress import Progress
from nfdrl.style import color_of
from nfdrl.training.policy_laws import PolicyLearning, learn_policy_laws

DISCOUNT = 0.95
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
    """The map on the left; on the right a row for each state that goes on, a column for each action."""
    lake: Lake = result.data
    states = sorted({int(state) for state, _ in lake.truth.pairs})
    made = Figure(figsize=(12.5, 1.0 * len(states) + 1.2), layout="constrained")
    parts: Any = made.subfigures(1, 2, width_ratios=(1, 2.6))  # Matplotlib types a single subfigure only
    left, right = parts
    _draw_map(left.subplots(), lake, result)
    axes = right.subplots(len(states), 4, sharex=True, sharey=True)
    y = torch.linspace(-0.05, 1.02, 900, dtype=lake.law.reference.dtype)
    learned = lake.law.cdf(y)
    distances = {(row["state"], row["action"]): float(row["cramer"]) for row in result.rows}
    for k, (state, action) in enumerate(lake.truth.pairs):
        ax = axes[states.index(int(state))][action]
        _draw_pair(ax, y, lake.truth.laws[k].cdf(y), learned[k], distances[int(state), ARROWS[action]])
    for action, arrow in enumerate(ARROWS):
        axes[0][action].set_title(f"action {arrow}", loc="center")
        axes[-1][action].set_xlabel("return")
    for row, state in zip(axes, states, strict=True):
        row[0].set_ylabel(f"state {state}", rotation=0, ha="right", va="center")
    right.suptitle("P(Z ≤ return): exact (grey) and learned by NFDRL-S (blue); ℓ₂ is the Cramér distance")
    return made


def _draw_pair(ax: Axes, y: torch.Tensor, exact: torch.Tensor, learned: torch.Tensor, distance: float) -> None:
    ax.fill_between(y, exact, step="mid", color=LIGHT, linewidth=0)
    ax.plot(y, exact, color=GREY, linewidth=1.6)
    ax.plot(y, learned, color=color_of("nfdrl-s"), linewidth=1.3)
    ax.set(ylim=(0, 1.05), yticks=(0, 1), xticks=(0, 0.5, 1))
    ax.text(0.97, 0.08, f"ℓ₂ = {distance:.3f}", transform=ax.transAxes, ha="right", fontsize=8)


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
