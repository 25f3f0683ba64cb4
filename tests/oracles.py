"""Slow, obvious forms of the losses: every pair, every grid point and every step of a CDF written out.

Those that `nfdrl.bench.literal` has come from there; only the tests need the rest.

Shapes: (B, N), (B, M) → (B,)
"""

import torch

from nfdrl.bench.literal import cramer_energy, double_sum, gap_matrix, kernel_density, on_points, surrogate_grid
from nfdrl.numerics.kde import MARGIN, Grid

__all__ = [
    "compare_slowly",
    "cramer_energy",
    "cramer_integral",
    "double_sum",
    "hat_interpolation",
    "kernel_density",
    "omega",
]


def omega(support):
    """Ωᵢ = Σⱼ |yᵢ − yⱼ|   (eq:geom_Omega_app)."""
    return gap_matrix(support, support).sum(-1)


def cramer_integral(predicted, target):
    """∫(F − G)² dy: both CDFs are constant between neighbouring merged samples, and are counted there."""
    merged = torch.cat([predicted, target], -1).sort(-1).values
    at = merged.detach()[..., :-1].unsqueeze(-1)
    f = (predicted.detach().unsqueeze(-2) <= at).to(merged.dtype).mean(-1)
    g = (target.detach().unsqueeze(-2) <= at).to(merged.dtype).mean(-1)
    return ((f - g).square() * (merged[..., 1:] - merged[..., :-1])).sum(-1)


def hat_interpolation(points, grid, values):
    """Linear interpolation as a sum of hat functions: Σₖ vₖ max(0, 1 − |y − sₖ|/Δ)."""
    step = (grid[..., 1] - grid[..., 0])[..., None, None]
    return ((1 - gap_matrix(points, grid) / step).clamp_min(0) * values.unsqueeze(-2)).sum(-1)


def shared_grid(predicted, target, margin, size):
    """One uniform grid per row over both laws, without gradients (Algorithm 1's support s)."""
    both = torch.cat([predicted, target], -1).detach()
    return Grid.covering(both.amin(-1), both.amax(-1), margin, size).points()


def compare_slowly(predicted, target, how):
    """What `how(predicted, target)` stands for; on a grid, `how.grid_size` must be set."""
    if how.kind == "exact":
        return _rooted(cramer_energy(predicted, target), how)
    both = torch.cat([predicted, target], -1).detach()
    spread = both.amax(-1) - both.amin(-1)
    h = (how.relative_bandwidth * spread).clamp_min(how.bandwidth)
    if how.kind == "surrogate" and how.support == "samples":
        parts = [on_points(points, predicted, target, h, how.kernel) for points in (predicted, target)]
        return sum(_rooted(part, how) for part in parts)
    grid = shared_grid(predicted, target, MARGIN * h, how.grid_size)
    if how.kind == "surrogate" and how.support == "shared":
        return _rooted(surrogate_grid(predicted, target, h, grid, how.kernel), how)
    p, q = (kernel_density(grid, samples, h, how.kernel) for samples in (predicted, target))
    if how.kind == "l2":
        return _rooted((p - q).square().sum(-1) * (grid[..., 1] - grid[..., 0]), how)
    parts = [_interpolated(points, grid, p, q) for points in (predicted, target)]
    return sum(_rooted(part, how) for part in parts)


def _interpolated(points, grid, p, q):
    """Algorithm 1 as printed: both densities taken from the grid to the points, and normalised there."""
    w, v = (hat_interpolation(points, grid, density) for density in (p, q))
    return double_sum(w / w.sum(-1, keepdim=True), v / v.sum(-1, keepdim=True), points)


def _rooted(squared, how):
    return squared.sqrt() if how.rooted else squared
