"""Law → action value: what an agent maximises when it chooses an action.

For every functional larger is better, and none asks a law for more than `Law` promises. It sees the return law of one
state-action pair, under the policy that law belongs to; `nfdrl.envs.cliff` says what that means for control.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.laws.base import Law
from nfdrl.numerics.constants import constant

BULK_CELLS = 192  # cells of equal probability: an atom's mass is seen to 1/384
TAIL_CELLS = 32  # halvings of the outermost cell on each side: a distortion may put its mass far out
MIN_CPW_EXPONENT = 0.28  # below 0.279 the weighting function is not monotone, and masses would be negative


class Risk(ABC):
    """A functional of a return law: a frozen dataclass with at most one number, written `name` or `name:number`."""

    name: ClassVar[str]

    @abstractmethod
    def __call__(self, law: Law) -> Tensor:
        """The value of each law; larger is better; shape `law.batch_shape`."""

    def __str__(self) -> str:
        return ":".join([self.name, *(_shortest(getattr(self, field)) for field in _numbers(type(self)))])


@final
@dataclass(frozen=True)
class Mean(Risk):
    """E[Z]: risk-neutral."""

    name: ClassVar[str] = "mean"

    def __call__(self, law: Law) -> Tensor:
        return law.mean()


@final
@dataclass(frozen=True)
class CVaR(Risk):
    """The mean of the worst fraction α of the returns (Rockafellar and Uryasev 2000); α = 1 is the mean."""

    name: ClassVar[str] = "cvar"
    alpha: float

    def __post_init__(self) -> None:
        _check_that(0 < self.alpha <= 1, "alpha", "lie in (0, 1]", self.alpha)

    def __call__(self, law: Law) -> Tensor:
        return law.mean() if self.alpha == 1 else law.cvar(self.alpha)


@final
@dataclass(frozen=True)
class VaR(Risk):
    """The return that is not exceeded with probability τ: the τ-quantile; ½ is the median."""

    name: ClassVar[str] = "var"
    tau: float

    def __post_init__(self) -> None:
        _check_that(0 < self.tau < 1, "tau", "lie strictly between 0 and 1", self.tau)

    def __call__(self, law: Law) -> Tensor:
        return law.quantile(self.tau)


class DistortedMean(Risk):
    """∫ y d(h∘F)(y) = ∫₀¹ F⁻¹(τ) dh(τ): the mean after h has distorted cumulative probability.

    h(τ) ≥ τ puts mass on bad returns and is risk-averse. Sampling levels β(u) with u uniform (Dabney et al. 2018b)
    is the same with β = h⁻¹.
    """

    @abstractmethod
    def distort(self, tau: Tensor) -> Tensor:
        """h(τ): increasing from h(0) = 0 to h(1) = 1."""

    def __call__(self, law: Law) -> Tensor:
        """Σₖ F⁻¹(τₖ)(h(tₖ₊₁) − h(tₖ)), where τₖ is the middle of the cell (tₖ, tₖ₊₁)."""
        values = _cell_quantiles(law)
        masses = self.distort(_cell_edges()).diff()
        return values @ masses.to(values)


@final
@dataclass(frozen=True)
class Wang(DistortedMean):
    """h(τ) = Φ(Φ⁻¹(τ) − η), or β(u) = Φ(Φ⁻¹(u) + η): negative η is risk-averse, 0 the mean, positive risk-seeking.

    The sign is that of Dabney et al. 2018b; Wang 2000 writes the same distortion on 1 − τ.
    N(m, s²) has the value m + ηs.
    """

    name: ClassVar[str] = "wang"
    eta: float

    def __post_init__(self) -> None:
        _check_that(math.isfinite(self.eta), "eta", "be finite", self.eta)

    def distort(self, tau: Tensor) -> Tensor:
        distorted: Tensor = torch.special.ndtr(torch.special.ndtri(tau) - self.eta)
        return distorted


@final
@dataclass(frozen=True)
class CPW(DistortedMean):
    """h(τ) = τ^η / (τ^η + (1−τ)^η)^{1/η} (Tversky and Kahneman 1992, Eq. 6): rare events at both ends weigh more.

    h acts on cumulative probability, without a reference point that separates gains from losses. Dabney et al. 2018b
    use the same curve for β, which is the inverse of this distortion: there rare events weigh less.
    """

    name: ClassVar[str] = "cpw"
    eta: float = 0.71  # Wu and Gonzalez 1996, as quoted by Dabney et al. 2018b

    def __post_init__(self) -> None:
        inside = MIN_CPW_EXPONENT <= self.eta <= 1
        _check_that(inside, "eta", f"lie between {MIN_CPW_EXPONENT} and 1", self.eta)

    def distort(self, tau: Tensor) -> Tensor:
        rises, falls = tau.pow(self.eta), (1 - tau).pow(self.eta)
        return rises / (rises + falls).pow(1 / self.eta)


@final
@dataclass(frozen=True)
class Entropic(Risk):
    """−β⁻¹ log E[exp(−βZ)] (Howard and Matheson 1972): positive β is risk-averse, 0 the mean, negative risk-seeking.

    β is per unit of return; N(m, s²) has the value m − βs²/2.
    """

    name: ClassVar[str] = "entropic"
    beta: float

    def __post_init__(self) -> None:
        _check_that(math.isfinite(self.beta), "beta", "be finite", self.beta)

    def __call__(self, law: Law) -> Tensor:
        """By log-sum-exp over the quantiles of cells, so that no exponential overflows."""
        if self.beta == 0:
            return law.mean()
        # For a small β the logarithm is near 0 and is then divided by β: a float32 would lose every digit.
        values = _cell_quantiles(law).double()
        log_masses = _cell_edges().diff().log().to(values)
        return (torch.logsumexp(log_masses - self.beta * values, -1) / -self.beta).to(law.reference.dtype)


@final
@dataclass(frozen=True)
class MeanVariance(Risk):
    """E[Z] − weight · Var[Z] (Markowitz 1952), the variance and not its root.

    The weight is per unit of return. With weight β/2 it is the second-order expansion of `Entropic(β)`, and equal to
    it for a normal law. It is not monotone: a law that is never worse may have a lower value.
    """

    name: ClassVar[str] = "mean-variance"
    weight: float

    def __post_init__(self) -> None:
        _check_that(math.isfinite(self.weight), "weight", "be finite", self.weight)

    def __call__(self, law: Law) -> Tensor:
        return law.mean() - self.weight * law.variance()


@final
@dataclass(frozen=True)
class Shortfall(Risk):
    """−P(Z < c): the chance of missing the return c, negated so that larger is better; a return of exactly c is enough.

    It sees only on which side of c a return lies, so it cannot tell apart most laws far from c.
    """

    name: ClassVar[str] = "below"
    threshold: float

    def __post_init__(self) -> None:
        _check_that(math.isfinite(self.threshold), "threshold", "be finite", self.threshold)

    def __call__(self, law: Law) -> Tensor:
        """By the CDF at the float just below c, which leaves out an atom at c itself."""
        kind = np.float64 if law.reference.dtype == torch.float64 else np.float32
        return -law.cdf(float(np.nextafter(kind(self.threshold), kind(-math.inf))))


RISKS: dict[str, type[Risk]] = {
    risk.name: risk for risk in (Mean, CVaR, VaR, Wang, CPW, Entropic, MeanVariance, Shortfall)
}


def parse_risk(text: str) -> Risk:
    """The risk functional written as `name` or `name:number`, which is also how `str` writes it.

    >>> parse_risk("cvar:0.1"), str(parse_risk("wang:-0.75")), str(parse_risk("cpw"))
    (CVaR(alpha=0.1), 'wang:-0.75', 'cpw:0.71')
    >>> parse_risk("cvr:0.1")
    Traceback (most recent call last):
        ...
    nfdrl.errors.NfdrlError: unknown risk 'cvr': did you mean 'cvar'? (known: mean, cvar, var, wang, cpw, ...)
    """
    name, colon, argument = text.partition(":")
    name = name.strip().lower().replace("_", "-")
    if name not in RISKS:
        raise unknown_name("risk", name, RISKS)
    kind = RISKS[name]
    numbers = _numbers(kind)
    if not colon:
        missing = [number for number, has_default in numbers.items() if not has_default]
        if missing:
            raise NfdrlError(f"risk {name!r} needs its {missing[0]}: write it as '{name}:number'")
        return kind()
    if not numbers:
        raise NfdrlError(f"risk {name!r} takes no number, got {argument!r}")
    try:
        value = float(argument)
    except ValueError:
        raise NfdrlError(f"{next(iter(numbers))} of risk {name!r} must be a number, got {argument!r}") from None
    return kind(*[value])


@constant
def _cell_edges() -> Tensor:
    """Levels 0 = t₀ < … < t₂₅₆ = 1: equal cells, the outermost of them halved repeatedly; float64."""
    bulk = torch.arange(1, BULK_CELLS, dtype=torch.float64) / BULK_CELLS
    tail = bulk[0] * 0.5 ** torch.arange(TAIL_CELLS, 0, -1, dtype=torch.float64)
    ends = torch.zeros(1, dtype=torch.float64)
    return torch.cat([ends, tail, bulk, 1 - tail.flip(0), 1 - ends])


def _cell_quantiles(law: Law) -> Tensor:
    """The quantile in the middle of each cell; shape batch_shape + (256,)."""
    edges = _cell_edges()
    levels = (0.5 * (edges[1:] + edges[:-1])).to(law.reference)
    # The last levels round to 1 in float32, where an unbounded law has no quantile.
    return law.quantile(levels.clamp(max=1 - torch.finfo(levels.dtype).eps))


def _numbers(kind: type[Risk]) -> dict[str, bool]:
    """The names of a functional's numbers, and whether each has a default."""
    return {field.name: field.default is not MISSING for field in fields(kind)}  # type: ignore[arg-type]


def _shortest(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def _check_that(holds: bool, name: str, rule: str, value: float) -> None:
    if not holds:
        raise NfdrlError(f"{name} must {rule}, got {value}")
