"""QR-DQN (Dabney et al. 2018): equally likely atoms, learned as quantiles at midpoint levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from nfdrl.colours import PURPLE
from nfdrl.errors import NfdrlError, check_numbers
from nfdrl.laws.atomic import AtomicLaw
from nfdrl.laws.base import Law, LinearHead, Method, select_rows
from nfdrl.laws.fitting import Fit, Track, Truths, quantiles_of
from nfdrl.losses.pinball import quantile_huber
from nfdrl.numerics.atoms import bootstrap_atoms, equal_masses, midpoints


@final
@dataclass(frozen=True, eq=False, repr=False)
class QuantileLaw(AtomicLaw):
    """N atoms of mass 1/N; `values` of shape (..., N), the i-th learned at level (i+½)/N.

    The values of a head may cross, and the loss needs them in the head's order; everything else sorts them.
    The quantile function is the generalised inverse of the step CDF: constant, equal to the i-th smallest value, on
    (i/N, (i+1)/N].
    """

    values: Tensor

    @property
    def reference(self) -> Tensor:
        return self.values

    def mean(self) -> Tensor:
        """The average of the values (Dabney et al. 2018, Algorithm 1)."""
        return self.values.mean(-1)

    def weighted_atoms(self) -> tuple[Tensor, Tensor]:
        return equal_masses(self.values), self.values

    def select(self, action: Tensor | int) -> QuantileLaw:
        return QuantileLaw(select_rows(self.values, action, event_dims=1))

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> QuantileLaw:
        return QuantileLaw(bootstrap_atoms(self.values, reward, discount))


@final
class QuantileHead(LinearHead):
    """N linear outputs per action."""

    def __init__(self, features: int, actions: int, quantiles: int) -> None:
        super().__init__(features, actions, quantiles)

    def read(self, raw: Tensor) -> QuantileLaw:
        return QuantileLaw(self.by_action(raw))


@final
@dataclass(frozen=True)
class QRDQN(Method):
    """Quantile-regression Q-learning (Dabney et al. 2018, Algorithm 1)."""

    name: ClassVar[str] = "qr-dqn"
    label: ClassVar[str] = "QR-DQN"
    colour: ClassVar[str] = PURPLE
    tabular_rate: ClassVar[float] = 5e-2  # best of 5e-3, 2e-2, 5e-2 on FrozenLake after 2,500 to 4,000 updates

    # quantiles of a law
    quantiles: int = 200  # Dabney et al. 2018, Section 5 (Atari): N = 200
    # error from which the loss grows linearly
    huber_threshold: float = 1.0  # Dabney et al. 2018, QR-DQN-1: κ = 1; 0 is the pinball loss of QR-DQN-0

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.huber_threshold < 0:
            raise NfdrlError(f"huber_threshold must be at least 0, got {self.huber_threshold}")

    def head(self, features: int, actions: int) -> QuantileHead:
        return QuantileHead(features, actions, self.quantiles)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """Quantile Huber loss, summed over predicted and averaged over target quantiles; shape (...).

        A target that is not a quantile law is taken at its midpoint quantiles.
        """
        assert isinstance(predicted, QuantileLaw)
        levels = midpoints(predicted.values.shape[-1], predicted.values)
        values = target.values if isinstance(target, QuantileLaw) else target.quantile(levels)
        return quantile_huber(predicted.values, levels, values, self.huber_threshold)

    def without_huber(self) -> QRDQN:
        return replace(self, huber_threshold=0.0)

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law:  # noqa: ARG002
        """Midpoint quantiles: the nearest N equal atoms, in W₁ (Dabney et al. 2018, Lemma 2) and in Cramér."""
        return QuantileLaw(quantiles_of(truths, self.quantiles))
