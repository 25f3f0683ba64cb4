"""MDP2: two returns with equal probability (fig:bimodal), in the paper's setting and in ours, squared and rooted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure
from numpy.typing import NDArray

from nfdrl.envs.toy import mdp2
from nfdrl.laws.flow import FlowMethod
from nfdrl.losses.exact import Exact
from nfdrl.losses.l2 import L2
from nfdrl.losses.surrogate import Surrogate
from nfdrl.paper.base import Experiment, Result
from nfdrl.paper.toy import Learned, learn_pair, valley, with_spread
from nfdrl.progress import Progress
from nfdrl.style import draw_law, draw_truth, figure, legend_below
from nfdrl.training.policy_laws import PolicyLearning

SETTINGS = PolicyLearning(updates=1_500, batch_size=32, learning_rate=2e-2)
SMOKE = PolicyLearning(updates=60, batch_size=16, learning_rate=2e-2)

MIDDLE = 0.55  # between the two returns
LOADED = 0.7  # a coin that is not fair: a loss that seeks a median prefers one side, where at ½ it is indifferent
SPREAD = 0.1  # fig:bimodal: final reward standard error

# fig:bimodal: h = 0.05. The surrogate is eq:loss, rooted, at the returns of both laws, by Algorithm 1's interpolation;
# gradients flow through the kernel estimate (docs/deviations.md shows what happens without).
EXACT, DENSITIES = Exact(bandwidth=0.05), L2(kernel="gaussian", bandwidth=0.05, relative_bandwidth=0.0)
PRINTED = Surrogate(
    kernel="gaussian", bandwidth=0.05, relative_bandwidth=0.0, support="interpolated", rooted=True, averaged=True
)


@dataclass(frozen=True)
class Case:
    """One loss on one coin."""

    label: str
    comparison: Exact | Surrogate | L2
    terminal_std: float = 0.0
    chance: float = 0.5  # of 0.8


CASES = (
    Case("paper: exact", EXACT, SPREAD),
    Case("paper: surrogate", PRINTED, SPREAD),
    Case("paper: L²", DENSITIES, SPREAD),
    Case("ours: exact", Exact()),
    Case("ours: surrogate", Surrogate()),
    Case("ours: L²", L2()),
    Case("paper: surrogate, p = 0.7", PRINTED, SPREAD, LOADED),
    Case("… squared", replace(PRINTED, rooted=False), SPREAD, LOADED),
    Case("… at the samples", replace(PRINTED, support="samples"), SPREAD, LOADED),
    Case("… on a shared grid", replace(PRINTED, support="shared"), SPREAD, LOADED),
    Case("ours: surrogate, p = 0.7", Surrogate(), 0.0, LOADED),
    Case("… rooted", Surrogate(rooted=True), 0.0, LOADED),
    Case("ours: exact, p = 0.7", Exact(), 0.0, LOADED),
    Case("… rooted, exact", Exact(rooted=True), 0.0, LOADED),
)


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Learn the law of (s1, a1) with every loss from the same stream of sampled transitions."""
    settings = SMOKE if smoke else SETTINGS
    learned = []
    for case in CASES:
        one = learn_pair(
            mdp2(p=case.chance), (0, 0), FlowMethod(case.comparison, terminal_std=case.terminal_std), settings,
            label=case.label, seed=seed, progress=progress,
            loss_form=case.label, rooted=case.comparison.rooted, probability=case.chance,
            terminal_std=case.terminal_std,
        )  # fmt: skip
        below = one.law.cdf(MIDDLE)
        one.row.update(mean=one.law.mean(), below=below, true_below=1 - case.chance, valley=valley(one.law, 0.3, 0.8))
        learned.append(one)
    return Result([one.row for one in learned], learned)


def draw(result: Result) -> Figure:
    """The paper's three panels; ours under them; the mass on the lower return for every form on a loaded coin."""
    learned: list[Learned] = result.data
    made, axes = figure(11.5, 5.8, 2, 4)
    for ax, one in zip([*axes[0][:3], *axes[1][:3]], learned[:6], strict=True):
        ours = one.label.startswith("ours")
        draw_truth(ax, one.truth if ours else with_spread(one.truth, SPREAD))
        draw_law(ax, one.law, one.method, low=-0.1, high=1.2)
        ax.set(title=f"{one.label}\nP(Z < {MIDDLE}) = {float(one.row['below']):.3f}", xlim=(-0.1, 1.2))
        ax.set_ylim(
            0, 60 if ours else 4
        )  # peaks are cut off: narrow atoms, and the edges of a flow's range, have no height
    axes[0][0].set_ylabel("density, cut at 4")
    axes[1][0].set_ylabel("density, cut at 60")
    for ax in axes[1][:3]:
        ax.set_xlabel("return")
    made.suptitle(
        f"paper: bandwidth 0.05, final spread {SPREAD}, surrogate rooted and interpolated to the returns; "
        "all: 64 midpoints, gradients through the kernel estimate",
        fontsize=10,
    )
    _masses(made, axes, learned[6:])
    legend_below(made, axes, columns=5)
    return made


def _masses(made: Figure, axes: NDArray[Any], learned: list[Learned]) -> None:
    """How much of the law lies on the lower return, which has probability 0.3."""
    for ax in axes[:, 3]:
        ax.remove()
    ax = made.add_subplot(axes[0, 3].get_gridspec()[:, 3])
    for height, one in enumerate(learned):
        ax.barh(height, float(one.row["below"]), color=one.method.colour, alpha=0.45 if one.row["rooted"] else 1.0)
    ax.axvline(1 - LOADED, color="black", linewidth=1, linestyle="--")
    ax.set(yticks=range(len(learned)), yticklabels=[one.label.replace(", p = 0.7", "") for one in learned], xlim=(0, 1))
    ax.set(xlabel=f"P(Z < {MIDDLE}); dashed: true", title="p = 0.7; pale: rooted")
    ax.tick_params(axis="y", labelsize=8)
    ax.invert_yaxis()


EXPERIMENT = Experiment("mdp2", "Two returns with equal probability", compute, draw)
