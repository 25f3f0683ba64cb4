"""How many base samples a law needs: loss and distance to truth on MDP2 against their number (fig:n_params, right)."""

from __future__ import annotations

from statistics import median

from matplotlib.figure import Figure
from torch import Tensor

from nfdrl.colours import BLUE, ORANGE
from nfdrl.envs.toy import mdp2
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.pushforward import PushforwardLaw
from nfdrl.losses.surrogate import Surrogate
from nfdrl.numerics.base_points import base_points
from nfdrl.numerics.normal import normal_cdf
from nfdrl.paper.base import Experiment, Result
from nfdrl.paper.toy import Learned, learn_pair
from nfdrl.progress import Progress
from nfdrl.style import figure, legend_below
from nfdrl.training.policy_laws import PolicyLearning

MEASURED = 500  # paper, table of hyper-parameters: n_samples
YARDSTICK = Surrogate(kernel="gaussian", bandwidth=0.05, relative_bandwidth=0.0, grid_size=MEASURED)
SIZES = (4, 8, 16, 32, 64, 100, 200, 500)
RULES = (("midpoint", BLUE), ("random", ORANGE))
SEEDS = 5  # of training, per number of samples
SETTINGS = PolicyLearning(updates=800, batch_size=32, learning_rate=2e-2)
SMOKE = PolicyLearning(updates=40, batch_size=8, learning_rate=2e-2)


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Learn MDP2 with more and more base samples, placed by rule and drawn at random."""
    rows = []
    for rule, _ in RULES:
        for size in SIZES[:3] if smoke else SIZES:
            # One grid for all, so that the losses measure the same thing.
            method = FlowMethod(Surrogate(grid_size=512), samples=size, points=rule)
            for k in range(1 if smoke else SEEDS):
                learned = learn_pair(
                    mdp2(), (0, 0), method, SMOKE if smoke else SETTINGS,
                    label=f"{size} {rule} samples", seed=SEEDS * seed + k, progress=progress,
                    points=rule, samples=size, training_seed=SEEDS * seed + k,
                )  # fmt: skip
                rows.append(learned.row | {"loss": yardstick(learned)})
    return Result(rows)


def yardstick(learned: Learned) -> Tensor:
    """The paper's surrogate of a learned law against the true one, the same for every number of samples trained with.

    Losses in training cannot be compared: their grids follow the outermost of the samples.
    """
    assert isinstance(learned.law, PushforwardLaw)
    z = base_points(MEASURED, like=learned.law.bound)
    truth = learned.truth.quantile(normal_cdf(z.double())).to(z.dtype)
    return MEASURED**2 * YARDSTICK(learned.law.at(z)[None], truth[None])[0]


def draw(result: Result) -> Figure:
    """The loss on the left, the distance to the true law on the right: every seed, and lines through their medians."""
    made, axes = figure(9.0, 3.8, 1, 2)
    told: list[str] = []
    for rule, color in RULES:
        rows = [row for row in result.rows if row["points"] == rule]
        sizes = sorted({row["samples"] for row in rows})
        for ax, key in zip(axes[0], ("loss", "cramer"), strict=True):
            found = {size: [float(row[key]) for row in rows if row["samples"] == size] for size in sizes}
            ax.plot(sizes, [median(values) for values in found.values()], "-", color=color, label=f"{rule} base points")
            for size, values in found.items():
                ax.plot([size] * len(values), values, "o", color=color, markersize=3, alpha=0.6)
        best = {size: median(float(row["cramer"]) for row in rows if row["samples"] == size) for size in sizes}
        enough = min(size for size, value in best.items() if value <= 1.1 * min(best.values()))
        told.append(f"{rule}: {enough}")
    made.suptitle(
        f"fewest samples within 10 % of the best median distance: {', '.join(told)} (the paper: 100)", fontsize=10
    )
    axes[0][0].set(ylabel="surrogate loss of the learned law", yscale="log")
    axes[0][1].set(ylabel="Cramér distance to truth", yscale="log")
    for ax in axes[0]:
        ax.axvline(100, color="black", linewidth=0.8, linestyle="--")
        ax.set(xlabel="base samples (dashed: 100)", xscale="log")
    legend_below(made, axes)
    return made


EXPERIMENT = Experiment("samples", "Loss and accuracy against the number of base samples", compute, draw)
