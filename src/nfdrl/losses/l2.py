"""The L² distance of smoothed densities: the ablation of the paper's MDP2 figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from nfdrl.losses.grid import GridDistance


@final
@dataclass(frozen=True)
class L2(GridDistance):
    """∫(p − q)² dy of the smoothed densities."""

    kind: ClassVar[str] = "l2"
    power: ClassVar[int] = -1  # masses over the step are densities

    def weight(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:  # noqa: ARG002
        return torch.ones((), dtype=dtype, device=device)
