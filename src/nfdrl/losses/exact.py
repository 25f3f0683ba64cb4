"""The exact Cramér distance: NFDRL-E's loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from nfdrl.losses.distance import Distance, signed_masses


@final
@dataclass(frozen=True)
class Exact(Distance):
    """∫(F − G)² dy of two empirical laws, by one merge of their sorted returns; no kernel and no bandwidth.

    Equal to the energy form E|X−Y| − ½E|X−X′| − ½E|Y−Y′|.
    """

    kind: ClassVar[str] = "exact"

    rooted: bool = False  # ours: the square has unbiased sample gradients

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
