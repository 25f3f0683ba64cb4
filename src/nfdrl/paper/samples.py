"""How many base samples a law needs: loss and distance to truth on MDP2 against their number (fig:n_params, right)."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from matplotlib.figure import Figure
from torch import Tensor

from nfdrl.colours import BLUE, ORANGE, PURPLE
from nfdrl.envs.toy import mdp2
from nfdrl.evaluation.distances import distances
from nfdrl.laws.base import Law
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.pushforward import PushforwardLaw
from nfdrl.losses.surrogate import Surrogate
from nfdrl.numerics.base_points import base_points
from nfdrl.numerics.normal import normal_cdf
from nfdrl.paper.base import Experiment, Result
from nfdrl.paper.mdp2 import PRINTED, SPREAD
from nfdrl.paper.toy import learn_pair, with_spread
from nfdrl.progress import Progress
from nfdrl.style import figure, legend_below
from nfdrl.training.policy_laws import PolicyLearning

MEASURED = 500  # paper, table of hyper-parameters: n_samples
YARDSTICK = Surrogate(kernel="gaussian", bandwidth=0.05, relative_bandwidth=0.0, grid_size=MEASURED)
SIZES = (4, 8, 16, 32, 64, 100, 200, 500)
SEEDS = 5  # of training, per number of samples
SETTINGS = PolicyLearning(updates=800, batch_size=32, learning_rate=2e-2)
SMOKE = PolicyLearning(updates=40, batch_size=8, learning_rate=2e-2)


class Line(NamedTuple):
    """A loss, and where its base points are taken."""

    label: str
    color: str
    comparison: Surrogate
    points: str
    terminal_std: float = 0.0


OURS = Surrogate(grid_size=512)  # one grid for all numbers of samples
LINES = (
    Line("paper: random points", PURPLE, PRINTED, "random", SPREAD),
    Line("ours: random points", ORANGE, OURS, "random"),
    Line("ours: midpoints", BLUE, OURS, "midpoint"),
)


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Learn MDP2 with more and more base samples: as the paper does, with our loss, and with points placed by rule."""
    rows = []
    for line in LINES:
        for size in SIZES[:3] if smoke else SIZES:
            method = FlowMethod(line.comparison, samples=size, points=line.points, terminal_std=line.terminal_std)
            for k in range(1 if smoke else SEEDS):
                learned = learn_pair(
                    mdp2(), (0, 0), method, SMOKE if smoke else SETTINGS,
                    label=f"{line.label}, {size}", seed=SEEDS * seed + k, progress=progress,
                    line=line.label, points=line.points, samples=size, terminal_std=line.terminal_std,
                    training_seed=SEEDS * seed + k,
                )  # fmt: skip
                truth = with_spread(learned.truth, line.terminal_std)  # what the targets of this line add up to
                rows.append(learned.row | distances(learned.law, truth) | {"loss": yardstick(learned.law, truth)})
    return Result(rows)


def yardstick(law: Law, truth: MixtureLaw) -> Tensor:
    """The paper's surrogate of a learned law against the true one, the same for every number of samples trained with.

    Losses in training cannot be compared: their grids follow the outermost of the samples.
    """
    assert isinstance(law, PushforwardLaw)
    z = base_points(MEASURED, like=law.bound)
    exact = truth.quantile(normal_cdf(z.double())).to(z.dtype)
    return MEASURED**2 * YARDSTICK(law.at(z)[None], exact[None])[0]


def draw(result: Result) -> Figure:
    """The loss on the left, the distance to the true law on the right: every seed, and lines through their medians."""
    made, axes = figure(9.0, 3.9, 1, 2)
    told: list[str] = []
    for line in LINES:
        rows = [row for row in result.rows if row["line"] == line.label]
        sizes = sorted({row["samples"] for row in rows})
        for ax, key in zip(axes[0], ("loss", "cramer"), strict=True):
            found = {size: [float(row[key]) for row in rows if row["samples"] == size] for size in sizes}
            ax.plot(sizes, [median(values) for values in found.values()], "-", color=line.color, label=line.label)
            for size, values in found.items():
                ax.plot([size] * len(values), values, "o", color=line.color, markersize=3, alpha=0.6)
        best = {size: median(float(row["cramer"]) for row in rows if row["samples"] == size) for size in sizes}
        enough = min(size for size, value in best.items() if value <= 1.1 * min(best.values()))
        told.append(f"{line.label} {enough}")
    made.suptitle(
        "The paper reports a plateau around 100 samples. Line 'paper': its kernel, spread and root, with gradients "
        "through the KDE.\n"
        f"Fewest samples within 10 % of the best median distance: {'; '.join(told)}",
        fontsize=9.5,
    )
    axes[0][0].set(ylabel="surrogate loss of the learned law", yscale="log")
    axes[0][1].set(ylabel="Cramér distance to the truth", yscale="log")
    for ax in axes[0]:
        ax.axvline(100, color="black", linewidth=0.8, linestyle="--")
        ax.set(xlabel="base samples (dashed: 100)", xscale="log")
    legend_below(made, axes)
    return made


EXPERIMENT = Experiment("samples", "Loss and accuracy against the number of base samples", compute, draw)
