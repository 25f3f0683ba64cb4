"""Methods on the raw outputs of a linear head, in NumPy: their means, their losses and the gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

import numpy as np
import torch

from nfdrl.bellman import Valuation
from nfdrl.engines.compiled import distances, flow
from nfdrl.engines.compiled.jit import Array, F
from nfdrl.engines.compiled.quantile import quantile_huber
from nfdrl.laws.anchored import NARROWEST, REACH, WIDEST, AnchoredMethod, anchored_zero
from nfdrl.laws.base import Method
from nfdrl.laws.categorical import C51
from nfdrl.laws.dirac import DQN
from nfdrl.laws.flow import MIN_SCALE, FlowMethod, zero_point
from nfdrl.laws.quantile import QRDQN
from nfdrl.losses.continuous import Continuous
from nfdrl.losses.distance import Distance
from nfdrl.losses.exact import Exact
from nfdrl.losses.grid import LARGEST_FORM, GridDistance, quadratic_form
from nfdrl.losses.surrogate import Surrogate
from nfdrl.numerics.base_points import SHIFTS, base_points, shifted_points
from nfdrl.numerics.kde import MARGIN
from nfdrl.risk import CVaR, Mean

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Bellman:
    """r + γZ per row (eq:bootstrap_Bellman), on whatever returns a law is made of."""

    reward: Array
    discount: Array  # 0 where the episode terminated

    def __call__(self, returns: Array) -> Array:
        """Shapes (B, M) or (M,) → (B, M)."""
        moved: Array = self.discount[:, None] * returns
        moved += self.reward[:, None]
        return moved

    @property
    def terminal(self) -> Array:
        """1 where the law is a point, 0 elsewhere; shape (B, 1)."""
        ended: Array = (self.discount[:, None] == 0).astype(np.float32)
        return ended


class Kernel(ABC):
    """What a linear head's raw outputs mean, and how the loss moves them; float32 arrays in and out."""

    def values(self, raw: Array, risk: Valuation) -> Array | None:
        """The values by which actions are chosen, or None if only the law can tell; (B, A, K) → (B, A)."""
        return self.means(raw) if isinstance(risk, Mean) else None

    @abstractmethod
    def means(self, raw: Array) -> Array:
        """Expected returns; shape (..., K) → (...)."""

    @abstractmethod
    def differentiate(self, raw: Array, following: Array, bellman: Bellman) -> tuple[Array, Array]:
        """The loss per row between a law and the Bellman target of another, and its gradient in `raw`.

        Shapes: (B, K), (B, K) → (B,), (B, K)
        """


Made = TypeVar("Made")


class Registry(Generic[Made]):
    """What is made for a method, by its class alone: one that derives from it may have another loss."""

    def __init__(self) -> None:
        self._makers: dict[type[Method], Callable[..., Made | None]] = {}

    def register(self, kind: type[Method]) -> Callable[[Callable[..., Made | None]], Callable[..., Made | None]]:
        """Make it by the decorated function for methods of this class."""

        def keep(maker: Callable[..., Made | None]) -> Callable[..., Made | None]:
            self._makers[kind] = maker
            return maker

        return keep

    def __call__(self, method: Method, *more: Any) -> Made | None:
        """What is made for a method with its settings; None where there is nothing."""
        maker = self._makers.get(type(method))
        return None if maker is None else maker(method, *more)


# The kernel of a method and the generator of its random numbers. Register one for a method of your own.
kernel_of: Registry[Kernel] = Registry()


@final
@dataclass(frozen=True)
class DiracKernel(Kernel):
    """`DQN`: the derivative of its loss is the error, clipped."""

    threshold: float | None

    def means(self, raw: Array) -> Array:
        return raw[..., 0]

    def differentiate(self, raw: Array, following: Array, bellman: Bellman) -> tuple[Array, Array]:
        """½u² of the error u, straight beyond the threshold."""
        error = raw - bellman(following)
        slope = error if self.threshold is None else error.clip(-self.threshold, self.threshold)
        # ½s² + |s|(|u| − |s|) = s(u − s/2) for the clipped error s, which has the sign of u.
        return (slope * (error - F(0.5) * slope))[:, 0], slope


@kernel_of.register(DQN)
def _dirac(method: DQN, _: torch.Generator | None) -> Kernel:
    return DiracKernel(method.huber_threshold)


