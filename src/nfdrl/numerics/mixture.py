"""The Gaussian-mixture CDF F, its logarithms, and its inverse.

Shapes throughout: points (..., K), mixture parameters (..., n) → (..., K).
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdrl.numerics.normal import SQRT_HALF, log_phi, normal_quantile, phi

MAX_NEWTON_STEPS = 200
TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)


def _standardise(z: Tensor, locations: Tensor, scales: Tensor) -> Tensor:
    # Components come before points: (..., n, K) keeps the long axis contiguous.
    return (z.unsqueeze(-2) - locations.unsqueeze(-1)) / scales.unsqueeze(-1)


def _log_weights(weights: Tensor) -> Tensor:
    return weights.clamp_min(torch.finfo(weights.dtype).tiny).log().unsqueeze(-1)


def mixture_cdf(z: Tensor, weights: Tensor, locations: Tensor, scales: Tensor) -> Tensor:
    """F(z) = Σ wᵢ Φ((z − μᵢ)/σᵢ)   (section CDF)."""
    return 0.5 * (weights.sum(-1, keepdim=True) + mixture_erf(z, weights, locations, scales))


def mixture_erf(z: Tensor, amplitudes: Tensor, locations: Tensor, scales: Tensor) -> Tensor:
    """Σ aᵢ erf((z − μᵢ)/(√2 σᵢ)), which is G(2F(z) − 1) for amplitudes aᵢ = G wᵢ."""
    return cast(Tensor, _MixtureErf.apply(z, amplitudes, locations, scales))  # type: ignore[no-untyped-call]


def erf_forward(z: Tensor, amplitudes: Tensor, locations: Tensor, scales: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The sum of `mixture_erf`, and what `erf_backward` needs."""
    rate = SQRT_HALF / scales
    # tᵢ = (z − μᵢ)/(√2 σᵢ), as one multiply-add over (..., n, K).
    t = torch.addcmul((-locations * rate).unsqueeze(-1), rate.unsqueeze(-1), z.unsqueeze(-2))
    component = torch.erf(t)
    # A product and a sum: a batched matrix product of such thin matrices takes three times as long.
    return (amplitudes.unsqueeze(-1) * component).sum(-2), (t, component, amplitudes, rate, scales)


