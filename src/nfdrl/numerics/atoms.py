"""Finite atomic laws: Σ masses · δ(atoms), with atoms in any order.

Masses and atoms have shapes that broadcast to (..., K); points have shape (..., P) and give (..., P).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nfdrl.errors import check_discount


def common_shape(*shapes: Sequence[int]) -> torch.Size:
    """The shape to which all the given shapes broadcast."""
    shape: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return shape


def midpoints(n: int, like: Tensor) -> Tensor:
    """The levels (k+½)/n, k = 0..n−1, at the middle of n equal masses; shape (n,).

    >>> midpoints(2, torch.zeros(()))
    tensor([0.2500, 0.7500])
    """
    return (torch.arange(n, dtype=like.dtype, device=like.device) + 0.5) / n


def equal_masses(atoms: Tensor) -> Tensor:
    """The mass 1/K for each of the K atoms; shape (K,)."""
    return atoms.new_full(atoms.shape[-1:], 1 / atoms.shape[-1])


def bellman_coefficients(reward: Tensor | float, discount: Tensor | float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Reward and discount as tensors of the dtype and device of `like`; the discount is checked."""
    shift = torch.as_tensor(reward, dtype=like.dtype, device=like.device)
    scale = torch.as_tensor(discount, dtype=like.dtype, device=like.device)
    check_discount(scale)
    return shift, scale


def bootstrap_atoms(atoms: Tensor, reward: Tensor | float, discount: Tensor | float) -> Tensor:
    """The atoms of reward + discount · Z; shapes (..., K), (...), (...) → (..., K)."""
    shift, scale = bellman_coefficients(reward, discount, atoms)
    return shift.unsqueeze(-1) + scale.unsqueeze(-1) * atoms


def atomic_mean(masses: Tensor, atoms: Tensor) -> Tensor:
    """Σ masses · atoms; shape (...)."""
    return (masses * atoms).sum(-1)


def atomic_variance(masses: Tensor, atoms: Tensor) -> Tensor:
    """Σ masses · (atoms − mean)²; shape (...)."""
    return atomic_mean(masses, (atoms - atomic_mean(masses, atoms).unsqueeze(-1)).square())


def atomic_cdf(masses: Tensor, atoms: Tensor, y: Tensor) -> Tensor:
    """P(Z ≤ y): the mass of all atoms that are not above y."""
    masses, atoms, y = _sorted(masses, atoms, y)
    below = torch.searchsorted(atoms.detach(), y.detach(), right=True)
    return _with_zero(masses.cumsum(-1)).gather(-1, below).clamp(max=1)


def atomic_quantile(masses: Tensor, atoms: Tensor, tau: Tensor) -> Tensor:
    """The generalised inverse inf{y : P(Z ≤ y) ≥ tau}: a step function whose values are atoms."""
    masses, atoms, tau = _sorted(masses, atoms, tau)
    return atoms.gather(-1, _step(masses, tau))


def atomic_cvar(masses: Tensor, atoms: Tensor, alpha: Tensor) -> Tensor:
    """The mean of the worst fraction alpha: α⁻¹ ∫₀^α F⁻¹(t) dt, exact.

    Whole atoms below the α-quantile, and of the atom at the quantile the mass that is still missing.
    """
    masses, atoms, alpha = _sorted(masses, atoms, alpha)
    step = _step(masses, alpha)
    mass_below = _with_zero(masses.cumsum(-1)).gather(-1, step)
    moment_below = _with_zero((masses * atoms).cumsum(-1)).gather(-1, step)
    return (moment_below + (alpha - mass_below) * atoms.gather(-1, step)) / alpha


def _sorted(masses: Tensor, atoms: Tensor, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Broadcast the batch axes of all three and bring the atoms into ascending order."""
    batch = common_shape(masses.shape[:-1], atoms.shape[:-1], points.shape[:-1])
    atoms, order = atoms.expand(*batch, -1).sort(-1)
    masses = masses.expand(*batch, -1).gather(-1, order)
    return masses, atoms.contiguous(), points.expand(*batch, -1).contiguous()


def _step(masses: Tensor, level: Tensor) -> Tensor:
    """The index of the first atom at which the cumulative mass reaches `level`.

    Rounding of a cumulative sum must not push a level k/K past its own step: hence the relative slack.
    """
    inner_edges = masses.detach().cumsum(-1)[..., :-1].contiguous()
    slack = 1 - 4 * torch.finfo(level.dtype).eps
    return torch.searchsorted(inner_edges, level.detach() * slack)


def _with_zero(cumulative: Tensor) -> Tensor:
    return torch.nn.functional.pad(cumulative, (1, 0))
