"""A flow law with free amplitudes and a location of its own: it can hold rare returns that the paper's form loses.

The paper's form has n weights that sum to 1 and a range: n amplitudes for n + 1 outputs. Here the output that is left
over is a location. Nothing ties the range to the usual returns, so a tail may grow without moving the bulk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from nfdrl.colours import GREEN
from nfdrl.errors import NfdrlError, check_at_least, check_numbers, unknown_name
from nfdrl.laws.base import Law, LinearHead, Method, TabularDecay
from nfdrl.laws.fitting import FIT_LEVELS, Fit, Track, Truths, fit_returns, quantiles_of
from nfdrl.laws.flow import FlowLaw
from nfdrl.laws.pushforward import PushforwardLaw
from nfdrl.losses.continuous import Continuous
from nfdrl.losses.exact import Exact
from nfdrl.losses.l2 import L2
from nfdrl.losses.pinball import quantile_huber
from nfdrl.losses.surrogate import Surrogate
from nfdrl.numerics.atoms import midpoints
from nfdrl.numerics.base_points import RULES, base_points
from nfdrl.numerics.constants import constant
from nfdrl.numerics.normal import SQRT_HALF, normal_cdf

REACH = 2.5  # locations stay within ±REACH: 64 base points reach ±2.4, and no loss sees a component further out
NARROWEST = 0.005  # the least scale, half that of the paper's form: the jump between two atoms takes 0.2 % of the mass
WIDEST = 1.5  # the largest scale: across the base points a wider component is a straight line
AUXILIARY = 32  # quantiles beside a law on small images; the only number tried, on Asterix with seeds 10 and 11


def anchored_law(raw: Tensor, unit: float = 1.0, anchor: float = 0.5, start: float = 0.25) -> FlowLaw:
    """The law of y(z) = c + Σᵢ aᵢ[Φ((z − μᵢ)/σᵢ) − κᵢ], κᵢ = Φ(−μᵢ/√(s² + σᵢ²)), z ~ N(0, 1).

    c is the mean of y under noise N(0, s²): the law's mean for the anchor s = 1, its median for s = 0. Raw outputs are
    n amplitudes, n locations, n scales and c: a = |raw| · unit, μ = ±REACH · tanh(raw/REACH) with the sign of the raw
    amplitude, σ = NARROWEST + WIDEST · sigmoid(raw), c = raw · unit, each counted from where `anchored_zero` begins.

    Shapes: (..., 3n + 1) → batch shape (...)
    """
    n = int(raw.shape[-1]) // 3
    if n < 1 or raw.shape[-1] != 3 * n + 1:
        raise NfdrlError(f"a flow law needs 3n + 1 raw outputs, got {raw.shape[-1]}")
    moved = raw + anchored_zero(n, start, raw.dtype, raw.device)
    sizes, places, widths, center = torch.split(moved, [n, n, n, 1], -1)
    halves = (0.5 * unit) * sizes.abs()  # an amplitude that has reached zero still has a slope
    # A step without height has no slope in its location: where it is not needed it would lie for good. On its way
    # through zero it changes sides, and the law does not notice.
    places = torch.where(sizes < 0, -places, places)
    locations, scales = REACH * torch.tanh(places / REACH), NARROWEST + WIDEST * torch.sigmoid(widths)
    # Σ aᵢ(Φ − κᵢ) = Σ ½aᵢ(erf − eᵢ), eᵢ = 2κᵢ − 1.
    anchors = torch.erf(-SQRT_HALF * locations * (anchor**2 + scales.square()).rsqrt())
    middle = unit * center.squeeze(-1) - (halves * anchors).sum(-1)
    bound = halves.sum(-1)
    weights = halves / bound.clamp_min(torch.finfo(raw.dtype).tiny).unsqueeze(-1)
    return FlowLaw(weights, locations, scales, bound, middle, validate=False)


@constant
def anchored_zero(n: int, start: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What is added to raw outputs, so that zeros give the law that training starts from.

    n equal steps, evenly spread from −1.8 to 1.8 and hardly overlapping. The outermost ones hold 4 % of the mass each:
    a rare return finds a component in its place, and has to move none through the bulk, in which it would be undone.
    """
    places = [1.8 * (2 * k / (n - 1) - 1) if n > 1 else 0.0 for k in range(n)]
    width = min(1.0, 1.6 / n) - NARROWEST
    raw_places = [REACH * math.atanh(place / REACH) for place in places]
    zero = [start] * n + raw_places + [math.log(width / (WIDEST - width))] * n + [0.0]
    return torch.tensor(zero, dtype=dtype, device=device)


