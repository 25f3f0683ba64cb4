"""Laws of noise sent through a flow: what they share, and the law of several flows in a chain."""

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

    The flow after Φ⁻¹ is the quantile function, so quantiles need no search and sorted noise gives sorted samples.
    """

    bound: Tensor  # the range G: half the length of the support; shape `batch_shape`
    center: Tensor  # the middle of the support; shape `batch_shape`

    @property
    def batch_shape(self) -> torch.Size:
        return self.bound.shape

    @property
    def reference(self) -> Tensor:
        return self.bound

    @property
    @abstractmethod
    def unit(self) -> Flow:
        """The flow onto (0, 1), before it is rescaled."""

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
        unit = torch.where(bound > 0, bound, 1)
        inside = (((y - center) / unit).abs() < 1) & (bound > 0)
        # The quotient is made again from points inside alone: an infinite one would send NaN to the bound.
        ratio = (torch.where(inside, y, center) - center) / unit
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
        self.mixtures, self.bound = mixtures, bound
        self.center = torch.zeros_like(bound) if center is None else center

    @property
    def unit(self) -> Flow:
        """All mixture CDFs, with Φ⁻¹ between each two."""
        flows: list[Flow] = [self.mixtures[0]]
        for mixture in self.mixtures[1:]:
            flows += [Probit(), mixture]
        return Chain(tuple(flows))

    def at(self, z: Tensor) -> Tensor:
        return torch.addcmul(self.center.unsqueeze(-1), self.bound.unsqueeze(-1), 2 * self.unit.forward(z) - 1)

    def mean(self) -> Tensor:
        return self.at(base_points(self.POINTS, like=self.bound)).mean(-1)

    def variance(self) -> Tensor:
        return self.at(base_points(self.POINTS, like=self.bound)).var(-1, correction=0)

    def select(self, action: Tensor | int) -> Self:
        mixtures = tuple(
            MixtureCDF(*(select_rows(part, action, 1) for part in (m.weights, m.locations, m.scales)))
            for m in self.mixtures
        )
        return type(self)(mixtures, select_rows(self.bound, action, 0), select_rows(self.center, action, 0))

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> Self:
        center, bound = self._moved(reward, discount)
        return type(self)(self.mixtures, bound, center)
