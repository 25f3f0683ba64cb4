"""Sums of absolute gaps, without the double loop."""

from __future__ import annotations

import torch
from torch import Tensor


def pairwise_gap_sum(support: Tensor) -> Tensor:
    """Ωᵢ = Σⱼ |yᵢ − yⱼ| for a support sorted along its last axis, by one prefix sum (Appendix E).

    Ωᵢ = i·yᵢ − Σ_{j<i} yⱼ + Σ_{j>i} yⱼ − (N−1−i)·yᵢ; taken about the first point, so that a support far
    from zero loses no digits.

    >>> pairwise_gap_sum(torch.arange(-10.0, 11.0))[[0, 1, 20]]
    tensor([210., 191., 210.])

    Shapes: (..., N) → (..., N)
    """
    n = support.shape[-1]
    y = support - support[..., :1]
    rank = torch.arange(n, dtype=y.dtype, device=y.device)
    running = y.cumsum(-1)
    return y * (2 * rank + 2 - n) - 2 * running + running[..., -1:]


def uniform_gap_sum(n: int, step: Tensor) -> Tensor:
    """Ωᵢ on a uniform grid of `n` points: step · (i(i+1)/2 + (n−1−i)(n−i)/2).

    Shapes: (...) → (..., n)
    """
    i = torch.arange(n, dtype=step.dtype, device=step.device)
    return step.unsqueeze(-1) * (i * (i + 1) + (n - 1 - i) * (n - i)) / 2
