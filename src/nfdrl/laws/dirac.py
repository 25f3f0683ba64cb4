"""DQN (Mnih et al. 2015): the return law is a point mass at its mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from nfdrl.errors import NfdrlError, check_numbers
from nfdrl.laws.base import Law, LinearHead, Method, select_rows
from nfdrl.laws.fitting import Fit, Track, Truths
from nfdrl.numerics.atoms import bellman_coefficients, common_shape


@final
@dataclass(frozen=True, eq=False, repr=False)
class DiracLaw(Law):
    """All mass at `value`; shape (...)."""

    value: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        return self.value.shape

    @property
    def reference(self) -> Tensor:
        return self.value

    def mean(self) -> Tensor:
        return self.value

    def variance(self) -> Tensor:
        return torch.zeros_like(self.value)

    def _quantile(self, tau: Tensor) -> Tensor:
        return self.value.unsqueeze(-1).expand(common_shape((*self.batch_shape, 1), tau.shape))

    def _cdf(self, y: Tensor) -> Tensor:
        return (self.value.unsqueeze(-1) <= y).to(self.value.dtype)

    def _cvar(self, alpha: Tensor) -> Tensor:
        return self._quantile(alpha)

    def select(self, action: Tensor | int) -> DiracLaw:
        return DiracLaw(select_rows(self.value, action, event_dims=0))

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> DiracLaw:
        shift, scale = bellman_coefficients(reward, discount, self.value)
        return DiracLaw(shift + scale * self.value)


@final
class DiracHead(LinearHead):
    """One linear output per action."""

    def __init__(self, features: int, actions: int) -> None:
        super().__init__(features, actions, 1)

    def read(self, raw: Tensor) -> DiracLaw:
        return DiracLaw(raw)


@final
@dataclass(frozen=True)
class DQN(Method):
    """Q-learning on the mean (Mnih et al. 2015, Algorithm 1)."""

    name: ClassVar[str] = "dqn"
    label: ClassVar[str] = "DQN"
    tabular_rate: ClassVar[float] = 2e-2  # by its mean, best of 5e-3, 2e-2, 5e-2 on FrozenLake, 2,500 to 4,000 updates

    # error from which the loss grows linearly
    huber_threshold: float | None = 1.0  # Mnih et al. 2015, Methods: error clipped to [−1, 1]; None is the plain square

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.huber_threshold is not None and not self.huber_threshold > 0:
            raise NfdrlError(f"huber_threshold must be positive or None, got {self.huber_threshold}")

    def head(self, features: int, actions: int) -> DiracHead:
        return DiracHead(features, actions)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """½u² of the difference u of means, straight beyond the threshold; shape (...)."""
        means = predicted.mean(), target.mean()
        if self.huber_threshold is None:
            return 0.5 * nn.functional.mse_loss(*means, reduction="none")
        return nn.functional.huber_loss(*means, reduction="none", delta=self.huber_threshold)

    def without_huber(self) -> DQN:
        """The plain square."""
        return replace(self, huber_threshold=None)

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law:  # noqa: ARG002
        return DiracLaw(torch.stack([truth.mean() for truth in truths]))
