"""Laws made of finitely many atoms, whatever their parameters: what they have in common."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from nfdrl.laws.base import Law
from nfdrl.numerics.atoms import atomic_cdf, atomic_cvar, atomic_mean, atomic_quantile, atomic_variance


class AtomicLaw(Law):
    """A law given by masses on atoms, in any order."""

    @abstractmethod
    def weighted_atoms(self) -> tuple[Tensor, Tensor]:
        """Masses and atoms; shapes broadcast to (..., K)."""

    @property
    def batch_shape(self) -> torch.Size:
        return self.reference.shape[:-1]

    def mean(self) -> Tensor:
        """Σ mass · atom."""
        return atomic_mean(*self.weighted_atoms())

    def variance(self) -> Tensor:
        """Σ mass · (atom − mean)²."""
        return atomic_variance(*self.weighted_atoms())

    def _quantile(self, tau: Tensor) -> Tensor:
        return atomic_quantile(*self.weighted_atoms(), tau)

    def _cdf(self, y: Tensor) -> Tensor:
        return atomic_cdf(*self.weighted_atoms(), y)

    def _cvar(self, alpha: Tensor) -> Tensor:
        return atomic_cvar(*self.weighted_atoms(), alpha)
