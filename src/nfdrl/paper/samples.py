"""How many base samples a law needs: loss and distance to truth on MDP2 against their number (fig:n_params, right)."""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

from nfdrl.envs.toy import mdp2
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.pushforward import PushforwardLaw
from nfdrl.losses.surrogate import Surrogate
from nfdrl.numerics.base_points import base_points
from nfdrl.numerics.normal import normal_cdf
from nfdrl.paper.base import Experiment, Progress, Result
from nfdrl.paper.toy import Learned, learn_pair
from nfdrl.style import BLUE, ORANGE, figure, legend_below
from nfdrl.training.policy_evaluation import Evaluation

MEASURED = 500  # paper, table of hyper-parameters: n_samples
YARDSTICK = Surrogate(kernel="gaussian", bandwidth=0.05, relative_bandwidth=0.0, grid_size=MEASURED)
SIZES = (4, 8, 16, 32, 64, 100, 200, 500)
RULES = (("midpoint", BLUE), ("random", ORANGE))
SETTINGS = Evaluation(updates=2_000, batch_size=32, learning_rate=2e-2)
SMOKE = Evaluation(updates=40, batch_size=8, learning_rate=2e-2)


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Learn MDP2 with more and more base samples, placed by rule and drawn at random."""
    rows = []
    for rule, _ in RULES:
        for size in SIZES[:3] if smoke else SIZES:
            # One grid for all, so that the losses measure the same thing.
            method = FlowMethod(Surrogate(grid_size=512), samples=size, points=rule)
            learned = learn_pair(
                mdp2(), (0, 0), method, SMOKE if smoke else SETTINGS,
                method_name="nfdrl-s", label=f"{size} {rule} samples", seed=seed, progress=progress,
                points=rule, samples=size,
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
    """The training loss on the left, the distance to the true law on the right."""
    made, axes = figure(9.0, 3.6, 1, 2)
    for rule, color in RULES:
        rows = [row for row in result.rows if row["points"] == rule]
        sizes = [row["samples"] for row in rows]
        axes[0][0].plot(sizes, [float(row["loss"]) for row in rows], "o-", color=color, label=f"{rule} base points")
        axes[0][1].plot(sizes, [row["cramer"] for row in rows], "o-", color=color)
    axes[0][0].set(ylabel="surrogate loss of the learned law", yscale="log")
    axes[0][1].set(ylabel="Cramér distance to truth", yscale="log")
    for ax in axes[0]:
        ax.axvline(100, color="black", linewidth=0.8, linestyle="--")
        ax.set(xlabel="base samples (dashed: 100)", xscale="log")
    legend_below(made, axes)
    return made


EXPERIMENT = Experiment(
    "samples",
    "Loss and accuracy against the number of base samples",
    "a plateau near 100 samples (fig:n_params, right)",
    compute,
    draw,
)
