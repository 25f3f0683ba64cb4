"""Functions that runtimes such as ONNX's lack, or have in single precision only, by operations that all of them have.

Each does what the PyTorch function of its name does; `tests/test_export.py` compares them.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from nfdrl.numerics.normal import LOG_SQRT_2PI, SQRT_HALF

DEGREE = 20
MIDDLE = 3.75  # the point of (0, ∞) that becomes the middle of (−1, 1)
NEWTON_STEPS = 5  # each doubles the number of correct digits


def _interpolated() -> list[float]:
    """Coefficients of (1 + 2x) eˣ² erfc(x) as a polynomial in t = (x − MIDDLE)/(x + MIDDLE), by interpolation."""
    t = np.cos(math.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
    x = torch.from_numpy(MIDDLE * (1 + t) / (1 - t))
    values = ((1 + 2 * x) * torch.special.erfcx(x)).numpy()
    coefficients = np.polynomial.chebyshev.chebfit(t, values, DEGREE)
    powers: list[float] = np.polynomial.chebyshev.cheb2poly(coefficients).tolist()
    return powers


COEFFICIENTS = _interpolated()


def _scaled_erfc(x: Tensor) -> Tensor:
    """eˣ² erfc(x) for x ≥ 0 in float64; all powers at once, so that a graph has few nodes."""
    x = x.clamp(max=1e8)  # ∞ has no place in (−1, 1)
    t = (x - MIDDLE) / (x + MIDDLE)
    powers = t.unsqueeze(-1) ** torch.arange(DEGREE + 1, dtype=t.dtype, device=t.device)
    # Not torch.tensor: a decomposition must not make constants.
    coefficients = torch.cat([t.new_full((1,), value) for value in COEFFICIENTS])
    return powers @ coefficients / (1 + 2 * x)


def erfc(x: Tensor) -> Tensor:
    """1 − erf(x), computed in float64."""
    size = x.double().abs()
    right = _scaled_erfc(size) * torch.exp(-size * size)
    return torch.where(x < 0, 2 - right, right).to(x.dtype)


def erf(x: Tensor) -> Tensor:
    """The error function, computed in float64."""
    return (1 - erfc(x.double())).to(x.dtype)


def log_ndtr(x: Tensor) -> Tensor:
    """log Φ(x), computed in float64; its left tail keeps its digits."""
    z = x.double()
    size = z.abs() * SQRT_HALF
    scaled = _scaled_erfc(size)
    left = torch.log(0.5 * scaled) - size * size
    right = torch.log1p(-0.5 * scaled * torch.exp(-size * size))
    return torch.where(z < 0, left, right).to(x.dtype)


def ndtri(tau: Tensor) -> Tensor:
    """Φ⁻¹(τ), computed in float64 by Newton's method on log Φ in the nearer tail.

    log Φ is concave and Φ(z) ≤ ½ exp(−z²/2) for z ≤ 0, so the first point lies on the left and every step moves right.
    """
    level = tau.double()
    log_tail = torch.minimum(level, 1 - level).log()
    z = -(-2 * (log_tail + math.log(2))).clamp_min(0).sqrt()
    for _ in range(NEWTON_STEPS):
        log_cdf = log_ndtr(z)
        z = z + (log_tail - log_cdf) * torch.exp(log_cdf + 0.5 * z * z + LOG_SQRT_2PI)
    z = torch.where((level <= 0) | (level >= 1), -math.inf, z)
    return torch.where(level > 0.5, -z, z).to(tau.dtype)


def cumsum(x: Tensor, dim: int) -> Tensor:
    """Sums so far along an axis, added up in float64, as PyTorch does on a CPU."""
    return x.double().cumsum(dim).to(x.dtype)


def searchsorted(ordered: Tensor, values: Tensor, *, right: bool = False) -> Tensor:
    """How many entries of a row lie before each value; shapes (..., K), (..., P) → (..., P)."""
    entries, points = ordered.unsqueeze(-2), values.unsqueeze(-1)
    return (entries <= points if right else entries < points).sum(-1)


def cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The greatest entry so far along an axis, and its place."""
    rows = x.movedim(dim, -1)
    n = rows.shape[-1]
    places = torch.arange(n, device=x.device)
    so_far = places <= places.unsqueeze(-1)
    values, index = torch.where(so_far, rows.unsqueeze(-2), -math.inf).max(-1)
    return values.movedim(-1, dim), index.movedim(-1, dim)


def cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The least entry so far along an axis, and its place."""
    values, index = cummax(-x, dim)
    return -values, index