def erf_backward(grad: Tensor, saved: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients in amplitudes, locations and scales, and e^{−t²} for the one in z.

    erf′(t) = (2/√π) e^{−t²};  ∂t/∂μᵢ = −1/(√2 σᵢ),  ∂t/∂σᵢ = −t/σᵢ.
    """
    t, component, amplitudes, rate, scales = saved
    row = grad.unsqueeze(-2)
    density = t.square().neg_().exp_()
    pulled = density * row
    slope = -TWO_OVER_SQRT_PI * amplitudes
    to_amplitudes = (component * row).sum(-1)
    to_locations = slope * rate * pulled.sum(-1)
    to_scales = slope / scales * (pulled * t).sum(-1)
    return to_amplitudes, to_locations, to_scales, density


class _MixtureErf(torch.autograd.Function):
    """Its own backward: autograd's would take three times as many passes."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, amplitudes: Tensor, locations: Tensor, scales: Tensor) -> Tensor:
        result, saved = erf_forward(z, amplitudes, locations, scales)
        ctx.save_for_backward(*saved)
        ctx.z_shape = z.shape
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        (grad,) = grad_outputs
        *parameters, density = erf_backward(grad, ctx.saved_tensors)
        _, _, amplitudes, rate, _ = ctx.saved_tensors
        to_z = None
        if ctx.needs_input_grad[0]:
            weight = (TWO_OVER_SQRT_PI * amplitudes * rate).unsqueeze(-2)
            to_z = (grad * torch.matmul(weight, density).squeeze(-2)).sum_to_size(ctx.z_shape)
        return to_z, *(part.sum_to_size(amplitudes.shape) for part in parameters)


def mixture_log_derivative(z: Tensor, weights: Tensor, locations: Tensor, scales: Tensor) -> Tensor:
    """log F′(z) = log Σ (wᵢ/σᵢ) φ((z − μᵢ)/σᵢ)."""
    log_terms = log_phi(_standardise(z, locations, scales)) - scales.log().unsqueeze(-1)
    return torch.logsumexp(_log_weights(weights) + log_terms, -2)


def mixture_log_tail(z: Tensor, weights: Tensor, locations: Tensor, scales: Tensor, upper: Tensor) -> Tensor:
    """log F(z), or log(1 − F(z)) where `upper`: the logarithm of whichever tail is asked for."""
    side = torch.where(upper, -1.0, 1.0).to(z.dtype).unsqueeze(-2)
    tails = torch.special.log_ndtr(side * _standardise(z, locations, scales))
    return torch.logsumexp(_log_weights(weights) + tails, -2)


def mixture_inverse(u: Tensor, weights: Tensor, locations: Tensor, scales: Tensor) -> Tensor:
    """z with F(z) = u for u in (0, 1); gradients by the implicit function theorem."""
    info = torch.finfo(u.dtype)
    u = u.clamp(info.tiny, 1 - info.eps / 2)
    with torch.no_grad():
        z = _solve(u, weights, locations, scales)
    # dz = (dlog u − ∂log F/∂θ dθ) / (log F)′, in whichever tail keeps its precision. The value of the
    # correction is zero. The floor keeps the gradient finite where F is flat to rounding.
    upper = u > 0.5
    log_target = torch.where(upper, torch.log1p(-u), u.log())
    residual = mixture_log_tail(z, weights, locations, scales, upper) - log_target
    with torch.no_grad():
        slope = _log_tail_slope(z, weights, locations, scales, upper)
        floor = 1e-10 if u.dtype == torch.float32 else 1e-30
        slope = torch.where(upper, -1.0, 1.0).to(z.dtype) * slope.abs().clamp_min(floor)
    return z - (residual - residual.detach()) / slope


def _log_tail_slope(z: Tensor, weights: Tensor, locations: Tensor, scales: Tensor, upper: Tensor) -> Tensor:
    log_slope = mixture_log_derivative(z, weights, locations, scales)
    log_slope = log_slope - mixture_log_tail(z, weights, locations, scales, upper)
    return torch.where(upper, -1.0, 1.0).to(z.dtype) * log_slope.exp()


def _solve(u: Tensor, weights: Tensor, locations: Tensor, scales: Tensor) -> Tensor:
    """Newton on the log-tail, kept inside a bracket by bisection.

    A mixture's quantile lies between the smallest and the largest quantile of its components, so the first
    bracket is exact and needs no search. A Newton step must stay inside and be at most half as long as the step
    before it; otherwise the bracket is halved. So either the step or the bracket shrinks each time.
    """
    upper = u > 0.5
    side = torch.where(upper, -1.0, 1.0).to(u.dtype)
    target = torch.where(upper, 1 - u, u)
    component_quantiles = locations.unsqueeze(-1) + scales.unsqueeze(-1) * normal_quantile(u).unsqueeze(-2)
    low, high = component_quantiles.aminmax(dim=-2)
    z, last = 0.5 * (low + high), high - low
    resolution = 4 * torch.finfo(u.dtype).eps
    for _ in range(MAX_NEWTON_STEPS):
        tail, density = _tail_and_density(z, weights, locations, scales, side)
        # Where F is flat, z is not determined to rounding: there the tail says when to stop.
        done = ((tail - target).abs() <= resolution * target) | (high - low <= resolution * (1 + z.abs()))
        if bool(done.all()):
            break
        too_high = side * (tail - target) > 0
        low, high = torch.where(too_high, low, z), torch.where(too_high, z, high)
        step = -side * tail * (tail / target).log() / density
        newton = z + step
        trusted = (newton > low) & (newton < high) & (step.abs() <= 0.5 * last.abs())  # false for NaN as well
        following = torch.where(trusted, newton, 0.5 * (low + high))
        last = following - z
        z = torch.where(done, z, following)
    return z


def _tail_and_density(
    z: Tensor, weights: Tensor, locations: Tensor, scales: Tensor, side: Tensor
) -> tuple[Tensor, Tensor]:
    """F(z) where side is +1, 1 − F(z) where it is −1, to full relative precision; and F′(z)."""
    standard = _standardise(z, locations, scales)
    tail = 0.5 * torch.erfc(standard * (-SQRT_HALF * side).unsqueeze(-2))
    density = phi(standard) / scales.unsqueeze(-1)
    row = weights.unsqueeze(-2)
    return torch.matmul(row, tail).squeeze(-2), torch.matmul(row, density).squeeze(-2)
