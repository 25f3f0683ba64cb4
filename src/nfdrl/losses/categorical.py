"""Categorical laws: projection onto a fixed support and the Kullback–Leibler loss."""

from __future__ import annotations

import torch
from torch import Tensor

from nfdrl.numerics.atoms import common_shape


def project(masses: Tensor, atoms: Tensor, support: Tensor) -> Tensor:
    """Split the mass of each atom over its two neighbours on an evenly spaced support (Bellemare et al. 2017, Eq. 7).

    b = (clip(atom) − v_min)/Δz is the position on the support, l = ⌊b⌋ its lower neighbour. The shares l+1−b and
    b−l keep all mass where b is an integer; with ⌊b⌋ and ⌈b⌉, which then coincide, it would be lost.

    Shapes: (..., M), (..., M) or (M,), (K,) → (..., K)
    """
    last = support.shape[0] - 1
    low, high = support[0], support[-1]
    position = (atoms - low) * (last / (high - low))
    position = position.clamp(0, last).expand(common_shape(atoms.shape, masses.shape))
    lower = position.detach().floor().clamp(max=last - 1)
    upper_share = position - lower
    index = lower.long()
    projected = masses.new_zeros((*position.shape[:-1], last + 1))
    projected = projected.scatter_add(-1, index, masses * (1 - upper_share))
    return projected.scatter_add(-1, index + 1, masses * upper_share)


def categorical_kl(log_masses: Tensor, target_masses: Tensor) -> Tensor:
    """KL(target ‖ predicted) = Σ m (log m − log p): the cross-entropy of Bellemare et al. 2017, Algorithm 1, minus
    the entropy of the target, so that equality gives 0; the gradient is the same.

    Shapes: (..., K), (..., K) → (...)
    """
    return (torch.xlogy(target_masses, target_masses) - target_masses * log_masses).sum(-1)
