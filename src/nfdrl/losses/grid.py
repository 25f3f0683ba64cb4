"""Distances of laws that are smoothed on one uniform grid per row, in near-linear time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nfdrl.errors import NfdrlError, check_numbers, unknown_name
from nfdrl.losses.distance import Distance, signed_masses
from nfdrl.numerics.constants import constant
from nfdrl.numerics.kde import KERNELS, MARGIN, Grid, Kernel, smooth

LARGEST_FORM = 2048  # grid points up to which one matrix product takes less time than two Fourier transforms


@dataclass(frozen=True)
class GridDistance(Distance):
    """Σᵢ ωᵢ dᵢ² of the smoothed difference d of two laws on a grid.

    The bandwidth of a row is the larger of `bandwidth`, which is absolute, and `relative_bandwidth` times the joint
    range of both laws. The relative part suits any scale of rewards, and narrows by itself as the laws approach.
    """

    power: ClassVar[int]  # of the grid's step in the distance

    # what smooths both laws: multi-scale or gaussian
    kernel: Kernel = "multi-scale"  # ours: learns sharp laws and keeps their means; paper: "gaussian"
    # width of the kernel, in units of return
    bandwidth: float = 0.0  # paper, table of hyper-parameters: 0.05
    # width of the kernel, as a share of both laws' range
    relative_bandwidth: float = 0.25  # ours: of the widest scale; paper: 0
    # points of the grid
    grid_size: int | None = None  # ours: a multiple of the number of samples; paper: as many
    # whether the root of the distance is taken
    rooted: bool = False  # eq:loss as printed takes the root, which is biased on sampled transitions

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        if self.kernel not in KERNELS:
            raise unknown_name("kernel", self.kernel, KERNELS)
        if not (self.bandwidth >= 0 and self.relative_bandwidth >= 0 and self.bandwidth + self.relative_bandwidth > 0):
            raise NfdrlError(
                "bandwidth and relative_bandwidth must be non-negative and one of them positive, "
                f"got {self.bandwidth} and {self.relative_bandwidth}"
            )
        if self.grid_size is not None and self.grid_size < 4:
            raise NfdrlError(f"grid_size must be at least 4, got {self.grid_size}")
        check_numbers(self)

    @abstractmethod
    def weight(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The weights ω on a grid of step 1; shape (size,) or ()."""

    def points(self, samples: int) -> int:
        """The number of grid points for laws given by so many samples."""
        return self.grid_size or 4 * samples

    @property
    def margins(self) -> float:
        """The length of a grid in joint ranges, where the bandwidth is relative."""
        return 1 + 2 * MARGIN * self.relative_bandwidth

    def smoothing(self, low: Tensor, high: Tensor, size: int) -> tuple[Grid, Tensor | float]:
        """The grid of each row, for laws that jointly cover [low, high], and the bandwidth in grid steps.

        A bandwidth that is only relative is the same number of steps in every row.
        """
        extent = joint_extent(low, high)
        if self.bandwidth == 0:
            grid = Grid.covering(low, low + extent, MARGIN * self.relative_bandwidth * extent, size)
            return grid, (size - 1) * self.relative_bandwidth / self.margins
        width = (self.relative_bandwidth * extent).clamp_min(self.bandwidth)
        grid = Grid.covering(low, low + extent, MARGIN * width, size)
        return grid, width / grid.step

    # Binning and smoothing are linear and the kernel is even. So the gradient of Σᵢ ωᵢ dᵢ² in the binned masses is the
    # smoothed 2ωd, and a sample that moves by one grid step trades its value at the left neighbour for the one at the
    # right.

    def value_and_slope(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The squared distance and its gradient in the predicted returns."""
        n, m = predicted.shape[-1], target.shape[-1]
        samples = torch.cat([predicted, target], -1)
        low, high = samples.aminmax(dim=-1, keepdim=True)
        step, offset, size, pull_of = self._layout(low, high, self.points(max(n, m)))
        position = samples.sub_(low).div_(step).add_(offset)
        left = position.long().clamp_(0, size - 2)  # what is not finite stays on the grid, and spoils its row
        mass = signed_masses(n, m, position.dtype, position.device)
        right = position.sub_(left).mul_(mass)
        masses = position.new_zeros(*position.shape[:-1], size).scatter_add_(-1, left, mass - right)
        masses[..., 1:].scatter_add_(-1, left, right)
        pull = pull_of(masses)
        slope = pull.diff(dim=-1).gather(-1, left[..., :n]).mul_(2 / n)
        value = masses.mul_(pull).sum(-1)
        if self.power == 1:
            return value.mul_(step.squeeze(-1)), slope
        return value.div_(step.squeeze(-1)), slope.div_(step.square())

    def _layout(
        self, low: Tensor, high: Tensor, size: int
    ) -> tuple[Tensor, Tensor | float, int, Callable[[Tensor], Tensor]]:
        """Steps, the position of the smallest sample, the number of points, and what multiplies masses on them."""
        if self.bandwidth == 0 and size <= LARGEST_FORM:
            step = joint_extent(low, high) * (self.margins / (size - 1))
            offset, form = quadratic_form(self, size, low.dtype, low.device)
            return step, offset, len(form), lambda masses: masses @ form
        grid, width = self.smoothing(low.squeeze(-1), high.squeeze(-1), size)
        step = grid.step.unsqueeze(-1)
        return step, (low - grid.origin.unsqueeze(-1)) / step, size, lambda masses: self.pull(masses, width)

    def pull(self, masses: Tensor, width: Tensor | float) -> Tensor:
        """Masses on a whole grid, smoothed, weighed, and smoothed again: half the distance's gradient in them."""
        smoothed = smooth(masses, width, self.kernel)
        weight = self.weight(masses.shape[-1], masses.dtype, masses.device)
        return smooth(smoothed * weight, width, self.kernel)


@constant
def quadratic_form(how: GridDistance, size: int, dtype: torch.dtype, device: torch.device) -> tuple[float, Tensor]:
    """`GridDistance.pull` as one matrix between the margins, where samples can be, and where the smallest one is.

    Every row has the same matrix where the bandwidth is relative.
    """
    width = (size - 1) * how.relative_bandwidth / how.margins
    kernels = smooth(torch.eye(size, dtype=torch.float64), width, how.kernel)
    weight = how.weight(size, torch.float64, torch.device("cpu"))
    first = int(MARGIN * width)
    # The largest sample may fall on the last point by rounding: there is one more after it.
    inner = kernels[first : size - first + 1]
    return MARGIN * width - first, (weight * inner @ inner.T).to(dtype=dtype, device=device)


def joint_extent(low: Tensor, high: Tensor) -> Tensor:
    """The width of both laws together, and at least their rounding."""
    eps = torch.finfo(low.dtype).eps
    return torch.maximum(high - low, torch.maximum(high, -low).mul_(2 * eps).add_(eps))


def joint_range(predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest return of both sorted sample sets, without gradients."""
    low = torch.minimum(predicted[..., 0], target[..., 0]).detach()
    high = torch.maximum(predicted[..., -1], target[..., -1]).detach()
    return low, high