@final
class CategoricalKernel(Kernel):
    """`C51`: the derivative of its loss in the logits is the difference of the masses."""

    def __init__(self, atoms: int, v_min: float, v_max: float) -> None:
        self.support = np.linspace(v_min, v_max, atoms, dtype=np.float32)
        self.step = (v_max - v_min) / (atoms - 1)

    def means(self, raw: Array) -> Array:
        found: Array = np.exp(log_softmax(raw)) @ self.support
        return found

    def differentiate(self, raw: Array, following: Array, bellman: Bellman) -> tuple[Array, Array]:
        """KL(projected target ‖ predicted) (Bellemare et al. 2017, Algorithm 1)."""
        target = self._project(np.exp(log_softmax(following)), bellman(self.support))
        log_masses = log_softmax(raw)
        entropy = target * np.log(np.where(target > 0, target, 1))
        return (entropy - target * log_masses).sum(-1), np.exp(log_masses) - target

    def _project(self, masses: Array, atoms: Array) -> Array:
        """Masses on the support from masses on other atoms (see `losses.categorical.project`)."""
        support = self.support
        position = (atoms.clip(support[0], support[-1]) - support[0]) / F(self.step)
        if not np.isfinite(position).all():  # such mass has no place, and the loss becomes NaN
            masses = np.where(np.isfinite(position), masses, F(np.nan))
            position = np.nan_to_num(position)
        left = position.astype(np.int64).clip(0, len(support) - 2)
        right = (position - left).astype(np.float32) * masses
        place = (left + len(support) * np.arange(len(masses))[:, None]).ravel()
        shares = [np.bincount(place + k, part.ravel(), masses.size) for k, part in ((0, masses - right), (1, right))]
        projected: Array = (shares[0] + shares[1]).reshape(masses.shape).astype(np.float32)
        return projected


def log_softmax(logits: Array) -> Array:
    """The logarithms of masses; along the last axis."""
    moved = logits - logits.max(-1, keepdims=True)
    result: Array = moved - np.log(np.exp(moved).sum(-1, keepdims=True))
    return result


@kernel_of.register(C51)
def _categorical(method: C51, _: torch.Generator | None) -> Kernel:
    return CategoricalKernel(method.atoms, method.v_min, method.v_max)


@final
@dataclass(frozen=True)
class QuantileKernel(Kernel):
    """`QRDQN`: every pair of quantiles."""

    threshold: float

    def means(self, raw: Array) -> Array:
        found: Array = raw.mean(-1)
        return found

    def differentiate(self, raw: Array, following: Array, bellman: Bellman) -> tuple[Array, Array]:
        return quantile_huber(raw, bellman(following), F(self.threshold))


@kernel_of.register(QRDQN)
def _quantile(method: QRDQN, _: torch.Generator | None) -> Kernel:
    return QuantileKernel(method.huber_threshold)


class BasePoints:
    """`base_points` and their levels, from a table: PyTorch's calls would take a twentieth of an update."""

    def __init__(self, n: int, rule: str, generator: torch.Generator | None) -> None:
        self.n, self.rule, self.generator = n, rule, generator
        self._shift = torch.zeros((), dtype=torch.int64)
        self._table: list[tuple[Array, Array]] = []
        if rule != "random":
            z = (
                shifted_points(n, torch.float32, CPU)
                if rule == "shifted"
                else base_points(n, like=torch.empty(0))[None]
            )
            self._table = [(row, flow.levels(row)) for row in z.numpy()]

    def __call__(self) -> tuple[Array, Array]:
        """Shapes (N,), (N,)."""
        if self.rule == "random":
            z = base_points(self.n, self.rule, like=torch.empty(0), generator=self.generator).numpy()
            return z, flow.levels(z)
        if self.rule == "shifted":
            self._shift.random_(SHIFTS, generator=self.generator)  # as torch.randint, which also makes a tensor
        return self._table[int(self._shift)]


