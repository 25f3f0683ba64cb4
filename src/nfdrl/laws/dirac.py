"""DQN (Mnih et al. 2015): the return law is a point mass at its mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from nfdrl.laws.base import Law, LinearHead, Method, select_rows
from nfdrl.numerics.atoms import bellman_coefficients, common_shape


@final
@dataclass(frozen=True, eq=False)
class DiracLaw(Law):
    """All mass at `value`; shape (...)."""

    value: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """The shape of `mean()`."""
        return self.value.shape

    @property
    def reference(self) -> Tensor:
        """The value."""
        return self.value

    def mean(self) -> Tensor:
        """The value itself."""
        return self.value

    def variance(self) -> Tensor:
        """Zero."""
        return torch.zeros_like(self.value)

    def _quantile(self, tau: Tensor) -> Tensor:
        return self.value.unsqueeze(-1).expand(common_shape((*self.batch_shape, 1), tau.shape))

    def _cdf(self, y: Tensor) -> Tensor:
        return (self.value.unsqueeze(-1) <= y).to(self.value.dtype)

    def _cvar(self, alpha: Tensor) -> Tensor:
        return self._quantile(alpha)

    def select(self, action: Tensor | int) -> DiracLaw:
        """The laws of the chosen actions."""
        return DiracLaw(select_rows(self.value, action, event_dims=0))

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> DiracLaw:
        """The point reward + discount · value."""
        shift, scale = bellman_coefficients(reward, discount, self.value)
        return DiracLaw(shift + scale * self.value)


@final
class DiracHead(LinearHead):
    """One linear output an action."""

    def __init__(self, features: int, actions: int) -> None:
        super().__init__(features, actions, 1)

    def read(self, raw: Tensor) -> DiracLaw:
        """The point laws of all actions."""
        return DiracLaw(raw)


@final
@dataclass(frozen=True)
class DQN(Method):
    """Q-learning on the mean (Mnih et al. 2015, Algorithm 1)."""

    name: ClassVar[str] = "dqn"

    huber_threshold: float | None = 1.0  # Mnih et al. 2015, Methods: error clipped to [−1, 1]; None is the plain square

    def head(self, features: int, actions: int) -> DiracHead:
        """A linear head."""
        return DiracHead(features, actions)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """½u² of the difference u of means, straight beyond the threshold; shape (...)."""
        means = predicted.mean(), target.mean()
        if self.huber_threshold is None:
            return 0.5 * nn.functional.mse_loss(*means, reduction="none")
        return nn.functional.huber_loss(*means, reduction="none", delta=self.huber_threshold)
