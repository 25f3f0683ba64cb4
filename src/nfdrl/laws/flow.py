"""The normalizing-flow return law, its head, and the two NFDRL methods."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import Self

from nfdrl.colours import BLUE, GREEN, VERMILLION
from nfdrl.errors import NfdrlError, check_finite, check_positive
from nfdrl.laws.base import Law, LinearHead, Method, select_rows
from nfdrl.laws.direct import Direct
from nfdrl.laws.fitting import FIT_LEVELS, Fit, Track, Truths, fit_returns, quantiles_of
from nfdrl.laws.flow_raw import MIN_SCALE, Span, raw_loss, raw_returns, read_raw, zero_point
from nfdrl.laws.pushforward import ChainLaw, PushforwardLaw
from nfdrl.losses.cramer import Comparison, compare
from nfdrl.numerics.atoms import bellman_coefficients
from nfdrl.numerics.base_points import base_points
from nfdrl.numerics.flows import Flow, MixtureCDF
from nfdrl.numerics.mixture import mixture_erf
from nfdrl.numerics.normal import bivariate_normal_cdf, normal_cdf, normal_quantile

# By the comparison's kind: name, label, colour, and the tabular rate: NFDRL-E's is the best of 1e-2, 2e-2, 5e-2 on
# FrozenLake after 2,500 updates; the others' was not searched.
KNOWN: dict[str, tuple[str, str, str, float]] = {
    "surrogate": ("nfdrl-s", "NFDRL-S (surrogate)", BLUE, 2e-2),
    "exact": ("nfdrl-e", "NFDRL-E (exact)", VERMILLION, 1e-2),
    "l2": ("l2", "L²", GREEN, 2e-2),
}


@final
class FlowLaw(PushforwardLaw):
    """The law of y = center + G(2F(Z) − 1), Z ~ N(0, 1), with F a Gaussian-mixture CDF.

    >>> law = FlowLaw(torch.ones(1), torch.zeros(1), torch.ones(1), torch.tensor(10.0))  # uniform on (−10, 10)
    >>> [round(value.item(), 3) for value in (law.quantile(0.25), law.cvar(0.5), law.cdf(5.0), law.pdf(0.0))]
    [-5.0, -5.0, 0.75, 0.05]

    Mean, variance, quantiles and CVaR are closed forms; the CDF takes one monotone inversion.

    Shapes: weights, locations, scales (..., n); bound, center (...)
    """

    def __init__(
        self,
        weights: Tensor,
        locations: Tensor,
        scales: Tensor,
        bound: Tensor,
        center: Tensor | None = None,
        *,
        validate: bool = True,
    ) -> None:
        self._parts: tuple[Tensor, Tensor, Tensor, Tensor] | None = weights, locations, scales, bound
        self._raw: tuple[Tensor, Span] | None = None
        self._moves: tuple[Tensor, Tensor] | None = None
        self._center = center
        if validate:
            self._check()

    @property
    def weights(self) -> Tensor:
        """Mixture weights w; shape (..., n)."""
        return self._read()[0]

    @property
    def locations(self) -> Tensor:
        """Mixture locations μ; shape (..., n)."""
        return self._read()[1]

    @property
    def scales(self) -> Tensor:
        """Mixture scales σ; shape (..., n)."""
        return self._read()[2]

    @property
    def bound(self) -> Tensor:
        """The range G: half the length of the support; shape (...)."""
        return self._read()[3]

    @property
    def center(self) -> Tensor:
        """The middle of the support: 0 until a bootstrap moves it; shape (...)."""
        bound = self.bound
        return torch.zeros_like(bound) if self._center is None else self._center

    @property
    def batch_shape(self) -> torch.Size:
        """The shape of `mean()`."""
        return self.bound.shape if self._raw is None else self._raw[0].shape[:-1]

    @property
    def reference(self) -> Tensor:
        """One of the law's tensors, for its dtype and device."""
        return self.bound if self._raw is None else self._raw[0]

    def _read(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # Raw outputs are mapped when a parameter is first asked for: a law from which one action is selected never is.
        if self._parts is None:
            assert self._raw is not None
            weights, locations, scales, bound = read_raw(*self._raw)
            if self._moves is not None:
                self._center, discount = self._moves
                bound = discount * bound
            self._parts = weights, locations, scales, bound
        return self._parts

    def _check(self) -> None:
        shape = self.weights.shape
        if not shape or not shape == self.locations.shape == self.scales.shape:
            raise NfdrlError(
                "weights, locations and scales must share one shape (..., n), got "
                f"{tuple(shape)}, {tuple(self.locations.shape)}, {tuple(self.scales.shape)}"
            )
        if self.bound.shape != shape[:-1] or self.center.shape != shape[:-1]:
            raise NfdrlError(
                f"bound and center must have the batch shape {tuple(shape[:-1])}, "
                f"got {tuple(self.bound.shape)}, {tuple(self.center.shape)}"
            )
        for name in ("weights", "locations", "scales", "bound", "center"):
            check_finite(name, getattr(self, name))
        check_positive("scales", self.scales)
        check_positive("bound", self.bound)
        total = self.weights.sum(-1)
        if bool((self.weights < 0).any()) or bool(((total - 1).abs() > 1e-4).any()):
            raise NfdrlError("weights must be non-negative and sum to 1 along their last axis")

    @classmethod
    def from_raw(cls, raw: Tensor, initial_bound: float = 1.0, least_bound: float = 0.0) -> Self:
        """The law of raw head outputs: n weight logits, n locations, n scales, one range.

        All zeros give very nearly a uniform law on ± `initial_bound`: equal weights, locations spread over
        the bulk of the base noise, scales that fill the gaps between them.

        w = softmax, μ = raw + spread, σ = MIN_SCALE + softplus, and with a softplus that is 1 at zero
        G = least_bound + (initial_bound − least_bound) · softplus.

        Shapes: (..., 3n + 1) → batch shape (...)
        """
        n, left_over = divmod(raw.shape[-1] - 1, 3)
        if n < 1 or left_over:
            raise NfdrlError(f"a flow law needs 3n + 1 raw outputs, got {raw.shape[-1]}")
        return cls._of(raw, (least_bound, initial_bound - least_bound))

    @classmethod
    def _of(cls, raw: Tensor, span: Span) -> Self:
        law = cls.__new__(cls)
        law._raw, law._parts, law._center, law._moves = (raw, span), None, None, None
        return law

    @property
    def raw(self) -> tuple[Tensor, Span] | None:
        """The outputs of `from_raw` and what their range is made of, where the law is theirs."""
        return self._raw if self._moves is None else None

    @property
    def unit(self) -> Flow:
        """The mixture CDF."""
        return MixtureCDF(self.weights, self.locations, self.scales)

    def at(self, z: Tensor) -> Tensor:
        """Returns at base points `z`: G(2F − 1) is a sum of error functions with amplitudes G wᵢ."""
        if self._raw is not None and not z.requires_grad:
            returns = raw_returns(*self._raw, z)
            if self._moves is None:
                return returns
            reward, discount = self._moves
            return torch.addcmul(reward.unsqueeze(-1), discount.unsqueeze(-1), returns)
        amplitudes = self.bound.unsqueeze(-1) * self.weights
        return self.center.unsqueeze(-1) + mixture_erf(z, amplitudes, self.locations, self.scales)

    def mean(self) -> Tensor:
        """G(2 Σ wᵢ Φ(−μᵢ/√(1+σᵢ²)) − 1), moved to the center; 2Φ(a) − 1 = erf(a/√2)."""
        weights, locations, scales, bound = self._read()
        probits = -locations * torch.addcmul(_two(scales.dtype, scales.device), scales, scales, value=2).rsqrt()
        mean = bound * (weights * torch.erf(probits)).sum(-1)
        return mean if self._center is None else self._center + mean

    def variance(self) -> Tensor:
        """4G²(E[F(Z)²] − E[F(Z)]²), with E[F²] = Σᵢⱼ wᵢwⱼ Φ₂(aᵢ, aⱼ; 1/√((1+σᵢ²)(1+σⱼ²)))."""
        a, spread = self._probits(), (1 + self.scales.square()).rsqrt()
        rho = spread.unsqueeze(-1) * spread.unsqueeze(-2)
        joint = bivariate_normal_cdf(a.unsqueeze(-1), a.unsqueeze(-2), rho)
        marginal = normal_cdf(a)
        covariance = joint - marginal.unsqueeze(-1) * marginal.unsqueeze(-2)
        pairs = self.weights.unsqueeze(-1) * self.weights.unsqueeze(-2)
        return 4 * self.bound.square() * (pairs * covariance).sum((-1, -2)).clamp_min(0)

    def _cvar(self, alpha: Tensor) -> Tensor:
        # E[F(Z); Z ≤ Φ⁻¹(α)] = Σ wᵢ P(Xᵢ − Z ≤ 0, Z ≤ Φ⁻¹(α)), Xᵢ ~ N(μᵢ, σᵢ²) independent of Z.
        a, rho = self._probits(), -(1 + self.scales.square()).rsqrt()
        joint = bivariate_normal_cdf(a.unsqueeze(-2), normal_quantile(alpha).unsqueeze(-1), rho.unsqueeze(-2))
        partial = (self.weights.unsqueeze(-2) * joint).sum(-1)
        return self.center.unsqueeze(-1) + self.bound.unsqueeze(-1) * (2 * partial / alpha - 1)

    def _probits(self) -> Tensor:
        """aᵢ = −μᵢ/√(1+σᵢ²), so that E[Φ((Z − μᵢ)/σᵢ)] = Φ(aᵢ)."""
        return -self.locations * (1 + self.scales.square()).rsqrt()

    def select(self, action: Tensor | int) -> Self:
        """The laws of the chosen actions."""
        if self._raw is not None and self._moves is None:  # one gather instead of five
            raw, span = self._raw
            return self._of(select_rows(raw, action, 1), span)
        mixture = (select_rows(part, action, 1) for part in (self.weights, self.locations, self.scales))
        affine = (select_rows(part, action, 0) for part in (self.bound, self.center))
        return type(self)(*mixture, *affine, validate=False)

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> Self:
        """The law of reward + discount · Z: center and bound move, the masses stay (eq:target_bootstrap)."""
        if self._raw is not None and self._moves is None:  # its parameters may never be asked for
            law = self._of(*self._raw)
            law._moves = self._coefficients(reward, discount)
            return law
        center, bound = self._moved(reward, discount)
        return type(self)(self.weights, self.locations, self.scales, bound, center, validate=False)

    def _coefficients(self, reward: Tensor | float, discount: Tensor | float) -> tuple[Tensor, Tensor]:
        shift, scale = bellman_coefficients(reward, discount, self.reference)
        shape = self.batch_shape
        return (shift, scale) if shift.shape == scale.shape == shape else (shift.expand(shape), scale.expand(shape))


@lru_cache(maxsize=8)
def _two(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(2.0, dtype=dtype, device=device)


@final
class FlowHead(LinearHead):
    """A linear layer to (3n · n_flows + 1) numbers for each action, read as a flow law."""

    def __init__(
        self,
        features: int,
        actions: int,
        components: int,
        n_flows: int,
        initial_bound: float,
        least_bound: float = 0.0,
    ) -> None:
        super().__init__(features, actions, 3 * components * n_flows + 1)
        self.components, self.n_flows, self.bounds = components, n_flows, (initial_bound, least_bound)
        # Small outputs at the start: every law begins wide and smooth, whatever the features.
        nn.init.normal_(self.linear.weight, std=0.01 / math.sqrt(features))
        nn.init.zeros_(self.linear.bias)

    def read(self, raw: Tensor) -> Law:
        """The flow law of every action."""
        raw = self.by_action(raw)
        if self.n_flows == 1:
            return FlowLaw.from_raw(raw, *self.bounds)
        size = 3 * self.components
        laws = [
            FlowLaw.from_raw(torch.cat([raw[..., k * size : (k + 1) * size], raw[..., -1:]], -1), *self.bounds)
            for k in range(self.n_flows)
        ]
        mixtures = tuple(MixtureCDF(law.weights, law.locations, law.scales) for law in laws)
        return ChainLaw(mixtures, laws[0].bound)


@dataclass(frozen=True)
class FlowMethod(Method):
    """NFDRL: a flow law trained by a Cramér-type comparison of sampled returns."""

    comparison: Comparison = field(default_factory=Comparison)
    components: int = 4  # paper, table of hyper-parameters: n_components
    n_flows: int = 1  # paper, table of hyper-parameters: n_flows
    samples: int = 64  # ours: learns the laws of FrozenLake and MDP3 as closely as 128; the paper trains with 500
    points: str = "midpoint"  # removes the sampling noise the paper names as a cause of variance; paper: "random"
    terminal_std: float = 0.0  # not needed: both sides are smoothed alike; paper: 0.1
    initial_bound: float = 1.0  # the scale of the returns, where it is known
    held: float = 0.0  # share of it that the range G never gives up: with more than 0, rare returns keep their place

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        for name in ("components", "n_flows", "samples"):
            if getattr(self, name) < 1:
                raise NfdrlError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.initial_bound <= 0 or self.terminal_std < 0:
            raise NfdrlError("initial_bound must be positive and terminal_std non-negative")
        if not 0 <= self.held <= 1:
            raise NfdrlError(f"held must lie in [0, 1], got {self.held}")

    def head(self, features: int, actions: int) -> FlowHead:
        """A flow head."""
        least = self.held * self.initial_bound
        return FlowHead(features, actions, self.components, self.n_flows, self.initial_bound, least)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:
        """The comparison of both laws' returns at base points; one number a row."""
        assert isinstance(predicted, PushforwardLaw)
        z = base_points(self.samples, self.points, like=predicted.reference, generator=generator)
        returns, how = self._target_returns(target, z), self.comparison
        raw = predicted.raw if isinstance(predicted, FlowLaw) else None
        if raw is None or how.rooted or how.support != "shared" or returns.requires_grad:
            return compare(predicted.at(z), returns, how) * self.gain()
        return raw_loss(*raw, z, returns, how) * self.gain()

    def direct(self, generator: torch.Generator | None) -> Direct | None:
        """Compiled functions, where Numba is installed and the comparison is one that they have."""
        how = self.comparison
        held = how.distance == "exact" or (how.support == "shared" and how.bandwidth == 0)
        if self.n_flows > 1 or how.rooted or not held or find_spec("numba") is None:
            return None
        from nfdrl.laws.flow_direct import FlowDirect

        shift = zero_point(self.components, torch.float32, torch.device("cpu")).numpy()
        return FlowDirect(self, shift, MIN_SCALE, generator)

    def _target_returns(self, target: Law, z: Tensor) -> Tensor:
        if not isinstance(target, PushforwardLaw):
            return target.quantile(normal_cdf(z))
        y = target.at(z)
        if self.terminal_std > 0:
            # A Dirac is what termination leaves; the paper draws it as N(r, σ) (section target).
            y = y + self.terminal_std * (target.bound == 0).to(y.dtype).unsqueeze(-1) * z
        return y

    def gain(self) -> float:
        """What the distance is multiplied by.

        D² falls with the square of the number of grid points. Σ Ω (w − v)² (Appendix E) has the same minimum and
        a size that does not depend on the grid, so that Adam's ε and gradient clipping see the same numbers.
        """
        if self.comparison.distance != "surrogate":
            return 1.0
        on_grid = self.comparison.support == "shared"
        size = self.comparison.points(self.samples) if on_grid else self.samples
        return float(size if self.comparison.rooted else size**2)

    @property
    def _known(self) -> tuple[str, str, str, float]:
        return KNOWN[self.comparison.distance]

    @property
    def name(self) -> str:
        """NFDRL-S or NFDRL-E, by what it compares with."""
        return self._known[0]

    @property
    def label(self) -> str:
        """What a legend calls it."""
        return self._known[1]

    @property
    def colour(self) -> str:
        """The same in every figure."""
        return self._known[2]

    @property
    def tabular_rate(self) -> float:
        """Adam's first rate where a table of laws is learned."""
        return self._known[3]

    def within(self, low: float, high: float) -> FlowMethod:
        """The method whose laws begin on ± the larger of both."""
        return replace(self, initial_bound=max(abs(low), abs(high)))

    def representation(self) -> str:
        """The flow's shape and range."""
        return f"flow {self.components}x{self.n_flows} {self.initial_bound} {self.held}"

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law:
        """The fit to the truths' quantiles."""
        return fit_returns(self, quantiles_of(truths, FIT_LEVELS).to(torch.get_default_dtype()), fit, track)
