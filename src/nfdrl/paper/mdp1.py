"""MDP1: a deterministic return, learned as narrowly as it is asked for (fig:final), and bootstrapped (fig:MDP)."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from nfdrl.envs.toy import mdp1
from nfdrl.laws.base import Law
from nfdrl.laws.flow import FlowMethod
from nfdrl.losses.exact import Exact
from nfdrl.losses.surrogate import Surrogate
from nfdrl.paper.base import SAMPLES, Experiment, Result
from nfdrl.paper.toy import Learned, learn_pair
from nfdrl.progress import Progress
from nfdrl.style import draw_law, draw_truth, figure, legend_below
from nfdrl.training.policy_laws import PolicyLearning

SETTINGS = PolicyLearning(updates=2_000, batch_size=32, learning_rate=2e-2)
SMOKE = PolicyLearning(updates=60, batch_size=16, learning_rate=2e-2)

# Bandwidth and terminal spread of the three panels of fig:final, and of fig:MDP.
GRANULARITIES = ((0.05, 0.1), (0.01, 0.01), (0.001, 0.01))
BOOTSTRAPPED = (0.05, 0.01)
METHODS = ("nfdrl-e", "nfdrl-s")
RELATIVE = 0.05  # ours: least bandwidth of the surrogate, as a share of both laws' range


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Learn (s2, a1) at three granularities and (s1, a1) once, with both losses."""
    settings = SMOKE if smoke else SETTINGS
    learned = []
    for name in METHODS:
        cases = [(mdp1(r2=0.8), (1, 0), setting) for setting in GRANULARITIES]
        cases.append((mdp1(r1=-0.8, r2=0.3), (0, 0), BOOTSTRAPPED))
        for mdp, pair, (bandwidth, spread) in cases:
            # A bandwidth far under the distance of the two laws gives no slope to follow. The relative part keeps
            # it in sight and has fallen under the absolute one by the time the laws meet.
            surrogate = Surrogate(kernel="gaussian", bandwidth=bandwidth, relative_bandwidth=RELATIVE)
            comparison = Exact(bandwidth=bandwidth) if name == "nfdrl-e" else surrogate
            one = learn_pair(
                mdp, pair, FlowMethod(comparison, terminal_std=spread, samples=SAMPLES), settings,
                label=f"{name} h={bandwidth} σ={spread}", seed=seed, progress=progress,
                bandwidth=bandwidth, terminal_std=spread,
            )  # fmt: skip
            one.row["core"] = core(one.law)
            learned.append(one)
    return Result([one.row for one in learned], learned)


def core(law: Law) -> float:
    """Half the width of the middle 68 %: the standard deviation of a Gaussian, whatever the tails of the law are.

    A flow is narrow only where its components leave the base noise alone: one of them ends up in its tail, and the law
    passes there from one end of its range to the other. That is little mass, which training moves slowly, but most of
    the variance (docs/deviations.md).
    """
    low, high = law.quantile(torch.tensor([0.16, 0.84], dtype=law.reference.dtype))
    return float(high - low) / 2


def draw(result: Result) -> Figure:
    """Three granularities and the bootstrapped pair in a row for each loss."""
    learned: list[Learned] = result.data
    made, axes = figure(11.0, 5.4, 2, 4)
    for row, cases in zip(axes, (learned[:4], learned[4:]), strict=True):
        for k, (ax, one) in enumerate(zip(row, cases, strict=True)):
            center, half = (0.8, 0.4) if k < 3 else (-0.53, 0.4)
            draw_truth(ax, one.truth)
            draw_law(ax, one.law, one.method, low=center - half, high=center + half)
            ax.set(xlim=(center - half, center + half), xlabel="return")
            ax.set_ylim(bottom=0)
            pair = f"({one.row['state']}, {one.row['action']})"
            setting = f"h = {one.row['bandwidth']}, σ = {one.row['terminal_std']}"
            spreads = f"68 % within ± {one.row['core']:.2g}, std {float(one.row['std']):.2g}"
            ax.set_title(f"{pair}  {setting}\n{spreads}", fontsize=9)
        row[0].set_ylabel("density")
    made.suptitle(
        "h: bandwidth, σ: spread of the final reward. Exact: both CDFs are smoothed by h. Surrogate: its square on one "
        f"grid, h at least {RELATIVE:.0%} of both laws' range",
        fontsize=9,
    )
    legend_below(made, axes)
    return made


EXPERIMENT = Experiment("mdp1", "A deterministic return at three granularities", compute, draw)
