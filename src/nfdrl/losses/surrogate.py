"""The paper's geometry-aware Cramér surrogate (eq:loss): NFDRL-S's loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from nfdrl.errors import unknown_name
from nfdrl.losses.distance import root
from nfdrl.losses.grid import GridDistance, joint_range
from nfdrl.numerics.constants import constant
from nfdrl.numerics.kde import Grid, bin_linear, interpolate, smooth
from nfdrl.numerics.spread import pairwise_gap_sum, uniform_gap_sum

Support = Literal["shared", "interpolated", "samples"]
SUPPORTS: tuple[Support, ...] = ("shared", "interpolated", "samples")
LEAST_DENSITY = 1e-4  # of one whole law spread over one bandwidth


@final
@dataclass(frozen=True)
class Surrogate(GridDistance):
    """D² = N⁻² Σᵢ Ωᵢ (wᵢ − vᵢ)², Ωᵢ = Σⱼ |yᵢ − yⱼ| (eq:loss), on masses w, v of smoothed laws."""

    kind: ClassVar[str] = "surrogate"
    power: ClassVar[int] = 1  # Ω grows with the step

    support: Support = "shared"  # Algorithm 1 on the grid itself; the other two collapse on sampled targets

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        if self.support not in SUPPORTS:
            raise unknown_name("support", self.support, SUPPORTS)
        super().__post_init__()

    def points(self, samples: int) -> int:
        """The number of grid points for laws given by so many samples; twice as many where they are read at these."""
        return self.grid_size or samples * (8 if self.support == "samples" else 4)

    def weight(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """N⁻² Ω."""
        return _unit_weight(size, dtype, device)

    def gain(self, samples: int) -> float:
        """The number of points squared, which makes the distance independent of it.

        D² falls with the square of the number of grid points. Σ Ω (w − v)² (Appendix E) has the same minimum and
        a size that does not depend on the grid, so that Adam's ε and gradient clipping see the same numbers.
        """
        size = self.points(samples) if self.support == "shared" else samples
        return float(size if self.rooted else size**2)

    def __call__(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The distance of each row; away from the shared grid, the sum over both sets of returns (Algorithm 1)."""
        if self.support == "shared":
            return super().__call__(predicted, target)
        size = self.points(max(predicted.shape[-1], target.shape[-1]))
        grid, width = self.smoothing(*joint_range(predicted, target), size)
        w, v = (smooth(bin_linear(samples, grid), width, self.kernel) for samples in (predicted, target))
        parts = (surrogate_at(points, (w, v), grid, width) for points in (predicted, target))
        return sum((root(part, self.rooted) for part in parts), torch.zeros_like(grid.step))


@constant
def _unit_weight(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return uniform_gap_sum(size, torch.ones((), dtype=dtype, device=device)) / size**2


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