@final
class AnchoredHead(LinearHead):
    """A linear layer to 3n + 1 numbers per action, read as an anchored flow law, and to `auxiliary` quantiles."""

    def __init__(
        self, features: int, actions: int, components: int, settings: tuple[float, float, float], auxiliary: int = 0
    ) -> None:
        self.law_outputs = 3 * components + 1
        super().__init__(features, actions, self.law_outputs + auxiliary)
        self.settings = settings  # unit, anchor, start
        drawn = self._rows()[:, self.law_outputs :].clone()
        self.start_small()  # every law begins smooth
        self._rows()[:, self.law_outputs :] = drawn  # quantiles begin apart, which is what they are for

    def _rows(self) -> Tensor:
        """The weights of each output of each action; shape (A, outputs, features)."""
        weight = self.linear.weight.detach()
        return weight.view(self.actions, -1, weight.shape[-1])

    def read(self, raw: Tensor) -> FlowLaw:
        raw = self.by_action(raw)
        law = anchored_law(raw[..., : self.law_outputs], *self.settings)
        if raw.shape[-1] > self.law_outputs:
            law.auxiliary = self.settings[0] * raw[..., self.law_outputs :]
        return law


@final
@dataclass(frozen=True)
class AnchoredMethod(Method):
    """A flow law with free amplitudes and an anchored location, learned by a Cramér-type distance in its own units."""

    # distance between the predicted law and its target: continuous, exact, surrogate or l2
    comparison: Continuous | Exact | Surrogate | L2 = field(default_factory=Continuous)  # ours: closer laws than exact
    # components of the flow's mixture
    components: int = 4  # paper, table of hyper-parameters: n_components; 13 outputs per action, as many as the paper's
    # returns of each law that are compared
    samples: int = 64  # as NFDRL-S and NFDRL-E
    # where these are taken: midpoint, shifted or random
    points: str = "shifted"  # ours: with fixed points every probability is learned as a multiple of 1/samples
    # scale of the returns
    unit: float = 1.0  # about the standard deviation of returns: a quarter of their range, where that is known
    # where a law's location lies
    anchor: float = 0.5  # ours: between the mean (1), under which rare returns are lost, and the median (0)
    # spread of the first laws
    start: float = 0.25  # ours: first amplitudes in units; laws that start narrow fit FrozenLake more closely
    # what the distance is multiplied by: beside larger gradients Adam's ε is smaller
    gain: float = 1.0  # ours: with 16, three of ten seeds unlearn CartPole; the preset `atari` has 10
    # quantiles per action that are learned beside the law, to train the layers below; None: 32 on small images, else 0
    auxiliary: int | None = None  # ours: on MinAtar the features under a law's few outputs stay poor (docs/law.md)
    # weight of the squared error of the mean, whose slope is the number of rewards that it is off
    mean_weight: float = 0.0  # ours: 0.5 helps on MinAtar's SpaceInvaders and harms on Seaquest (docs/law.md)
    # size of a reward, by which that error is measured
    reward: float = 1.0  # root mean square of the rewards that are not 0 in the first steps

    def __post_init__(self) -> None:
        check_at_least(1, components=self.components, samples=self.samples)
        check_at_least(0, auxiliary=self.auxiliary or 0, mean_weight=self.mean_weight)
        for name in ("unit", "start", "gain", "reward"):
            if not getattr(self, name) > 0:
                raise NfdrlError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0 <= self.anchor <= 1:
            raise NfdrlError(f"anchor must lie in [0, 1], got {self.anchor}")
        if self.points not in RULES:
            raise unknown_name("points", self.points, RULES)
        check_numbers(self)

    @property
    def name(self) -> str:
        return "nfdrl"

    @property
    def label(self) -> str:
        return "NFDRL (anchored)"

    @property
    def colour(self) -> str:
        return GREEN

    @property
    def learning_rate(self) -> float:
        return (
            1e-3  # rare returns are seen few times: at 5e-4 a third of the cliff's falls is missing after 15,000 steps
        )

    @property
    def finite_rate(self) -> float:
        return 4e-3  # the cliff (seeds 20 to 29): at 1e-3 a sixth of the rare falls is missing after 15,000 steps

    @property
    def tabular_rate(self) -> float:
        return 4e-3  # FrozenLake (seeds 13 to 18): 0.0080, where 5.5e-3 leaves 0.0084; 2e-3 is too slow

    @property
    def tabular_decay(self) -> TabularDecay:
        return "cosine"  # MDP3 (seeds 11 and 12): 0.0072, where a linear fall leaves 0.0086

    @property
    def tabular_forgets(self) -> bool:
        return True  # FrozenLake (seeds 12 and 13): 2e-2 leaves 0.0107 instead of 0.0132, and 4e-3 the same 0.0080

    def head(self, features: int, actions: int) -> AnchoredHead:
        """An anchored flow head."""
        return AnchoredHead(
            features, actions, self.components, (self.unit, self.anchor, self.start), self.auxiliary or 0
        )

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:
        """The comparison of both laws' returns at base points, in units; the same for every scale of rewards."""
        assert isinstance(predicted, PushforwardLaw)
        z = base_points(self.samples, self.points, like=predicted.reference, generator=generator)
        how, levels = self.comparison, normal_cdf(z)
        y = predicted.at(z)
        returns = target.at(z) if isinstance(target, PushforwardLaw) else target.quantile(levels)
        distance = how(y, returns, levels=levels) if isinstance(how, Continuous) else how(y, returns)
        loss = distance * self.factor()
        if self.mean_weight:
            loss = loss + self.mean_factor() * (y - returns).mean(-1).square()
        beside = predicted.auxiliary if isinstance(predicted, FlowLaw) else None
        if beside is None:
            return loss
        count = beside.shape[-1]
        pinball = quantile_huber(beside, midpoints(count, beside), returns, threshold=0.0)
        return loss + self.auxiliary_factor(count) / self.unit * pinball

    def factor(self) -> float:
        """What makes a loss of the distance: the gain, in units."""
        return self.gain * self.comparison.gain(self.samples) / self.unit

    def auxiliary_factor(self, count: int) -> float:
        """What makes a loss of `count` pinball losses: ∫(F − G)² is twice their mean, up to what they cannot change."""
        return self.gain * 2 / count

    def mean_factor(self) -> float:
        """What makes a loss of the squared error of the mean: its slope, in units, counts rewards."""
        return 0.5 * self.gain * self.mean_weight / (self.unit * self.reward)

    def within(self, low: float, high: float) -> AnchoredMethod:
        """The method whose unit is a quarter of the range."""
        return replace(self, unit=(high - low) / 4)

    def of_rewards(self, size: float) -> AnchoredMethod:
        """The method that measures the error of the mean in rewards of that size, if it counts at all."""
        return replace(self, reward=size) if self.mean_weight else self

    def on_small_images(self) -> AnchoredMethod:
        """The method with auxiliary quantiles, unless their number is given."""
        return replace(self, auxiliary=AUXILIARY) if self.auxiliary is None else self

    def representation(self) -> str:
        return f"anchored flow {self.components}"

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law:
        """The fit to the truths' quantiles."""
        targets = quantiles_of(truths, FIT_LEVELS).to(torch.get_default_dtype())
        return fit_returns(replace(self, auxiliary=0), targets, fit, track)
