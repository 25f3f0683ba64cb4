"""The exact Cramér distance: NFDRL-E's loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from nfdrl.errors import NfdrlError, check_numbers
from nfdrl.losses.distance import Distance, root, signed_masses
from nfdrl.losses.grid import joint_range
from nfdrl.numerics.kde import MARGIN, Grid, bin_linear, smooth

STEPS = 8  # of a grid per bandwidth: errors are of second order
LARGEST_GRID = 2**14


@final
@dataclass(frozen=True)
class Exact(Distance):
    """∫(F − G)² dy of two empirical laws, by one merge of their sorted returns.

    Equal to the energy form E|X−Y| − ½E|X−X′| − ½E|Y−Y′|. With a bandwidth both CDFs are smoothed by a Gaussian first.
    """

    kind: ClassVar[str] = "exact"

    # whether the root of the distance is taken
    rooted: bool = False  # ours: the square has unbiased sample gradients
    # standard deviation by which both laws are smoothed first, in units of return
    bandwidth: float = 0.0  # ours: none is needed; paper: 0.05, and fig:final varies it for this loss too

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        if not self.bandwidth >= 0:
            raise NfdrlError(f"bandwidth must be non-negative, got {self.bandwidth}")
        check_numbers(self)

    def __call__(self, predicted: Tensor, target: Tensor, log_densities: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The distance of each row; shapes (B, N), (B, M) → (B,)."""
        if self.bandwidth == 0:
            return super().__call__(predicted, target, log_densities)
        return root(self._smoothed(predicted, target), self.rooted)

    def _smoothed(self, predicted: Tensor, target: Tensor) -> Tensor:
        low, high = joint_range(predicted, target)
        margin = torch.full_like(low, MARGIN * self.bandwidth)
        widths = float((high - low).max()) / self.bandwidth + 2 * MARGIN
        # A bandwidth too narrow for the largest grid is as good as none.
        size = math.ceil(min(STEPS * widths, LARGEST_GRID)) if math.isfinite(widths) else LARGEST_GRID
        grid = Grid.covering(low, high, margin, size)
        masses = bin_linear(predicted, grid) - bin_linear(target, grid)
        height = smooth(masses, self.bandwidth / grid.step).cumsum(-1)
        return height.square().sum(-1) * grid.step

    def value_and_slope(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Σₖ Hₖ² (mₖ₊₁ − mₖ) over merged returns m, H = F − G between them; its gradient in mₖ is Hₖ₋₁² − Hₖ²."""
        n, m = predicted.shape[-1], target.shape[-1]
        merged, order = torch.cat([predicted, target], -1).sort(-1)
        # F − G steps up by 1/N at a predicted return and down by 1/M at a target one; it is zero at both ends.
        height = signed_masses(n, m, predicted.dtype, predicted.device)[order].cumsum(-1)
        square = nn.functional.pad(height[..., :-1].square_(), (1, 1))
        value = (square[..., 1:-1] * merged.diff(dim=-1)).sum(-1)
        slope = torch.empty_like(merged).scatter_(-1, order, square[..., :-1] - square[..., 1:])
        return value, slope[..., :n]


def cramer_exact(predicted: Tensor, target: Tensor) -> Tensor:
    """The squared Cramér distance of sorted returns; shapes (B, N), (B, M) → (B,)."""
    return Exact()(predicted, target)
