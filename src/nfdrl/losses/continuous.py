"""The Cramér distance to a continuous target: the loss of the anchored law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from nfdrl.errors import check_numbers
from nfdrl.losses.distance import Distance, root, squared
from nfdrl.numerics.atoms import midpoints


@final
@dataclass(frozen=True)
class Continuous(Distance):
    """∫(F − G)² dy, with a CDF G that runs in straight lines through the target's returns.

    Written over the levels of probability it is 2∫₀¹∫ (G(t) − τ) dt dτ, t from G⁻¹(τ) to F⁻¹(τ), so

    D² = 2/N Σᵢ ∫ (G(t) − τᵢ) dt,  t from G⁻¹(τᵢ) to yᵢ

    and its slope in yᵢ is 2(G(yᵢ) − τᵢ)/N. It is never negative, and zero where the returns are the same. Between two
    empirical CDFs, as `Exact` has them, laws that differ by less than a step are compared return by return, each with
    the one of its own rank: what is learned from several targets is then nearer to the median of each rank than to
    their mixture. Returns that coincide make a jump of G.
    """

    kind: ClassVar[str] = "continuous"

    # whether the root of the distance is taken
    rooted: bool = False  # ours: the square has unbiased sample gradients

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        check_numbers(self)

    def __call__(
        self,
        predicted: Tensor,
        target: Tensor,
        log_densities: tuple[Tensor, Tensor] | None = None,  # noqa: ARG002
        levels: Tensor | None = None,
    ) -> Tensor:
        """The distance of each row; gradients flow into the predicted returns only. Shapes (B, N), (B, M) → (B,).

        `levels` (N,) are those of the returns of both laws, which must then be equally many; without them each law has
        equal masses.
        """
        measure = partial(self.value_and_slope, levels=levels)
        return root(squared(predicted, target.detach(), measure), self.rooted)

    def value_and_slope(self, predicted: Tensor, target: Tensor, levels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """D² and 2(G(yᵢ) − τᵢ)/N; where G jumps, its middle."""
        n = predicted.shape[-1]
        at = midpoints(n, predicted) if levels is None else levels
        of_target = midpoints(target.shape[-1], target) if levels is None else levels
        heights = nn.functional.pad(nn.functional.pad(of_target, (1, 0)), (0, 1), value=1.0)
        knots = _knots(target, of_target)
        # From here on, all returns are counted from the lowest knot, so that small distances keep their digits.
        y, knots = predicted - knots[..., :1], knots - knots[..., :1]
        pieces = 0.5 * (heights[1:] + heights[:-1]) * knots.diff(dim=-1)
        areas = nn.functional.pad(pieces.cumsum(-1), (1, 0))
        own, area = _read(knots, heights, areas, y)
        wanted, below = _inverse(knots, heights, areas, at)
        value = (area - below - at * (y - wanted)).sum(-1)
        return value * (2 / n), (own - at) * (2 / n)


def _knots(target: Tensor, levels: Tensor) -> Tensor:
    """Where the CDF bends: at the returns, and where the outermost lines reach 0 and 1; shape (B, M) → (B, M + 2)."""
    if target.shape[-1] == 1:
        return target.expand(*target.shape[:-1], 3)
    low = target[..., :1] - (target[..., 1:2] - target[..., :1]) * (levels[0] / (levels[1] - levels[0]))
    high = target[..., -1:] + (target[..., -1:] - target[..., -2:-1]) * ((1 - levels[-1]) / (levels[-1] - levels[-2]))
    return torch.cat([low, target, high], -1)


def _inverse(knots: Tensor, heights: Tensor, areas: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """The returns at which the CDF has the levels, and the area below it up to there; both (B, N)."""
    right = torch.searchsorted(heights, levels).clamp(1, len(heights) - 1)
    left = right - 1
    share = (levels - heights[left]) / (heights[right] - heights[left])
    found = torch.lerp(knots[..., left], knots[..., right], share)
    return found, areas[..., left] + 0.5 * (heights[left] + levels) * (found - knots[..., left])


def _read(knots: Tensor, heights: Tensor, areas: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The CDF at y, and the area below it up to there; shapes (B, K), (K,), (B, K), (B, N) → (B, N), (B, N)."""
    first, last = (torch.searchsorted(knots, y.contiguous(), right=right) for right in (False, True))
    right = first.clamp(1, len(heights) - 1)
    left = right - 1
    start, end = knots.gather(-1, left), knots.gather(-1, right)
    width = end - start
    share = torch.where(width > 0, (y - start) / width, (y > start).to(y.dtype)).clamp(0, 1)
    line = torch.lerp(heights[left], heights[right], share)
    inside = torch.minimum(torch.maximum(y, start), end) - start
    area = areas.gather(-1, left) + 0.5 * (heights[left] + line) * inside + (y - end).clamp_min(0)
    middle = 0.5 * (heights[first.clamp(max=len(heights) - 1)] + heights[(last - 1).clamp_min(0)])
    return torch.where(last > first, middle, line), area