@final
class FlowKernel(Kernel):
    """`FlowMethod` and `AnchoredMethod` with a distance that has no bandwidth, or one relative to a shared grid."""

    def __init__(
        self, method: FlowMethod | AnchoredMethod, law: Array, gain: float, generator: torch.Generator | None
    ) -> None:
        self.method, self._law, self._gain = method, law, F(gain)
        self._points = BasePoints(method.samples, method.points, generator)
        self._outputs = 3 * method.components + 1  # of a law; what comes after them are auxiliary quantiles
        self._terminal_std = method.terminal_std if isinstance(method, FlowMethod) else 0.0

    def values(self, raw: Array, risk: Valuation) -> Array | None:
        """Closed forms of the mean and of CVaR."""
        if isinstance(risk, CVaR) and risk.alpha < 1:
            level = F(torch.special.ndtri(torch.tensor(risk.alpha, dtype=torch.float64)).item())
            found: Array = flow.cvars(self._laws(raw), self._law, F(risk.alpha), level)
            return found.reshape(raw.shape[:-1])
        return super().values(raw, risk)

    def means(self, raw: Array) -> Array:
        found: Array = flow.means(self._laws(raw), self._law)
        return found.reshape(raw.shape[:-1])

    def _laws(self, raw: Array) -> Array:
        """The outputs of the laws alone, in one piece; shape (..., K) → (rows, 3n + 1)."""
        if raw.shape[-1] > self._outputs:
            raw = np.ascontiguousarray(raw[..., : self._outputs])
        return raw.reshape(-1, self._outputs)

    def differentiate(self, raw: Array, following: Array, bellman: Bellman) -> tuple[Array, Array]:
        """Both laws at the same base points, their distance, and its gradient."""
        method, rows, own = self.method, len(raw), self._laws(raw)
        z, levels = self._points()
        y, saved = flow.returns(np.concatenate([own, self._laws(following)]), self._law, z, rows)
        target = bellman(y[rows:])
        if self._terminal_std > 0:
            target += F(self._terminal_std) * bellman.terminal * z
        losses, slope = self._distance(y[:rows], target, levels)
        if isinstance(method, AnchoredMethod) and method.mean_weight:
            more, slopes = self._error_of_mean(y[:rows], target, method)
            losses, slope = losses + more, slope + slopes
        gradient: Array = flow.gradient(slope, own, self._law, z, saved)
        if raw.shape[-1] == self._outputs:
            return losses, gradient
        more, slopes = self._beside(np.ascontiguousarray(raw[:, self._outputs :]), target)
        return losses + more, np.concatenate([gradient, slopes], 1)

    def _error_of_mean(self, y: Array, target: Array, method: AnchoredMethod) -> tuple[Array, Array]:
        """The loss of the squared error of the mean, and its slope in each return."""
        factor, error = F(method.mean_factor()), (y - target).mean(-1, keepdims=True)
        return factor * error[:, 0] ** 2, factor * error * F(2 / y.shape[1])

    def _beside(self, quantiles: Array, target: Array) -> tuple[Array, Array]:
        """The loss of auxiliary quantiles, in units, and its slope in them."""
        assert isinstance(self.method, AnchoredMethod)
        factor = F(self.method.auxiliary_factor(quantiles.shape[-1]))
        losses, slopes = quantile_huber(quantiles, target / F(self.method.unit), F(0))
        return factor * losses, factor * slopes

    def _distance(self, y: Array, target: Array, levels: Array) -> tuple[Array, Array]:
        how = self.method.comparison
        if isinstance(how, Continuous):
            return distances.lines(y, target, levels, self._gain)
        if isinstance(how, Exact):
            return distances.merge(y, target, self._gain)
        size = how.points(self.method.samples)
        step_sum, intervals = F(how.margins), F(size - 1)
        if size <= LARGEST_FORM:
            offset, form = quadratic_form(how, size, torch.float32, CPU)
            masses, lefts, steps = distances.spread_masses(y, target, (intervals, step_sum, F(offset), len(form)))
            pull = masses @ form.numpy()
        else:
            width = (size - 1) * how.relative_bandwidth / how.margins
            masses, lefts, steps = distances.spread_masses(y, target, (intervals, step_sum, F(MARGIN * width), size))
            pull = how.pull(torch.from_numpy(masses), width).numpy()
        return distances.read_pull(masses, pull, lefts, steps, how.power == 1, self._gain)


@kernel_of.register(FlowMethod)
def _flow(method: FlowMethod, generator: torch.Generator | None) -> Kernel | None:
    if method.n_flows > 1 or method.action_value != "mean" or not _has_kernel(method.comparison):
        return None
    law = flow.law_of(zero_point(method.components, torch.float32, CPU).numpy(), MIN_SCALE, method.initial_bound)
    return FlowKernel(method, law, method.comparison.gain(method.samples), generator)


@kernel_of.register(AnchoredMethod)
def _anchored(method: AnchoredMethod, generator: torch.Generator | None) -> Kernel | None:
    if not _has_kernel(method.comparison):
        return None
    zero = anchored_zero(method.components, method.start, torch.float32, CPU).numpy()
    law = flow.law_of(zero, NARROWEST, method.unit, method.anchor, REACH, WIDEST)
    return FlowKernel(method, law, method.factor(), generator)


def _has_kernel(how: Distance) -> bool:
    on_samples = isinstance(how, Surrogate) and how.support != "shared"
    plain = isinstance(how, Continuous) or (isinstance(how, GridDistance | Exact) and how.bandwidth == 0)
    return plain and not how.rooted and not on_samples
