"""Kernel density estimates on a uniform grid in near-linear time: bin, filter, interpolate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from nfdrl.numerics.constants import constant

Kernel = Literal["gaussian", "multi-scale"]
KERNELS: tuple[Kernel, ...] = ("gaussian", "multi-scale")

# Each kernel as Gaussians of (share, fraction of the bandwidth). One Gaussian either feels a law that is far away or
# tells a peak from a bump. The mixture does both, and weighs coarse differences over fine ones as the Cramér distance
# does: fitting a law that the family cannot hold then leaves its mean where it was.
COMPONENTS: dict[Kernel, tuple[tuple[float, float], ...]] = {
    "gaussian": ((1.0, 1.0),),
    "multi-scale": ((4 / 7, 1.0), (2 / 7, 1 / 4), (1 / 7, 1 / 16)),
}
MARGIN = 4.0  # bandwidths between the outermost sample and the edge of a grid: the circular filter wraps nothing around


@dataclass(frozen=True)
class Grid:
    """One uniform grid per batch row: origin + step · (0 … size−1)."""

    origin: Tensor
    step: Tensor
    size: int

    @classmethod
    def covering(cls, low: Tensor, high: Tensor, margin: Tensor, size: int) -> Grid:
        """The grid over [low, high] with a margin on both sides for what a kernel spreads past the samples."""
        origin = low - margin
        step = (high + margin - origin) / (size - 1)
        return cls(origin, step.clamp_min(torch.finfo(step.dtype).tiny), size)

    def points(self) -> Tensor:
        """All grid points; shape (..., size)."""
        index = torch.arange(self.size, dtype=self.step.dtype, device=self.step.device)
        return self.origin.unsqueeze(-1) + self.step.unsqueeze(-1) * index

    def position(self, samples: Tensor) -> Tensor:
        """Samples (..., N) in units of steps from the origin, kept on the grid."""
        offset = (samples - self.origin.unsqueeze(-1)) / self.step.unsqueeze(-1)
        return offset.clamp(0, self.size - 1)

    def left(self, position: Tensor) -> Tensor:
        """The index of the grid point at or before each position, and never the last one."""
        return position.detach().long().clamp_(max=self.size - 2)


def bin_linear(samples: Tensor, grid: Grid) -> Tensor:
    """Masses of equally weighted samples on a grid, each shared between its two neighbours.

    Differentiable in the positions of the samples: moving one moves mass from one neighbour to the other.

    Shapes: (..., N) → (..., size)
    """
    position = grid.position(samples)
    left, mass = grid.left(position), 1 / samples.shape[-1]
    right = (position - left) * mass
    masses = position.new_zeros(*position.shape[:-1], grid.size)
    return masses.scatter_add(-1, left, mass - right).scatter_add(-1, left + 1, right)


def smooth(masses: Tensor, width: Tensor | float, kernel: Kernel = "gaussian") -> Tensor:
    """Masses on a grid, smoothed by a kernel `width` grid steps wide (one number, or one per row); the sum is kept.

    Shapes: (..., size), () or (...) → (..., size)
    """
    size = masses.shape[-1]
    if isinstance(width, Tensor):
        response = kernel_response(size, width, kernel)
    else:
        response = _cached_response(size, width, kernel, masses.dtype, masses.device)
    return cast(Tensor, torch.fft.irfft(torch.fft.rfft(masses) * response, n=size))


def kernel_response(size: int, width: Tensor, kernel: Kernel) -> Tensor:
    """The factor on each frequency of a grid; real, since a kernel is even.

    The kernel is sampled on the grid and normalised, so that smoothed masses stay non-negative however narrow it is.

    Shapes: (...) → (..., size // 2 + 1)
    """
    index = torch.arange(size, dtype=width.dtype, device=width.device)
    distance = torch.minimum(index, size - index) / width.unsqueeze(-1)
    total = torch.zeros_like(distance)
    for share, fraction in COMPONENTS[kernel]:
        # Past twelve deviations a Gaussian is zero in float32 anyway, and slow: its values are denormal.
        weights = torch.exp(-0.5 * (distance / fraction).clamp_max(12).square())
        total = total + share * weights / weights.sum(-1, keepdim=True)
    return cast(Tensor, torch.fft.rfft(total).real)


@constant
def _cached_response(size: int, width: float, kernel: Kernel, dtype: torch.dtype, device: torch.device) -> Tensor:
    return kernel_response(size, torch.tensor(width, dtype=torch.float64), kernel).to(dtype=dtype, device=device)


def smoothed_masses(samples: Tensor, bandwidth: Tensor, grid: Grid, kernel: Kernel = "gaussian") -> Tensor:
    """The kernel estimate of the law of `samples` as masses on the grid.

    Shapes: (..., N), (...) → (..., size)
    """
    return smooth(bin_linear(samples, grid), bandwidth / grid.step, kernel)


def interpolate(values: Tensor, grid: Grid, points: Tensor) -> Tensor:
    """Linear interpolation of grid values at `points`; differentiable in both.

    Shapes: (..., size), (..., M) → (..., M)
    """
    position = grid.position(points)
    left = grid.left(position)
    low, high = values.gather(-1, left), values.gather(-1, left + 1)
    return low + (position - left) * (high - low)
