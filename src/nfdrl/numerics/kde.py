"""Kernel density estimates on a uniform grid in near-linear time: bin, filter, interpolate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kernel = Literal["gaussian", "two-scale"]
KERNELS: tuple[Kernel, ...] = ("gaussian", "two-scale")

# Two-scale: ½N(0, h²) + ½N(0, (h/5)²). The wide half feels a law that is far away, the narrow half keeps the
# frequencies that tell a peak from a bump; a Gaussian alone does either.
SHARPER = 5.0
MARGIN = 4.0  # bandwidths between the outermost sample and the edge of a grid


@dataclass(frozen=True)
class Grid:
    """A uniform grid for each batch row: origin + step · (0 … size−1)."""

    origin: Tensor
    step: Tensor
    size: int

    @classmethod
    def covering(cls, low: Tensor, high: Tensor, bandwidth: Tensor, size: int) -> Grid:
        """The grid over [low, high] with a margin of four bandwidths on both sides.

        The margin holds what the kernel spreads past the samples, so that a circular filter wraps nothing around.
        """
        origin = low - MARGIN * bandwidth
        step = (high + MARGIN * bandwidth - origin) / (size - 1)
        return cls(origin, step.clamp_min(torch.finfo(step.dtype).tiny), size)

    def points(self) -> Tensor:
        """All grid points; shape (..., size)."""
        index = torch.arange(self.size, dtype=self.step.dtype, device=self.step.device)
        return self.origin.unsqueeze(-1) + self.step.unsqueeze(-1) * index

    def position(self, samples: Tensor) -> Tensor:
        """Samples (..., N) in units of steps from the origin, kept on the grid."""
        offset = (samples - self.origin.unsqueeze(-1)) / self.step.unsqueeze(-1)
        return offset.clamp(0, self.size - 1)


def bin_linear(samples: Tensor, grid: Grid) -> Tensor:
    """Masses of equally weighted samples on a grid, each shared between its two neighbours.

    Differentiable in the positions of the samples: moving one moves mass from a neighbour to the other.

    Shapes: (..., N) → (..., size)
    """
    position = grid.position(samples)
    left = position.detach().floor().clamp(max=grid.size - 2)
    share = (position - left) / samples.shape[-1]
    index = left.long()
    masses = torch.zeros(*samples.shape[:-1], grid.size, dtype=samples.dtype, device=samples.device)
    masses = masses.scatter_add(-1, index, 1 / samples.shape[-1] - share)
    return masses.scatter_add(-1, index + 1, share)


def smooth(masses: Tensor, bandwidth: Tensor, grid: Grid, kernel: Kernel = "gaussian") -> Tensor:
    """Masses on a grid, smoothed by a kernel of one bandwidth a row; the sum is kept.

    The kernel is sampled on the grid and normalised, so that the result stays non-negative however narrow it is.

    Shapes: (..., size), (...) → (..., size)
    """
    index = torch.arange(grid.size, dtype=masses.dtype, device=masses.device)
    distance = torch.minimum(index, grid.size - index) * (grid.step / bandwidth).unsqueeze(-1)
    weights = _gaussian(distance)
    if kernel == "two-scale":
        weights = 0.5 * (weights + _gaussian(distance * SHARPER))
    # The kernel is even: its transform is real.
    response = torch.fft.rfft(weights).real
    return torch.fft.irfft(torch.fft.rfft(masses) * response, n=grid.size)


def _gaussian(distance: Tensor) -> Tensor:
    weights = torch.exp(-0.5 * distance.square())
    return weights / weights.sum(-1, keepdim=True)


def smoothed_masses(samples: Tensor, bandwidth: Tensor, grid: Grid, kernel: Kernel = "gaussian") -> Tensor:
    """The kernel estimate of the law of `samples` as masses on the grid."""
    return smooth(bin_linear(samples, grid), bandwidth, grid, kernel)


def interpolate(values: Tensor, grid: Grid, points: Tensor) -> Tensor:
    """Linear interpolation of grid values at `points`; differentiable in both.

    Shapes: (..., size), (..., M) → (..., M)
    """
    position = grid.position(points)
    left = position.detach().floor().clamp(max=grid.size - 2)
    index = left.long()
    low, high = values.gather(-1, index), values.gather(-1, index + 1)
    return low + (position - left) * (high - low)
