"""How one return fits one predicted law: the range of its probability level, and the CRPS.

Every function takes a law of batch shape (N,) and the N returns that came, and gives one number per pair.
"""

from __future__ import annotations

from functools import singledispatch

import torch
from torch import Tensor

from nfdrl.laws.atomic import AtomicLaw
from nfdrl.laws.base import Law
from nfdrl.laws.flow import FlowLaw
from nfdrl.numerics.atoms import midpoints
from nfdrl.numerics.normal import bivariate_normal_cdf, normal_cdf

LEVELS = 1024  # quantiles of a law whose CRPS has no closed form


def levels_of(law: Law, returns: Tensor, resolution: float = 0.0) -> tuple[Tensor, Tensor]:
    """P(Z < y − δ) and P(Z ≤ y + δ): the probability integral transform lies between them.

    With a resolution δ of 0 they differ only where y is an atom of the law.
    """
    below = torch.nextafter(returns - resolution, returns.new_tensor(-torch.inf))
    both = law.cdf(torch.stack([below, returns + resolution], -1)).clamp(0, 1)
    return both[..., 0], torch.maximum(both[..., 0], both[..., 1])


@singledispatch
def crps(law: Law, returns: Tensor) -> Tensor:
    """∫ (F(x) − 1{x ≥ y})² dx = 2 ∫₀¹ ρ_τ(y − F⁻¹(τ)) dτ, by the midpoint rule; lower is better.

    The continuous ranked probability score (Gneiting and Raftery 2007, eq. 20); ρ_τ is the pinball loss.
    """
    tau = midpoints(LEVELS, returns)
    error = returns.unsqueeze(-1) - law.quantile(tau)
    return 2 * (error * (tau - (error < 0).to(tau.dtype))).mean(-1)


@crps.register
def _atomic(law: AtomicLaw, returns: Tensor) -> Tensor:
    """Exact: between two neighbours among the atoms and y, F is constant."""
    masses, atoms = (part.expand(*law.batch_shape, -1) for part in law.weighted_atoms())
    atoms, order = torch.cat([atoms, returns.unsqueeze(-1)], -1).sort(-1)
    steps = torch.nn.functional.pad(masses, (0, 1)).gather(-1, order)
    above = (atoms >= returns.unsqueeze(-1)).to(atoms.dtype)
    return ((steps.cumsum(-1) - above).square()[..., :-1] * atoms.diff(dim=-1)).sum(-1)


@crps.register
def _flow(law: FlowLaw, returns: Tensor) -> Tensor:
    """E|Z − y| − ½E|Z − Z′|, both in closed form.

    E|Z − y| = E[Z] − y + 2α(y − CVaR(α)) with α = F(y), and ½E|Z − Z′| = E[Z(2U − 1)], U = Φ(z) the level of Z. Of the
    mixture F, E[F(z)Φ(z)] = Σ wᵢ P(μᵢ + σᵢX ≤ z, X′ ≤ z) is a sum of Φ₂.
    """
    eps = torch.finfo(returns.dtype).eps
    alpha = law.cdf(returns.unsqueeze(-1)).clamp(eps, 1 - eps)
    shortfall = (alpha * (returns.unsqueeze(-1) - law.cvar(alpha))).squeeze(-1)
    inside = (returns - law.center).abs() < law.bound
    beyond = torch.where(returns < law.center, torch.zeros_like(returns), returns - law.mean())
    apart = law.mean() - returns + 2 * torch.where(inside, shortfall, beyond)
    probit = -law.locations * (1 + law.scales.square()).rsqrt()
    joint = bivariate_normal_cdf(probit, torch.zeros_like(probit), (2 * (1 + law.scales.square())).rsqrt())
    return apart - law.bound * (law.weights * (4 * joint - 2 * normal_cdf(probit))).sum(-1)
