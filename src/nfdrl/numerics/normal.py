"""The normal law: density, distribution function, and the bivariate distribution function Φ₂."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
SQRT_HALF = math.sqrt(0.5)

_NODES, _WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(32))


def log_phi(z: Tensor) -> Tensor:
    """Log-density of N(0, 1)."""
    return -0.5 * z.square() - LOG_SQRT_2PI


def phi(z: Tensor) -> Tensor:
    """Density of N(0, 1)."""
    return log_phi(z).exp()


def normal_cdf(z: Tensor) -> Tensor:
    """Φ(z) to full absolute precision, in one erf; `torch.special.ndtr` is for relative precision in the tail."""
    return 0.5 + 0.5 * torch.erf(z * SQRT_HALF)


def normal_quantile(tau: Tensor) -> Tensor:
    """Φ⁻¹(τ), with τ kept one rounding step away from 0 and 1 so that the result is finite."""
    info = torch.finfo(tau.dtype)
    return cast(Tensor, torch.special.ndtri(tau.clamp(info.tiny, 1 - info.eps / 2)))


def bivariate_normal_cdf(h: Tensor, k: Tensor, rho: Tensor) -> Tensor:
    """Φ₂(h, k; ρ) = P(X ≤ h, Y ≤ k) for standard normals with correlation ρ in (−1, 1).

    By Owen's T function (Owen 1956, eq. 2.1), to about 1e-15; differentiable in all three arguments.

    Shapes: broadcast together.
    """
    h, k, rho = torch.broadcast_tensors(h, k, rho)  # type: ignore[no-untyped-call]
    return cast(Tensor, _BivariateNormalCdf.apply(h, k, rho))  # type: ignore[no-untyped-call]


class _BivariateNormalCdf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, k: Tensor, rho: Tensor) -> Tensor:
        ctx.save_for_backward(h, k, rho)
        return _phi2_by_owen(h.double(), k.double(), rho.double()).to(h.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        # ∂Φ₂/∂h = φ(h) Φ((k − ρh)/√(1−ρ²)), its mirror in k, and ∂Φ₂/∂ρ = φ₂(h, k; ρ) (Plackett 1954).
        (grad,) = grad_outputs
        h, k, rho = ctx.saved_tensors
        root = (1 - rho.square()).clamp_min(torch.finfo(rho.dtype).tiny).sqrt()
        k_given_h = (k - rho * h) / root
        h_given_k = (h - rho * k) / root
        density = phi(h) * phi(k_given_h) / root
        return grad * phi(h) * normal_cdf(k_given_h), grad * phi(k) * normal_cdf(h_given_k), grad * density


def _phi2_by_owen(h: Tensor, k: Tensor, rho: Tensor) -> Tensor:
    # At h = k = 0 the ratios below are 0/0; a shift far below rounding picks their limit.
    h = torch.where(h.abs() < 1e-150, 1e-150, h)
    k = torch.where(k.abs() < 1e-150, 1e-150, k)
    root = (1 - rho.square()).clamp_min(torch.finfo(rho.dtype).tiny).sqrt()
    opposite = (h * k < 0).to(h.dtype)
    sum_of_marginals = torch.special.ndtr(h) + torch.special.ndtr(k)
    t_h = _owen_t(h, (k - rho * h) / root)
    t_k = _owen_t(k, (h - rho * k) / root)
    result: Tensor = 0.5 * (sum_of_marginals - opposite) - t_h - t_k
    return result.clamp(0, 1)


def _owen_t(h: Tensor, ah: Tensor) -> Tensor:
    """T(h, a) with the slope given as the product a·h, which stays finite where a does not.

    |a| ≤ 1 is integrated; |a| > 1 is folded by T(h, a) = ½Φ(h) + ½Φ(ah) − Φ(h)Φ(ah) − T(ah, 1/a), a ≥ 0, h ≥ 0.
    """
    sign = torch.where(h * ah < 0, -1.0, 1.0).to(h.dtype)
    h, ah = h.abs(), ah.abs()
    folded = ah > h
    inner, outer = torch.where(folded, ah, h), torch.where(folded, h, ah)
    slope = outer / inner.clamp_min(torch.finfo(h.dtype).tiny)
    direct = _owen_t_integral(inner, slope)
    below, above = torch.special.ndtr(h), torch.special.ndtr(ah)
    return sign * torch.where(folded, 0.5 * (below + above) - below * above - direct, direct)


def _owen_t_integral(h: Tensor, a: Tensor) -> Tensor:
    """T(h, a) = (2π)⁻¹ ∫₀ᵃ exp(−½h²(1+x²)) / (1+x²) dx for 0 ≤ a ≤ 1, by 32 Gauss-Legendre nodes."""
    nodes, weights = _NODES.to(h.device), _WEIGHTS.to(h.device)
    x = 0.5 * a.unsqueeze(-1) * (nodes + 1)
    one_plus = 1 + x.square()
    integrand = torch.exp(-0.5 * h.square().unsqueeze(-1) * one_plus) / one_plus
    return 0.5 * a * (integrand * weights).sum(-1) / (2 * math.pi)
