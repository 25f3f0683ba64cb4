"""Laws that are noise sent through a flow: what all of them share, and the one of several flows in a chain."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, final

import torch
from torch import Tensor
from typing_extensions import Self

from nfdrl.laws.base import DensityLaw, select_rows
from nfdrl.numerics.atoms import bellman_coefficients
from nfdrl.numerics.base_points import base_points
from nfdrl.numerics.flows import Affine, Chain, Flow, MixtureCDF, Probit, pushforward_log_prob
from nfdrl.numerics.normal import normal_cdf, normal_quantile


class PushforwardLaw(DensityLaw):
    """Standard normal noise sent through an increasing flow onto center ± bound.

    The flow is the quantile function after Φ⁻¹, so quantiles need no search and samples come out sorted.
    """

    @property
    @abstractmethod
    def unit(self) -> Flow:
        """The flow onto (0, 1), before it is rescaled."""

    @property
    @abstractmethod
    def bound(self) -> Tensor:
        """The range G: half the length of the support; shape `batch_shape`."""

    @property
    @abstractmethod
    def center(self) -> Tensor:
        """The middle of the support; shape `batch_shape`."""

    @abstractmethod
    def at(self, z: Tensor) -> Tensor:
        """Returns at base points `z`: y = center + G(2F(z) − 1).

        Shapes: (K,) or (..., K) → batch_shape + (K,)
        """

    def log_density_at(self, z: Tensor) -> Tensor:
        """Log-densities of the returns at base points (eq:target_bootstrap); of a point mass, without its −log 0."""
        bound = self.bound.unsqueeze(-1)
        return pushforward_log_prob(self.unit, z) - torch.where(bound > 0, 2 * bound, 1).log()

    def flow(self) -> Chain:
        """The whole chain as layers: F, then the rescaling f (and every bootstrap g folded into it)."""
        return Chain((self.unit, Affine(self.center - self.bound, 2 * self.bound)))

    def _quantile(self, tau: Tensor) -> Tensor:
        return self.at(normal_quantile(tau))

    def _cdf(self, y: Tensor) -> Tensor:
        u, inside, above = self._unit_position(y)
        return torch.where(inside, normal_cdf(self.unit.inverse(u)), above.to(u.dtype))

    def _log_prob(self, y: Tensor) -> Tensor:
        u, inside, _ = self._unit_position(y)
        log_density = self.log_density_at(self.unit.inverse(u))
        bound = self.bound.unsqueeze(-1)
        atom = (bound == 0) & (y == self.center.unsqueeze(-1))
        outside = torch.where(atom, math.inf, -math.inf).to(u.dtype)
        return torch.where(inside, log_density, outside)

    def _unit_position(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """u = (y − center + G)/2G inside the support, ½ elsewhere; whether y is inside; whether it is past the top."""
        center, bound = self.center.unsqueeze(-1), self.bound.unsqueeze(-1)
        ratio = (y - center) / torch.where(bound > 0, bound, 1)
        inside = (ratio.abs() < 1) & (bound > 0)
        return torch.where(inside, 0.5 * (ratio + 1), 0.5), inside, y - center >= bound

    def _moved(self, reward: Tensor | float, discount: Tensor | float) -> tuple[Tensor, Tensor]:
        shift, scale = bellman_coefficients(reward, discount, self.bound)
        return shift + scale * self.center, scale * self.bound


@final
class ChainLaw(PushforwardLaw):
    """Several mixture CDFs in a chain (`n_flows` > 1), carried back to the line between two by Φ⁻¹.

    The closed forms of `FlowLaw` need one mixture; here moments are midpoint quadratures in the base noise.
    """

    POINTS: ClassVar[int] = 2048

    def __init__(self, mixtures: tuple[MixtureCDF, ...], bound: Tensor, center: Tensor | None = None) -> None:
        self.mixtures, self._bound = mixtures, bound
        self._center = torch.zeros_like(bound) if center is None else center

    @property
    def bound(self) -> Tensor:
        """The range G."""
        return self._bound

    @property
    def center(self) -> Tensor:
        """The middle of the support."""
        return self._center

    @property
    def batch_shape(self) -> torch.Size:
        """The shape of `mean()`."""
        return self._bound.shape

    @property
    def reference(self) -> Tensor:
        """The bound, for its dtype and device."""
        return self._bound

    @property
    def unit(self) -> Flow:
        """All mixture CDFs, with Φ⁻¹ in between."""
        flows: list[Flow] = [self.mixtures[0]]
        for mixture in self.mixtures[1:]:
            flows += [Probit(), mixture]
        return Chain(tuple(flows))

    def at(self, z: Tensor) -> Tensor:
        """Returns at base points `z`."""
        return torch.addcmul(self.center.unsqueeze(-1), self.bound.unsqueeze(-1), 2 * self.unit.forward(z) - 1)

    def mean(self) -> Tensor:
        """The mean by quadrature."""
        return self.at(base_points(self.POINTS, like=self.bound)).mean(-1)

    def variance(self) -> Tensor:
        """The variance by quadrature."""
        return self.at(base_points(self.POINTS, like=self.bound)).var(-1, correction=0)

    def select(self, action: Tensor | int) -> Self:
        """The laws of the chosen actions."""
        mixtures = tuple(
            MixtureCDF(*(select_rows(part, action, 1) for part in (m.weights, m.locations, m.scales)))
            for m in self.mixtures
        )
        return type(self)(mixtures, select_rows(self.bound, action, 0), select_rows(self.center, action, 0))

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> Self:
        """The law of reward + discount · Z."""
        center, bound = self._moved(reward, discount)
        return type(self)(self.mixtures, bound, center)
