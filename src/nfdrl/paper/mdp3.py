"""MDP3: two smooth modes at the end of a chain, learned by IQN and by NFDRL (fig:IQN_bimodal, fig:MDP3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nfdrl.envs.toy import mdp3
from nfdrl.evaluation.distances import distances
from nfdrl.evaluation.truth import exact_returns
from nfdrl.laws.base import DensityLaw, Law, Method
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.implicit import IQN, ImplicitLaw
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.quantile import QuantileLaw
from nfdrl.losses.exact import Exact
from nfdrl.networks import table
from nfdrl.numerics.atoms import midpoints
from nfdrl.paper.base import SAMPLES, Experiment, Progress, Result, Row
from nfdrl.style import View, color_of, draw_law, draw_truth, figure, label_of, legend_below
from nfdrl.training.policy_evaluation import Evaluation, embedded_table, evaluate_policy

Floats = NDArray[np.float64]

BOUND = 6.0  # the modes at ±2 and four of their deviations
FINAL, FIRST = 2, 0  # s3 sees the reward; s1 only what s2 passed on, undiscounted
CELLS = 100  # of equal probability, whose widths are IQN's density
READ = 2000  # levels at which IQN's quantile network is read
WINDOW = 0.25  # in which mass is counted to find modes: a quarter of a deviation
PROMINENCE = 0.1  # of the highest peak, by which a mode has to stand out

# γ = 1: nothing shrinks an error on its way down the chain, but three states settle with a target of every update.
FLOW = Evaluation(updates=5_000, batch_size=64, learning_rate=2e-2)
NETWORK = Evaluation(updates=3_000, batch_size=64, learning_rate=1e-3)
SMOKE = Evaluation(updates=15, batch_size=16, learning_rate=1e-3)

# IQN at its best: the pinball loss, since a Huber threshold of 1 blurs modes of deviation 1.
METHODS: dict[str, tuple[Method, Evaluation]] = {
    "iqn": (IQN(hidden=128, samples=32, target_samples=32, huber_threshold=0.0), NETWORK),
    "nfdrl-s": (FlowMethod(initial_bound=BOUND, samples=SAMPLES), FLOW),
    "nfdrl-e": (FlowMethod(Exact(), initial_bound=BOUND, samples=SAMPLES), FLOW),
}


@dataclass(frozen=True)
class Learned:
    """A method's law of one state and the true one."""

    method: str
    law: Law
    truth: MixtureLaw
    row: Row


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Learn the chain by TD from sampled transitions; the laws of its last and its first state."""
    learned = [one for name in METHODS for one in learn(name, seed, smoke, progress)]
    return Result([one.row for one in learned], learned)


def learn(name: str, seed: int, smoke: bool, progress: Progress) -> list[Learned]:
    """What one method learns of s3 and of s1."""
    mdp = mdp3()
    policy = np.zeros(mdp.n_states, dtype=np.int64)
    truth = exact_returns(mdp, policy)
    method, settings = METHODS[name][0], SMOKE if smoke else METHODS[name][1]

    def track(steps: Iterable[int]) -> Iterable[int]:
        return progress.track(steps, f"{name} on MDP3")

    build = embedded_table if name == "iqn" else table
    found = evaluate_policy(mdp, policy, method, settings, seed=seed, network=build, track=track)
    learned = []
    for state, label in ((FINAL, "s3"), (FIRST, "s1")):
        law, exact = alone(found.laws([[state, 0]])), truth[state, 0]
        count, depth = modes(law)
        row: Row = {"method": name, "state": label, "action": "a1", **distances(law, exact)}
        row |= {
            "modes": count,
            "valley": depth,
            "true_valley": modes(exact)[1],
            "std": law.std(),
            "updates": settings.updates,
        }
        learned.append(Learned(name, law, exact, row))
    return learned


def alone(law: Law) -> Law:
    """The only law of a batch of shape (1,); an implicit one is read at `READ` levels."""
    if isinstance(law, ImplicitLaw):
        with torch.no_grad():
            return QuantileLaw(law.quantile(midpoints(READ, law.reference)).squeeze(0))
    return law.select(0)


@torch.no_grad()
def modes(law: Law) -> tuple[int, float | None]:
    """The number of modes and the depth of the deepest valley: its density over that of the lower peak beside it.

    Density is mass in windows, the same for laws that have one and for laws that do not.
    """
    y = torch.linspace(-BOUND, BOUND, 241, dtype=law.reference.dtype)
    density = ((law.cdf(y + 0.5 * WINDOW) - law.cdf(y - 0.5 * WINDOW)) / WINDOW).double().numpy()
    peaks, valleys = turning_points(density, PROMINENCE * float(density.max()))
    depths = [valley / min(peaks[k], peaks[k + 1]) for k, valley in enumerate(valleys)]
    return len(peaks), min(depths, default=None)


def turning_points(values: Floats, least: float) -> tuple[list[float], list[float]]:
    """Heights of the peaks, and of the valleys between them, that differ from their neighbours by `least`.

    >>> turning_points(np.array([0.0, 1.0, 0.95, 1.0, 0.2, 0.6, 0.0]), 0.1)
    ([1.0, 0.6], [0.2])
    """
    peaks: list[float] = []
    valleys: list[float] = []
    rising, extreme = True, float(values[0])
    for value in (*map(float, values[1:]), -np.inf):
        if (value > extreme) == rising:
            extreme = value
        elif abs(value - extreme) > least:
            (peaks if rising else valleys).append(extreme)
            rising, extreme = not rising, value
    return peaks, valleys


def draw(result: Result) -> Figure:
    """Quantile function, CDF and density of the final state, the truth behind."""
    learned = [one for one in result.data if one.row["state"] == "s3"]
    made, axes = figure(10.5, 3.9, 1, 3)
    quantiles, cdf, density = axes[0]
    views: tuple[tuple[View, Axes], ...] = (("quantile", quantiles), ("cdf", cdf))
    for view, ax in views:
        draw_truth(ax, learned[0].truth, view)
        for one in learned:
            draw_law(ax, one.law, one.method, view, -BOUND, BOUND, linewidth=1.4)
    draw_truth(density, learned[0].truth)
    for one in learned:
        _density(density, one)
    quantiles.set(title="quantile function", xlabel="probability", ylabel="return")
    cdf.set(title="CDF", xlabel="return", ylabel="P(Z ≤ return)", xlim=(-BOUND, BOUND))
    density.set(title="density", xlabel="return", xlim=(-BOUND, BOUND), ylim=(0, 0.45))
    made.suptitle("   ".join(f"{label_of(one.method)}: W₁ = {one.row['w1']:.3f}" for one in learned), fontsize=10)
    legend_below(made, axes)
    return made


def _density(ax: Axes, one: Learned) -> None:
    """A flow's density as it is; IQN's as cells of equal probability, each as high as it is narrow."""
    if isinstance(one.law, DensityLaw):
        draw_law(ax, one.law, one.method, "density", -BOUND, BOUND, linewidth=1.4)
        return
    levels = torch.linspace(0, 1, CELLS + 1, dtype=one.law.reference.dtype).clamp(1e-4, 1 - 1e-4)
    with torch.no_grad():
        edges = np.sort(one.law.quantile(levels).double().numpy())
    heights = np.diff(levels.numpy()) / np.maximum(np.diff(edges), 1e-9)
    ax.stairs(heights, edges, color=color_of(one.method), linewidth=1.2, label=label_of(one.method))


EXPERIMENT = Experiment(
    "mdp3",
    "Two smooth modes at the end of a chain",
    "smooth modes, where quantiles are noisy (fig:IQN_bimodal)",
    compute,
    draw,
)
