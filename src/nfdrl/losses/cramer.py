"""Comparisons of two laws given by sorted samples of each: the Cramér distance and the paper's surrogate.

Every function takes samples sorted along the last axis and returns one number a batch row. Gradients flow
through the positions of the samples. All are squared distances; `compare` takes the root where it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.numerics.kde import KERNELS, MARGIN, Grid, Kernel, bin_linear, interpolate, smooth
from nfdrl.numerics.spread import pairwise_gap_sum, uniform_gap_sum

Distance = Literal["exact", "surrogate", "l2"]
Support = Literal["shared", "interpolated", "samples"]
DISTANCES: tuple[Distance, ...] = ("exact", "surrogate", "l2")
SUPPORTS: tuple[Support, ...] = ("shared", "interpolated", "samples")
LEAST_DENSITY = 1e-4  # of one whole law spread over one bandwidth


@dataclass(frozen=True)
class Comparison:
    """Which distance between two sets of returns, and how it smooths them.

    The bandwidth of a row is the larger of `bandwidth`, which is absolute, and `relative_bandwidth` times the joint
    range of both laws. The relative part suits any scale of rewards, and narrows by itself as the laws approach.
    """

    distance: Distance = "surrogate"
    support: Support = "shared"  # Algorithm 1 on the grid itself; the other two collapse on sampled targets
    kernel: Kernel = "multi-scale"  # learns sharp laws and keeps their means; paper: "gaussian"
    bandwidth: float = 0.0  # paper, table of hyper-parameters: 0.05
    relative_bandwidth: float = 0.25  # of the widest scale; paper: 0
    grid_size: int | None = None  # four times as many as samples ("samples" support: eight times); paper: as many
    rooted: bool = False  # eq:loss as printed takes the root, which is biased on sampled transitions

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        for kind, value, known in (
            ("distance", self.distance, DISTANCES),
            ("support", self.support, SUPPORTS),
            ("kernel", self.kernel, KERNELS),
        ):
            if value not in known:
                raise unknown_name(kind, value, known)
        if not (self.bandwidth >= 0 and self.relative_bandwidth >= 0 and self.bandwidth + self.relative_bandwidth > 0):
            raise NfdrlError(
                "bandwidth and relative_bandwidth must be non-negative and one of them positive, "
                f"got {self.bandwidth} and {self.relative_bandwidth}"
            )
        if self.grid_size is not None and self.grid_size < 4:
            raise NfdrlError(f"grid_size must be at least 4, got {self.grid_size}")

    def points(self, samples: int) -> int:
        """The number of grid points for laws given by so many samples."""
        return self.grid_size or samples * (8 if self.support == "samples" else 4)

    def smoothing(self, low: Tensor, high: Tensor, size: int) -> tuple[Grid, Tensor | float]:
        """The grid of each row, for laws that jointly cover [low, high], and the bandwidth in grid steps.

        A bandwidth that is only relative is the same number of steps in every row.
        """
        rounding = torch.finfo(low.dtype).eps * (1 + torch.maximum(low.abs(), high.abs()))
        extent = torch.maximum(high - low, rounding)
        if self.bandwidth == 0:
            grid = Grid.covering(low, low + extent, MARGIN * self.relative_bandwidth * extent, size)
            return grid, (size - 1) * self.relative_bandwidth / (1 + 2 * MARGIN * self.relative_bandwidth)
        width = (self.relative_bandwidth * extent).clamp_min(self.bandwidth)
        grid = Grid.covering(low, low + extent, MARGIN * width, size)
        return grid, width / grid.step


def compare(predicted: Tensor, target: Tensor, how: Comparison) -> Tensor:
    """The distance of two sorted sample sets that `how` describes.

    Shapes: (B, N), (B, M) → (B,)
    """
    if how.distance == "exact":
        return _root(cramer_exact(predicted, target), how.rooted)
    size = how.points(max(predicted.shape[-1], target.shape[-1]))
    grid, width = how.smoothing(*joint_range(predicted, target), size)
    w, v = bin_linear(predicted, grid), bin_linear(target, grid)
    if how.distance == "surrogate" and how.support != "shared":
        w, v = smooth(w, width, how.kernel), smooth(v, width, how.kernel)
        parts = (surrogate_at(points, (w, v), grid, width) for points in (predicted, target))
        return sum((_root(part, how.rooted) for part in parts), torch.zeros_like(grid.step))
    difference = smooth(w - v, width, how.kernel)  # smoothing is linear: once is enough
    if how.distance == "l2":
        return _root(difference.square().sum(-1) / grid.step, how.rooted)
    omega = uniform_gap_sum(size, grid.step)
    return _root((omega * difference.square()).sum(-1) / size**2, how.rooted)


def cramer_exact(predicted: Tensor, target: Tensor) -> Tensor:
    """Squared Cramér distance ∫(F − G)² dy of two empirical laws, by one merge of their sorted samples.

    Equal to the energy form E|X−Y| − ½E|X−X′| − ½E|Y−Y′|.

    Shapes: (B, N), (B, M) → (B,)
    """
    n, m = predicted.shape[-1], target.shape[-1]
    merged, order = torch.cat([predicted, target], -1).sort(-1)
    # Each step of F − G is +1/N at a predicted sample and −1/M at a target one; samples carry no other mass.
    jump = torch.where(order < n, 1 / n, -1 / m).to(predicted.dtype)
    height = jump.cumsum(-1)[..., :-1]
    return (height.square() * merged.diff(dim=-1)).sum(-1)


def cramer_surrogate(predicted: Tensor, target: Tensor, support: Tensor) -> Tensor:
    """Squared geometry-aware distance between masses w, v on one sorted support y.

    D² = N⁻² Σᵢ Ωᵢ (wᵢ − vᵢ)²,  Ωᵢ = Σⱼ |yᵢ − yⱼ|   (eq:loss; Appendix E)

    Shapes: (B, N), (B, N), (B, N) → (B,)
    """
    n = support.shape[-1]
    omega = pairwise_gap_sum(support)
    return (omega * (predicted - target).square()).sum(-1) / n**2


def surrogate_at(points: Tensor, masses: tuple[Tensor, Tensor], grid: Grid, width: Tensor | float) -> Tensor:
    """D² with both smoothed laws read off the grid at sample points and normalised there (Appendix F).

    Shapes: (B, N) → (B,)
    """
    # The filter leaves rounding noise around zero where a law has no mass. A law with hardly any mass at all
    # these points is not blown up to a whole one: that would turn noise into signal.
    w, v = (interpolate(part, grid, points).clamp_min(0) for part in masses)
    least = torch.as_tensor(LEAST_DENSITY / width, dtype=points.dtype, device=points.device).unsqueeze(-1)
    w, v = (part / torch.maximum(part.sum(-1, keepdim=True), least) for part in (w, v))
    return cramer_surrogate(w, v, points)


def joint_range(predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest return of both sorted sample sets, without gradients."""
    low = torch.minimum(predicted[..., 0], target[..., 0]).detach()
    high = torch.maximum(predicted[..., -1], target[..., -1]).detach()
    return low, high


def _root(squared: Tensor, rooted: bool) -> Tensor:
    # The derivative of a root is infinite at zero; a floor of one rounding keeps the gradient finite.
    return (squared + torch.finfo(squared.dtype).eps ** 2).sqrt() if rooted else squared
