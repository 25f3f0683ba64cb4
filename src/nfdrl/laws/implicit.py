"""IQN (Dabney et al. 2018b): a network that maps a level τ to the quantile at τ."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from nfdrl.colours import SKY
from nfdrl.errors import NfdrlError, check_numbers
from nfdrl.laws.base import Head, Law, Method
from nfdrl.losses.pinball import quantile_huber
from nfdrl.numerics.atoms import atomic_cdf, atomic_variance, bellman_coefficients, equal_masses, midpoints

CDF_LEVELS = 512


@final
class QuantileNetwork(nn.Module):
    """f(ψ(x) ⊙ φ(τ)), φ(τ) = relu(Σᵢ wᵢ cos(πiτ) + b), i = 0..n−1 (Dabney et al. 2018b, Eq. 4)."""

    def __init__(self, features: int, actions: int, cosines: int, hidden: int) -> None:
        super().__init__()
        self.cosines = cosines
        self.embedding = nn.Linear(cosines, features)
        self.hidden = nn.Linear(features, hidden)
        self.output = nn.Linear(hidden, actions)

    def forward(self, features: Tensor, tau: Tensor) -> Tensor:
        """The layer before the output, for every level; shapes (..., F), (..., P) → (..., P, H)."""
        order = torch.arange(self.cosines, dtype=tau.dtype, device=tau.device)
        embedded = self.embedding(torch.cos(math.pi * order * tau.unsqueeze(-1))).relu()
        hidden: Tensor = self.hidden(features.unsqueeze(-2) * embedded).relu()
        return hidden

    def all_actions(self, features: Tensor, tau: Tensor) -> Tensor:
        """Quantiles of every action; levels (..., P), or (..., A, P) where each action has its own → (..., A, P)."""
        actions = self.output.out_features
        if tau.ndim < 2 or tau.shape[-2] == 1:
            shared = tau if tau.ndim < 2 else tau.squeeze(-2)
            values: Tensor = self.output(self(features, shared))
            return values.transpose(-1, -2)
        every = torch.arange(actions, device=tau.device)
        return self.one_action(features.unsqueeze(-2), tau, every)

    def one_action(self, features: Tensor, tau: Tensor, action: Tensor) -> Tensor:
        """Quantiles of the given actions, one row of the output layer each; (..., F), (..., P), (...) → (..., P)."""
        hidden: Tensor = self(features, tau)
        weight, bias = self.output.weight[action], self.output.bias[action]
        return (hidden @ weight.unsqueeze(-1)).squeeze(-1) + bias.unsqueeze(-1)


@final
@dataclass(frozen=True, eq=False, repr=False)
class ImplicitLaw(Law):
    """The law of shift + scale · q(U), U uniform: q is evaluated when asked for, at the levels asked for.

    `action` is None for the laws of all actions (batch shape (..., A)) and a tensor of shape (...) after `select`.
    The network's quantiles may cross. `quantile` and `cvar` read them as they are, as the authors do; mean and
    variance use `levels` midpoint levels, and so does `cvar` on (0, α); `cdf` is P(q(U) ≤ y) on a fine grid.

    A law made, selected or bootstrapped with gradients off is `frozen`: like a tensor made there, it sends no gradient
    to the network, however late it is evaluated. It does see later changes to the network's weights.
    """

    network: QuantileNetwork
    features: Tensor
    levels: int
    shift: Tensor
    scale: Tensor
    action: Tensor | None = None
    frozen: bool = field(default_factory=lambda: not torch.is_grad_enabled())

    @property
    def batch_shape(self) -> torch.Size:
        rows = self.features.shape[:-1]
        return rows if self.action is not None else torch.Size((*rows, self.network.output.out_features))

    @property
    def reference(self) -> Tensor:
        return self.features

    def mean(self) -> Tensor:
        """The average over the midpoint levels: deterministic, where the authors draw levels at random."""
        return self._grid(self.levels).mean(-1)

    def variance(self) -> Tensor:
        values = self._grid(self.levels)
        return atomic_variance(equal_masses(values), values)

    def _grid(self, n: int) -> Tensor:
        return self._quantile(midpoints(n, self.features))

    def _quantile(self, tau: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            if self.action is None:
                values = self.network.all_actions(self.features, tau)
            else:
                values = self.network.one_action(self.features, tau, self.action)
        return self.shift.unsqueeze(-1) + self.scale.unsqueeze(-1) * values

    def _cdf(self, y: Tensor) -> Tensor:
        values = self._grid(CDF_LEVELS)
        return atomic_cdf(equal_masses(values), values, y)

    def _cvar(self, alpha: Tensor) -> Tensor:
        inner = alpha.unsqueeze(-1) * midpoints(self.levels, alpha)
        values = self._quantile(inner.flatten(-2))
        return values.reshape(*values.shape[:-1], *inner.shape[-2:]).mean(-1)

    def select(self, action: Tensor | int) -> ImplicitLaw:
        if self.action is not None:
            raise NfdrlError("select needs a law with a batch axis for the actions: this one was already selected")
        rows = self.features.shape[:-1]
        index = torch.as_tensor(action, device=self.features.device).long().expand(rows)
        shift, scale = (
            value.expand(self.batch_shape).gather(-1, index.unsqueeze(-1)).squeeze(-1)
            for value in (self.shift, self.scale)
        )
        return replace(self, action=index, shift=shift, scale=scale, frozen=self._frozen_now())

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> ImplicitLaw:
        r, gamma = bellman_coefficients(reward, discount, self.features)
        return replace(self, shift=r + gamma * self.shift, scale=gamma * self.scale, frozen=self._frozen_now())

    def _frozen_now(self) -> bool:
        return self.frozen or not torch.is_grad_enabled()


@final
class ImplicitHead(Head):
    """A quantile network, evaluated lazily."""

    def __init__(self, features: int, actions: int, cosines: int, hidden: int, levels: int) -> None:
        super().__init__()
        self.network = QuantileNetwork(features, actions, cosines, hidden)
        self.levels = levels

    def forward(self, features: Tensor) -> ImplicitLaw:
        return ImplicitLaw(self.network, features, self.levels, features.new_zeros(()), features.new_ones(()))


@final
@dataclass(frozen=True)
class IQN(Method):
    """Implicit quantile Q-learning (Dabney et al. 2018b, Algorithm 1)."""

    name: ClassVar[str] = "iqn"
    label: ClassVar[str] = "IQN"
    colour: ClassVar[str] = SKY
    tabular_rate: ClassVar[float] = 3e-3  # best of 1e-3, 3e-3 on MDP3 after 1,000 updates
    embeds_states: ClassVar[bool] = True

    # levels of the predicted law in an update
    samples: int = 64  # N of Dabney et al. 2018b, Section 4: 64
    # levels of the target law in an update
    target_samples: int = 64  # N′ of Dabney et al. 2018b, Section 4: 64
    # levels over which a mean is taken
    acting_levels: int = 32  # K of Dabney et al. 2018b, Section 4: 32
    # cosines that embed a level
    cosines: int = 64  # n of Dabney et al. 2018b, Eq. 4: 64
    # width of the layer after the embedding
    hidden: int = 512  # Mnih et al. 2015: the fully connected layer, which here follows the product with φ(τ)
    # error from which the loss grows linearly
    huber_threshold: float = 1.0  # κ of Dabney et al. 2018b, Section 4: 1

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.huber_threshold < 0:
            raise NfdrlError(f"huber_threshold must be at least 0, got {self.huber_threshold}")

    def head(self, features: int, actions: int) -> ImplicitHead:
        return ImplicitHead(features, actions, self.cosines, self.hidden, self.acting_levels)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:
        """Quantile Huber loss at N random levels against N′ random quantiles of the target; shape (...)."""
        tau = predicted._random_levels(self.samples, generator)
        targets = target.sample(self.target_samples, generator)
        return quantile_huber(predicted._quantile(tau), tau, targets, self.huber_threshold)

    def without_huber(self) -> IQN:
        return replace(self, huber_threshold=0.0)
