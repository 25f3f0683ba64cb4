"""Increasing one-dimensional flows that compose (eq:NF_general), with inverse and log-derivative."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from nfdrl.numerics.mixture import mixture_cdf, mixture_inverse, mixture_log_derivative
from nfdrl.numerics.normal import log_phi, normal_quantile


class Flow(ABC):
    """A strictly increasing, differentiable map of the line into the line; points are (..., K)."""

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """The image of `z`."""

    @abstractmethod
    def inverse(self, y: Tensor) -> Tensor:
        """The point whose image is `y`."""

    @abstractmethod
    def log_derivative(self, z: Tensor) -> Tensor:
        """The logarithm of the derivative at `z`."""


@dataclass(frozen=True)
class MixtureCDF(Flow):
    """F(z) = Σ wᵢ Φ((z − μᵢ)/σᵢ), onto (0, 1); parameters (..., n)."""

    weights: Tensor
    locations: Tensor
    scales: Tensor

    def forward(self, z: Tensor) -> Tensor:
        return mixture_cdf(z, self.weights, self.locations, self.scales)

    def inverse(self, y: Tensor) -> Tensor:
        """F⁻¹(y) by safeguarded Newton."""
        return mixture_inverse(y, self.weights, self.locations, self.scales)

    def log_derivative(self, z: Tensor) -> Tensor:
        return mixture_log_derivative(z, self.weights, self.locations, self.scales)


@dataclass(frozen=True)
class Affine(Flow):
    """z ↦ shift + scale · z with scale > 0; parameters (...).

    The rescaling f (shift −G, scale 2G) and the bootstrap g (shift r, scale γ) are both of this form.
    """

    shift: Tensor
    scale: Tensor

    def forward(self, z: Tensor) -> Tensor:
        return self.shift.unsqueeze(-1) + self.scale.unsqueeze(-1) * z

    def inverse(self, y: Tensor) -> Tensor:
        return (y - self.shift.unsqueeze(-1)) / self.scale.unsqueeze(-1)

    def log_derivative(self, z: Tensor) -> Tensor:
        return self.scale.log().unsqueeze(-1) + torch.zeros_like(z)


@dataclass(frozen=True)
class Probit(Flow):
    """u ↦ Φ⁻¹(u): carries (0, 1) back to the line between two CDF flows."""

    def forward(self, z: Tensor) -> Tensor:
        return normal_quantile(z)

    def inverse(self, y: Tensor) -> Tensor:
        return cast(Tensor, torch.special.ndtr(y))

    def log_derivative(self, z: Tensor) -> Tensor:
        return -log_phi(normal_quantile(z))


@dataclass(frozen=True)
class Chain(Flow):
    """Flows applied one after another; log-derivatives add up (eq:NF_general)."""

    flows: tuple[Flow, ...]

    def forward(self, z: Tensor) -> Tensor:
        for flow in self.flows:
            z = flow.forward(z)
        return z

    def inverse(self, y: Tensor) -> Tensor:
        for flow in reversed(self.flows):
            y = flow.inverse(y)
        return y

    def log_derivative(self, z: Tensor) -> Tensor:
        """Σ log-derivatives, each at the point that reaches its flow."""
        total = torch.zeros((), dtype=z.dtype, device=z.device)
        for flow in self.flows:
            total = total + flow.log_derivative(z)
            z = flow.forward(z)
        return total

    def then(self, flow: Flow) -> Chain:
        """This chain followed by one more flow."""
        return Chain((*self.flows, flow))


def pushforward_log_prob(flow: Flow, z: Tensor) -> Tensor:
    """Log-density at the image of `z` of standard normal noise sent through `flow` (eq:change_variable)."""
    return log_phi(z) - flow.log_derivative(z)
