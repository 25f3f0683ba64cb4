"""The flow law beyond the paper: amplitudes without a sum to keep, and a location of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor, nn

from nfdrl.colours import PURPLE
from nfdrl.errors import NfdrlError
from nfdrl.laws.base import Law, LinearHead, Method
from nfdrl.laws.fitting import FIT_LEVELS, Fit, Track, Truths, fit_returns, quantiles_of
from nfdrl.laws.flow import MIN_SCALE, FlowLaw, initial_mixture, inverse_softplus
from nfdrl.laws.pushforward import PushforwardLaw
from nfdrl.losses.exact import Exact
from nfdrl.losses.l2 import L2
from nfdrl.losses.surrogate import Surrogate
from nfdrl.numerics.base_points import base_points
from nfdrl.numerics.constants import constant
from nfdrl.numerics.normal import SQRT_HALF, normal_cdf


def anchored_law(raw: Tensor, unit: float, anchor: float, start: float, pace: float) -> FlowLaw:
    """The law of y(z) = c + Σᵢ aᵢ[Φ((z − μᵢ)/σᵢ) − κᵢ], κᵢ = Φ(−μᵢ/√(s² + σᵢ²)), from raw outputs.

    c is the mean of y under noise N(0, s²): with the anchor s = 1 the law's mean, with s = 0 its median. Raw outputs are
    n amplitudes, n locations, n scales and c: aᵢ = |raw| · unit, μ = raw + spread, σ = MIN_SCALE + softplus,
    c = raw · unit. Zeros give a law that is nearly uniform, with aᵢ = start · unit.

    Shapes: (..., 3n + 1) → batch shape (...)
    """
    n = int(raw.shape[-1]) // 3
    if n < 1 or raw.shape[-1] != 3 * n + 1:
        raise NfdrlError(f"a flow law needs 3n + 1 raw outputs, got {raw.shape[-1]}")
    zero, paces = anchored_zero(n, start, pace, raw.dtype, raw.device)
    sizes, locations, free, center = torch.split(torch.addcmul(zero, paces, raw), [n, n, n, 1], -1)
    halves = (0.5 * unit) * sizes.abs()
    scales = MIN_SCALE + nn.functional.softplus(free)
    # Σ aᵢ(Φ − κᵢ) = Σ ½aᵢ(erf − eᵢ), with eᵢ = 2κᵢ − 1.
    anchors = torch.erf(-SQRT_HALF * locations * (anchor**2 + scales.square()).rsqrt())
    middle = unit * center.squeeze(-1) - (halves * anchors).sum(-1)
    bound = halves.sum(-1)
    weights = halves / bound.clamp_min(torch.finfo(raw.dtype).tiny).unsqueeze(-1)
    return FlowLaw(weights, locations, scales, bound, middle, validate=False)


@constant
def anchored_zero(n: int, start: float, pace: float, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """What is added to raw outputs so that zeros give the law that training starts from, and what multiplies them."""
    spread, width = initial_mixture(n)
    scale = inverse_softplus(width - MIN_SCALE)
    zero, paces = [start] * n + spread + [scale] * n + [0.0], [1.0] * n + [pace] * (2 * n) + [1.0]
    return torch.tensor(zero, dtype=dtype, device=device), torch.tensor(paces, dtype=dtype, device=device)


@final
class AnchoredHead(LinearHead):
    """A linear layer to 3n + 1 numbers per action, read as an anchored flow law."""

    def __init__(self, features: int, actions: int, components: int, *settings: float) -> None:
        super().__init__(features, actions, 3 * components + 1)
        self.settings = settings
        nn.init.normal_(self.linear.weight, std=0.01 / math.sqrt(features))
        nn.init.zeros_(self.linear.bias)

    def read(self, raw: Tensor) -> FlowLaw:
        return anchored_law(self.by_action(raw), *self.settings)


@final
@dataclass(frozen=True)
class AnchoredMethod(Method):
    """NFDRL with a law that has a location of its own and any amplitudes: rare returns keep their place."""

    comparison: Exact | Surrogate | L2 = field(default_factory=Exact)
    components: int = 4
    samples: int = 64
    points: str = "midpoint"
    unit: float = 1.0
    anchor: float = 0.5
    start: float = 0.25
    pace: float = 1.0
    rate: float = 7e-3

    @property
    def name(self) -> str:
        return "nfdrl"

    @property
    def label(self) -> str:
        return "NFDRL"

    @property
    def colour(self) -> str:
        return PURPLE

    @property
    def tabular_rate(self) -> float:
        return self.rate

    def head(self, features: int, actions: int) -> AnchoredHead:
        return AnchoredHead(features, actions, self.components, self.unit, self.anchor, self.start, self.pace)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:
        assert isinstance(predicted, PushforwardLaw)
        z = base_points(self.samples, self.points, like=predicted.reference, generator=generator)
        returns = target.at(z) if isinstance(target, PushforwardLaw) else target.quantile(normal_cdf(z))
        return self.comparison(predicted.at(z), returns) * self.gain()

    def gain(self) -> float:
        return self.comparison.gain(self.samples) / self.unit

    def within(self, low: float, high: float) -> AnchoredMethod:
        return replace(self, unit=(high - low) / 4)

    def representation(self) -> str:
        return f"anchored {self.components}"

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law:
        return fit_returns(self, quantiles_of(truths, FIT_LEVELS).to(torch.get_default_dtype()), fit, track)
