"""Two laws can be compared point by point only on one support (fig:alignment; Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from nfdrl.evaluation.distances import cramer
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.losses.distance import Distance
from nfdrl.losses.exact import Exact
from nfdrl.losses.grid import joint_range
from nfdrl.losses.surrogate import Surrogate, cramer_surrogate
from nfdrl.numerics.base_points import base_points
from nfdrl.numerics.kde import Grid, smoothed_masses
from nfdrl.paper.base import Experiment, Progress, Result
from nfdrl.style import BLUE, ORANGE, Floats, figure, legend_below

PREDICTED, TARGET = (0.0, 1.0), (1.5, 0.7)  # mean and deviation of the two Gaussians
BANDWIDTH = 0.2
SHOWN = 25  # points of each law in the picture
MEASURED = 500  # paper, table of hyper-parameters: n_samples


@dataclass(frozen=True)
class Supports:
    """The two laws at their own sample points, and both on one grid."""

    own: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
    grid: Floats
    shared: tuple[Floats, Floats]


def compute(seed: int, smoke: bool, progress: Progress) -> Result:  # noqa: ARG001
    """Densities at own points and on a shared grid; the distance by each way of aligning.

    `signal` is the distance over what two samples of one and the same law give: 1 means that nothing is seen.
    """
    generator = torch.Generator().manual_seed(seed)
    predicted, target = (_samples(MEASURED, law, generator) for law in (PREDICTED, TARGET))
    same = _samples(MEASURED, PREDICTED, generator)
    truth = cramer(_law(PREDICTED), _law(TARGET)) ** 2
    different = [
        _by_index(predicted, target, TARGET),
        *(float(how(predicted, target)) for how in WAYS.values()),
    ]
    noise = [_by_index(predicted, same, PREDICTED), *(float(how(predicted, same)) for how in WAYS.values())]
    rows = [
        {"method": name, "distance": found, "same_law": alone, "signal": found / alone, "true_cramer_squared": truth}
        for name, found, alone in zip(("unaligned", *WAYS), different, noise, strict=True)
    ]
    return Result(rows, _supports(generator))


# The paper's smoothing: one Gaussian of an absolute bandwidth, as many grid points as samples.
_SMOOTH = Surrogate(kernel="gaussian", bandwidth=BANDWIDTH, relative_bandwidth=0.0, grid_size=MEASURED)
WAYS: dict[str, Distance] = {
    "surrogate, shared grid": _SMOOTH,
    "surrogate, interpolated": replace(_SMOOTH, support="interpolated"),
    "surrogate, at samples": replace(_SMOOTH, support="samples", grid_size=None),
    "exact": Exact(),
}


def _by_index(predicted: Tensor, target: Tensor, law: tuple[float, float]) -> float:
    """D² of the masses that each law has at its own points, as if the i-th points of both were one."""
    w, v = _law(PREDICTED).pdf(predicted), _law(law).pdf(target)
    return float(cramer_surrogate(w / w.sum(-1, keepdim=True), v / v.sum(-1, keepdim=True), predicted))


def _samples(n: int, law: tuple[float, float], generator: torch.Generator) -> Tensor:
    like = torch.zeros((), dtype=torch.float64)
    return (law[0] + law[1] * base_points(n, "random", like=like, generator=generator)).unsqueeze(0)


def _law(parameters: tuple[float, float]) -> MixtureLaw:
    mean, std = (torch.tensor([value], dtype=torch.float64) for value in parameters)
    return MixtureLaw(torch.ones_like(mean), mean, std)


def _supports(generator: torch.Generator) -> Supports:
    samples = [_samples(SHOWN, law, generator) for law in (PREDICTED, TARGET)]
    own = [(y[0].numpy(), _law(law).pdf(y[0]).numpy()) for y, law in zip(samples, (PREDICTED, TARGET), strict=True)]
    low, high = joint_range(samples[0], samples[1])
    width = torch.full_like(low, BANDWIDTH)
    grid = Grid.covering(low, high, 4 * width, 40)
    shared = [(smoothed_masses(y, width, grid)[0] / grid.step[0]).numpy() for y in samples]
    return Supports((own[0], own[1]), grid.points()[0].numpy(), (shared[0], shared[1]))


def draw(result: Result) -> Figure:
    """Left: each law at its own points. Right: both at the points of one grid, where differences exist."""
    made, axes = figure(9.0, 3.5, 1, 2, sharey=True)
    data: Supports = result.data
    left, right = axes[0]
    for (y, density), color, label in zip(data.own, (BLUE, ORANGE), ("predicted", "target"), strict=True):
        left.vlines(y, 0, density, color=color, alpha=0.6, linewidth=1.2)
        left.plot(y, density, "o", color=color, markersize=5, label=label)
    for density, color in zip(data.shared, (BLUE, ORANGE), strict=True):
        right.plot(data.grid, density, "o-", color=color, markersize=4)
    right.vlines(data.grid, data.shared[0], data.shared[1], color="#bbbbbb", linewidth=1.2, zorder=0)
    right.plot([], [], color="#bbbbbb", label="difference at a point")
    left.set(title="Own supports: no point in common", xlabel="return", ylabel="density")
    right.set(title=f"Shared grid, kernel estimate, h = {BANDWIDTH}", xlabel="return")
    legend_below(made, axes)
    return made


EXPERIMENT = Experiment(
    name="alignment",
    title="Two laws on different supports and on a shared one",
    shows="point-by-point comparison needs one support; the exact distance needs none",
    compute=compute,
    draw=draw,
)
