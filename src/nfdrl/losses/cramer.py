"""Comparisons of two laws given by sorted samples of each: the Cramér distance and the paper's surrogate.

Every function takes samples sorted along the last axis and returns one number a batch row. Gradients flow
through the positions of the samples. All are squared distances; `compare` takes the root where it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.numerics.kde import KERNELS, MARGIN, Grid, Kernel, bin_linear, interpolate, share_out, smooth
from nfdrl.numerics.spread import pairwise_gap_sum, uniform_gap_sum

Array = NDArray[Any]
Distance = Literal["exact", "surrogate", "l2"]
Support = Literal["shared", "interpolated", "samples"]
DISTANCES: tuple[Distance, ...] = ("exact", "surrogate", "l2")
SUPPORTS: tuple[Support, ...] = ("shared", "interpolated", "samples")
LARGEST_FORM = 2048  # grid points up to which one matrix product takes less time than two Fourier transforms
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
        extent = _extent(low, high)
        if self.bandwidth == 0:
            grid = Grid.covering(low, low + extent, MARGIN * self.relative_bandwidth * extent, size)
            return grid, (size - 1) * self.relative_bandwidth / (1 + 2 * MARGIN * self.relative_bandwidth)
        width = (self.relative_bandwidth * extent).clamp_min(self.bandwidth)
        grid = Grid.covering(low, low + extent, MARGIN * width, size)
        return grid, width / grid.step


EXACT = Comparison("exact")


def _extent(low: Tensor, high: Tensor) -> Tensor:
    """The width of both laws together, and at least their rounding."""
    eps = torch.finfo(low.dtype).eps
    return torch.maximum(high - low, torch.maximum(high, -low).mul_(2 * eps).add_(eps))


def compare(predicted: Tensor, target: Tensor, how: Comparison) -> Tensor:
    """The distance of two sorted sample sets that `how` describes.

    Shapes: (B, N), (B, M) → (B,)
    """
    if how.distance == "surrogate" and how.support != "shared":
        size = how.points(max(predicted.shape[-1], target.shape[-1]))
        grid, width = how.smoothing(*joint_range(predicted, target), size)
        w, v = (smooth(bin_linear(samples, grid), width, how.kernel) for samples in (predicted, target))
        parts = (surrogate_at(points, (w, v), grid, width) for points in (predicted, target))
        return sum((_root(part, how.rooted) for part in parts), torch.zeros_like(grid.step))
    return _root(cast(Tensor, _Compared.apply(predicted, target, how)), how.rooted)  # type: ignore[no-untyped-call]


class _Compared(torch.autograd.Function):
    """A squared distance whose gradient in the samples is found together with its value."""

    @staticmethod
    def forward(ctx: Any, predicted: Tensor, target: Tensor, how: Comparison) -> Tensor:
        value, slope = value_and_slope(predicted, target, how)
        # The distance is the same from either side.
        other = value_and_slope(target, predicted, how)[1] if ctx.needs_input_grad[1] else None
        ctx.save_for_backward(slope, other)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        row = grad_outputs[0].unsqueeze(-1)
        return *(None if slope is None else row * slope for slope in ctx.saved_tensors), None


def value_and_slope(predicted: Tensor, target: Tensor, how: Comparison) -> tuple[Tensor, Tensor]:
    """A squared distance, exact or on a shared grid, and its gradient in the predicted samples.

    Shapes: (B, N), (B, M) → (B,), (B, N)
    """
    if how.distance == "exact":
        return _merge(predicted, target)
    size = how.points(max(predicted.shape[-1], target.shape[-1]))
    if how.bandwidth == 0 and size <= LARGEST_FORM:
        return _by_form(predicted, target, how, size)
    return _by_filter(predicted, target, how, size)


# Binning and smoothing are linear and the kernel is even. So the gradient of Σᵢ ωᵢ dᵢ² of the smoothed difference d in
# the binned masses is the smoothed 2ωd, and a sample that moves by one grid step trades its value at the left neighbour
# for the one at the right. The surrogate's ω grows with the step of the grid, and the slope is taken over steps.


def _by_filter(predicted: Tensor, target: Tensor, how: Comparison, size: int) -> tuple[Tensor, Tensor]:
    n, m = predicted.shape[-1], target.shape[-1]
    grid, width = how.smoothing(*joint_range(predicted, target), size)
    position = grid.position(torch.cat([predicted, target], -1))
    left = grid.left(position)
    masses = share_out(position, left, _signed_masses(n, m, position.dtype, position.device), size)
    difference = smooth(masses, width, how.kernel)
    surrogate = how.distance == "surrogate"
    weighted = _unit_weight(size, position.dtype, position.device) * difference if surrogate else difference
    slope = smooth(weighted, width, how.kernel).diff(dim=-1).gather(-1, left[..., :n]) * (2 / n)
    value = (weighted * difference).sum(-1)
    return (value * grid.step, slope) if surrogate else (value / grid.step, slope / grid.step.square().unsqueeze(-1))


def _by_form(predicted: Tensor, target: Tensor, how: Comparison, size: int) -> tuple[Tensor, Tensor]:
    """The same where the bandwidth is the same number of grid steps in every row, in a third of the operations.

    Smoothing, weighing and smoothing again are then one matrix, of which only the part between the margins is needed.
    """
    n, m = predicted.shape[-1], target.shape[-1]
    samples = torch.cat([predicted, target], -1)
    low, high = samples.aminmax(dim=-1, keepdim=True)
    step = _extent(low, high) * ((1 + 2 * MARGIN * how.relative_bandwidth) / (size - 1))
    surrogate = how.distance == "surrogate"
    offset, form = _quadratic_form(size, how.relative_bandwidth, how.kernel, surrogate, samples.dtype, samples.device)
    position = samples.sub_(low).div_(step).add_(offset)
    left = position.long()
    mass = _signed_masses(n, m, position.dtype, position.device)
    right = position.frac_().mul_(mass)
    masses = position.new_zeros(*position.shape[:-1], len(form)).scatter_add_(-1, left, mass - right)
    masses[..., 1:].scatter_add_(-1, left, right)
    pull = masses @ form
    slope = pull.diff(dim=-1).gather(-1, left[..., :n])
    value = masses.mul_(pull).sum(-1)
    if surrogate:
        return value.mul_(step.squeeze(-1)), slope.mul_(2 / n)
    return value.div_(step.squeeze(-1)), slope.mul_(2 / n).div_(step.square())


@lru_cache(maxsize=64)
def grid_of(size: int, how: Comparison) -> tuple[tuple[int, float, float, int], Array | None]:
    """The grid of a distance with a relative bandwidth, which every row then has in its own units; for NumPy.

    The number of its steps, their sum in joint ranges, the position of the smallest sample, the number of points that
    can hold mass; and the quadratic form on these, where they are few enough.
    """
    margins = 1 + 2 * MARGIN * how.relative_bandwidth
    if size > LARGEST_FORM:
        return (size - 1, margins, MARGIN * (size - 1) * how.relative_bandwidth / margins, size), None
    surrogate = how.distance == "surrogate"
    kind = (size, how.relative_bandwidth, how.kernel, surrogate, torch.float32, torch.device("cpu"))
    offset, form = _quadratic_form(*kind)
    return (size - 1, margins, offset, len(form)), form.numpy()


def smooth_twice(masses: Tensor, how: Comparison) -> Tensor:
    """Masses on the whole grid, smoothed, weighed, and smoothed again: half the gradient of the distance in them."""
    size = masses.shape[-1]
    width = (size - 1) * how.relative_bandwidth / (1 + 2 * MARGIN * how.relative_bandwidth)
    smoothed = smooth(masses, width, how.kernel)
    if how.distance == "surrogate":
        smoothed = smoothed * _unit_weight(size, masses.dtype, masses.device)
    return smooth(smoothed, width, how.kernel)


@lru_cache(maxsize=64)
def _quadratic_form(
    size: int, relative_bandwidth: float, kernel: Kernel, surrogate: bool, dtype: torch.dtype, device: torch.device
) -> tuple[float, Tensor]:
    """KωK between the margins, where samples can be; and the position of the smallest sample on it."""
    width = (size - 1) * relative_bandwidth / (1 + 2 * MARGIN * relative_bandwidth)
    kernels = smooth(torch.eye(size, dtype=torch.float64), width, kernel)
    weight = _unit_weight(size, torch.float64, torch.device("cpu")) if surrogate else torch.ones(())
    first = int(MARGIN * width)
    # The largest sample may fall on the last point by rounding: there is one more behind it.
    inner = kernels[first : size - first + 1]
    return MARGIN * width - first, (weight * inner @ inner.T).to(dtype=dtype, device=device)


@lru_cache(maxsize=64)
def _unit_weight(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """N⁻² Ω on a grid of step 1."""
    return uniform_gap_sum(size, torch.ones((), dtype=dtype, device=device)) / size**2


@lru_cache(maxsize=64)
def _signed_masses(n: int, m: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1/N for each predicted sample, −1/M for each of the target's."""
    return torch.tensor([1 / n] * n + [-1 / m] * m, dtype=dtype, device=device)


def cramer_exact(predicted: Tensor, target: Tensor) -> Tensor:
    """Squared Cramér distance ∫(F − G)² dy of two empirical laws, by one merge of their sorted samples.

    Equal to the energy form E|X−Y| − ½E|X−X′| − ½E|Y−Y′|.

    Shapes: (B, N), (B, M) → (B,)
    """
    return compare(predicted, target, EXACT)


def _merge(predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Σₖ Hₖ² (mₖ₊₁ − mₖ) over merged samples m, with H = F − G between them; its gradient in mₖ is Hₖ₋₁² − Hₖ²."""
    n, m = predicted.shape[-1], target.shape[-1]
    merged, order = torch.cat([predicted, target], -1).sort(-1)
    # F − G steps up by 1/N at a predicted sample and down by 1/M at a target one; it is zero before and behind all.
    height = _signed_masses(n, m, predicted.dtype, predicted.device)[order].cumsum(-1)
    square = nn.functional.pad(height[..., :-1].square_(), (1, 1))
    value = (square[..., 1:-1] * merged.diff(dim=-1)).sum(-1)
    slope = torch.empty_like(merged).scatter_(-1, order, square[..., :-1] - square[..., 1:])
    return value, slope[..., :n]


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
