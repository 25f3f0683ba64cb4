"""QR-DQN (Dabney et al. 2018): equally likely atoms, learned as quantiles at midpoint levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from nfdrl.laws.atomic import AtomicLaw
from nfdrl.laws.base import Law, LinearHead, Method, select_rows
from nfdrl.losses.pinball import quantile_huber
from nfdrl.numerics.atoms import (
    bootstrap_atoms,
    equal_masses,
    midpoints,
)


@final
@dataclass(frozen=True, eq=False)
class QuantileLaw(AtomicLaw):
    """N atoms of mass 1/N; `values` of shape (..., N), the i-th learned at level (i+½)/N.

    The values of a head may cross, and the loss needs them in the head's order; everything else sorts them.
    The quantile function is the generalised inverse of the step CDF: constant, equal to the i-th smallest value, on
    (i/N, (i+1)/N].
    """

    values: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """The shape of `mean()`."""
        return self.values.shape[:-1]

    @property
    def reference(self) -> Tensor:
        """The values."""
        return self.values

    def mean(self) -> Tensor:
        """The average of the values (Dabney et al. 2018, Algorithm 1)."""
        return self.values.mean(-1)

    def weighted_atoms(self) -> tuple[Tensor, Tensor]:
        """Equal masses on the values."""
        return equal_masses(self.values), self.values

    def select(self, action: Tensor | int) -> QuantileLaw:
        """The laws of the chosen actions."""
        return QuantileLaw(select_rows(self.values, action, event_dims=1))

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> QuantileLaw:
        """The moved atoms reward + discount · value."""
        return QuantileLaw(bootstrap_atoms(self.values, reward, discount))


@final
class QuantileHead(LinearHead):
    """N linear outputs an action."""

    def __init__(self, features: int, actions: int, quantiles: int) -> None:
        super().__init__(features, actions, quantiles)

    def read(self, raw: Tensor) -> QuantileLaw:
        """The quantile laws of all actions."""
        return QuantileLaw(self.by_action(raw))


@final
@dataclass(frozen=True)
class QRDQN(Method):
    """Quantile-regression Q-learning (Dabney et al. 2018, Algorithm 1)."""

    name: ClassVar[str] = "qr-dqn"

    quantiles: int = 200  # Dabney et al. 2018, Section 5 (Atari): N = 200
    huber_threshold: float = 1.0  # Dabney et al. 2018, QR-DQN-1: κ = 1; 0 is the pinball loss of QR-DQN-0

    def head(self, features: int, actions: int) -> QuantileHead:
        """A linear head of `quantiles` values an action."""
        return QuantileHead(features, actions, self.quantiles)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """Quantile Huber loss, summed over predicted and averaged over target quantiles; shape (...).

        A target that is no quantile law is taken at its midpoint quantiles.
        """
        assert isinstance(predicted, QuantileLaw)
        levels = midpoints(predicted.values.shape[-1], predicted.values)
        values = target.values if isinstance(target, QuantileLaw) else target.quantile(levels)
        return quantile_huber(predicted.values, levels, values, self.huber_threshold)
