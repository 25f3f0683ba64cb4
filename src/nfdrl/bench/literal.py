"""The losses as the paper prints them, every pair written out: O(N²) time and memory, and nothing to get wrong.

The fast forms of `nfdrl.losses` are timed and tested against them. Samples need not be sorted. All are squared
distances, one number per row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nfdrl.errors import unknown_name
from nfdrl.numerics.kde import COMPONENTS, KERNELS, Kernel


def gap_matrix(x: Tensor, y: Tensor) -> Tensor:
    """|xᵢ − yⱼ|.

    Shapes: (..., N), (..., M) → (..., N, M)
    """
    return (x.unsqueeze(-1) - y.unsqueeze(-2)).abs()


def kernel_density(points: Tensor, samples: Tensor, bandwidth: Tensor | float, kernel: Kernel = "gaussian") -> Tensor:
    """p̂(y) = N⁻¹ Σₖ K_h(y − yₖ) at every point (Appendix F, item 2).

    Shapes: (..., P), (..., N), a number or (...) → (..., P)
    """
    if kernel not in KERNELS:
        raise unknown_name("kernel", kernel, KERNELS)
    h = torch.as_tensor(bandwidth, dtype=samples.dtype, device=samples.device).unsqueeze(-1)
    gaps = points.unsqueeze(-1) - samples.unsqueeze(-2)
    density = torch.zeros_like(gaps[..., 0])
    for share, fraction in COMPONENTS[kernel]:
        u = gaps / (fraction * h).unsqueeze(-1)
        density = density + share * torch.exp(-0.5 * u.square()).mean(-1) / (math.sqrt(2 * math.pi) * fraction * h)
    return density


def double_sum(predicted: Tensor, target: Tensor, support: Tensor) -> Tensor:
    """D² = N⁻² Σᵢⱼ (wᵢ − vᵢ)² |yᵢ − yⱼ|   (eq:loss).

    Shapes: masses (..., N), (..., N), support (..., N) → (...)
    """
    difference = (predicted - target).unsqueeze(-1)
    return (difference.square() * gap_matrix(support, support)).sum((-1, -2)) / support.shape[-1] ** 2


def on_points(
    points: Tensor, predicted: Tensor, target: Tensor, bandwidth: Tensor | float, kernel: Kernel = "gaussian"
) -> Tensor:
    """D² of the two kernel estimates at `points`, each normalised there (Appendix F, items 2–3).

    The paper's loss (eq:practical_loss_app) is the sum of D² on the predicted and on the target points, or of their
    roots.

    Shapes: (..., P), (..., N), (..., M) → (...)
    """
    w, v = (kernel_density(points, samples, bandwidth, kernel) for samples in (predicted, target))
    return double_sum(w / w.sum(-1, keepdim=True), v / v.sum(-1, keepdim=True), points)


def surrogate_grid(
    predicted: Tensor, target: Tensor, bandwidth: Tensor | float, grid: Tensor, kernel: Kernel = "gaussian"
) -> Tensor:
    """D² on one uniform grid per row, of estimates summed over every sample at every grid point (Algorithm 1).

    Masses are p̂·Δy. Ω has its closed form here, so that only the kernel is quadratic.

    Shapes: (..., N), (..., M), grid (..., P) → (...)
    """
    size, step = grid.shape[-1], grid[..., 1] - grid[..., 0]
    w, v = (kernel_density(grid, samples, bandwidth, kernel) * step.unsqueeze(-1) for samples in (predicted, target))
    i = torch.arange(size, dtype=grid.dtype, device=grid.device)
    omega = step.unsqueeze(-1) * (i * (i + 1) + (size - 1 - i) * (size - i)) / 2
    return (omega * (w - v).square()).sum(-1) / size**2


def cramer_energy(predicted: Tensor, target: Tensor) -> Tensor:
    """E|X − Y| − ½E|X − X′| − ½E|Y − Y′|, equal to ∫(F − G)² dy (Székely and Rizzo, 2013).

    Shapes: (..., N), (..., M) → (...)
    """
    between, within_predicted, within_target = (
        gap_matrix(x, y).mean((-1, -2)) for x, y in ((predicted, target), (predicted, predicted), (target, target))
    )
    return between - 0.5 * within_predicted - 0.5 * within_target
