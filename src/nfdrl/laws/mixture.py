"""Finite mixtures of Gaussians and atoms: the laws in which exact truth is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from nfdrl.errors import NfdrlError, check_finite
from nfdrl.laws.base import Law, capped_exp, checked_dtype, select_rows
from nfdrl.numerics.atoms import bellman_coefficients

MASS_TOLERANCE = 1e-6  # how far from 1 the masses may sum before they are refused
BISECTIONS = 100  # halvings of the bracket; a float64 has 53 bits, the rest covers a wide bracket


@final
class MixtureLaw(Law):
    """Z = mᵢ + sᵢ·N(0,1) with probability wᵢ; a component with sᵢ = 0 is an atom.

    Shapes: weights, means and stds are all (..., K), with batch shape (...).

    >>> law = MixtureLaw.atoms([0.3, 0.8], [0.5, 0.5])
    >>> round(law.mean().item(), 3), law.quantile(0.5).item(), law.cdf(0.3).item()
    (0.55, 0.3, 0.5)
    """

    def __init__(self, weights: Tensor, means: Tensor, stds: Tensor) -> None:
        weights, means, stds = _as_floats(weights), _as_floats(means), _as_floats(stds)
        if not (weights.shape == means.shape == stds.shape):
            shapes = ", ".join(str(tuple(t.shape)) for t in (weights, means, stds))
            raise NfdrlError(f"weights, means and stds must share one shape, got {shapes}")
        if weights.ndim == 0 or weights.shape[-1] == 0:
            raise NfdrlError(f"a mixture needs a last axis of components, got shape {tuple(weights.shape)}")
        for name, value in (("weights", weights), ("means", means), ("stds", stds)):
            check_finite(name, checked_dtype(value))
        if bool((stds < 0).any()):
            raise NfdrlError(f"stds must be at least 0, got {float(stds.min())}")
        self.weights, self.means, self.stds = _normalised(weights), means, stds
        # Whether every law of the batch is made of atoms alone.
        self.is_atomic = not bool(((stds > 0) & (self.weights > 0)).any())

    @classmethod
    def dirac(cls, value: Tensor | float) -> Self:
        """All mass on `value`; a tensor gives a batch of its shape."""
        means = _as_floats(value).unsqueeze(-1)
        return cls(torch.ones_like(means), means, torch.zeros_like(means))

    @classmethod
    def atoms(cls, values: Tensor | list[float], masses: Tensor | list[float]) -> Self:
        """Mass `masses[..., k]` on `values[..., k]`."""
        means = _as_floats(values)
        return cls(_as_floats(masses), means, torch.zeros_like(means))

    @classmethod
    def empirical(cls, samples: Tensor | list[float]) -> Self:
        """The empirical law of `samples` along the last axis; equal samples share an atom where there is one law."""
        values = _as_floats(samples)
        if values.ndim == 1 and values.shape[0] > 0:
            check_finite("samples", values)
            unique, counts = torch.unique(values, return_counts=True)
            return cls.atoms(unique, counts.to(values.dtype) / values.shape[0])
        return cls.atoms(values, torch.full_like(values, 1 / max(values.shape[-1:].numel(), 1)))

    @property
    def batch_shape(self) -> torch.Size:
        return self.weights.shape[:-1]

    @property
    def reference(self) -> Tensor:
        return self.means

    @property
    def has_atoms(self) -> bool:
        """Whether any law of the batch has a point of positive probability."""
        return bool(((self.stds == 0) & (self.weights > 0)).any())

    def mean(self) -> Tensor:
        """Σ wᵢ mᵢ."""
        return (self.weights * self.means).sum(-1)

    def variance(self) -> Tensor:
        """Σ wᵢ (sᵢ² + (mᵢ − mean)²)."""
        centred = self.means - self.mean().unsqueeze(-1)
        return (self.weights * (self.stds.square() + centred.square())).sum(-1)

    def cdf_left(self, y: Tensor | float) -> Tensor:
        """P(Z < y): the left limit of the CDF."""
        return self._at_returns(lambda at: self._mass_until(at, closed=False), y)

    def log_prob(self, y: Tensor | float) -> Tensor:
        """The log-density at `y`; NaN at NaN, and an error where the law has an atom."""
        return self._at_returns(self._log_prob, y)

    def pdf(self, y: Tensor | float) -> Tensor:
        """The density at `y`; an error where the law has an atom."""
        return capped_exp(self.log_prob(y))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`n` independent returns: a component by its weight, then a Gaussian step from its mean."""
        like = self.reference
        shape = (*self.batch_shape, n)
        uniform = torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device)
        cumulated = self.weights.cumsum(-1)
        component = _search(cumulated / cumulated[..., -1:], uniform, right=True)
        means, stds = self.means.gather(-1, component), self.stds.gather(-1, component)
        return means + stds * torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)

    def select(self, action: Tensor | int) -> Self:
        return type(self)(*(select_rows(t, action, 1) for t in (self.weights, self.means, self.stds)))

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> Self:
        shift, scale = (part.unsqueeze(-1) for part in bellman_coefficients(reward, discount, self.means))
        means = shift + scale * self.means
        return type(self)(self.weights.expand_as(means), means, (scale * self.stds).expand_as(means))

    def _cdf(self, y: Tensor) -> Tensor:
        return self._mass_until(y, closed=True)

    def _mass_until(self, y: Tensor, closed: bool) -> Tensor:
        """P(Z ≤ y), or P(Z < y) when not `closed`."""
        if self.is_atomic:
            values, before, _ = self._sorted_atoms()
            return _take(before, _search(values, self._spread(y), right=closed, clamp=False))
        at = y.unsqueeze(-1)
        means, stds, weights = (t.unsqueeze(-2) for t in (self.means, self.stds, self.weights))
        return (weights * _component_cdf(at, means, stds, closed)).sum(-1).clamp(0, 1)

    def _quantile(self, tau: Tensor) -> Tensor:
        """inf{y: P(Z ≤ y) ≥ τ}."""
        levels = self._spread(tau)
        if self.is_atomic:
            values, before, _ = self._sorted_atoms()
            return _take(values, _search(before[..., 1:], levels, right=False))
        reach = 9 * self.stds  # Φ(−9) < 1e-18: no level that a float64 holds apart from 0 and 1 is farther out
        low = (self.means - reach).amin(-1, keepdim=True).expand_as(levels)
        high = (self.means + reach).amax(-1, keepdim=True).expand_as(levels)
        smooth = _bisect(lambda y: self._mass_until(y, closed=True), levels, low, high)
        return self._snap_to_atoms(levels, smooth)

    def _snap_to_atoms(self, tau: Tensor, otherwise: Tensor) -> Tensor:
        """The atom whose jump P(Z < a) < τ ≤ P(Z ≤ a) covers the level, or else `otherwise`."""
        is_atom = (self.stds == 0) & (self.weights > 0)
        if not bool(is_atom.any()):
            return otherwise
        below, until = self._mass_until(self.means, closed=False), self._mass_until(self.means, closed=True)
        level = tau.unsqueeze(-1)
        hit = is_atom.unsqueeze(-2) & (below.unsqueeze(-2) < level) & (level <= until.unsqueeze(-2))
        chosen = self.means.gather(-1, hit.to(torch.uint8).argmax(-1))
        return torch.where(hit.any(-1), chosen, otherwise)

    def _cvar(self, alpha: Tensor) -> Tensor:
        """(E[Z 1{Z ≤ q}] + q(α − P(Z ≤ q)))/α at the quantile q of level α."""
        levels = self._spread(alpha)
        if self.is_atomic:
            values, before, moment = self._sorted_atoms()
            index = _search(before[..., 1:], levels, right=False)
            return (_take(moment, index) + _take(values, index) * (levels - _take(before, index))) / levels
        value = self._quantile(alpha)
        at = value.unsqueeze(-1)
        weights, means, stds = (t.unsqueeze(-2) for t in (self.weights, self.means, self.stds))
        # E[Z 1{Z ≤ q}] of one Gaussian is m Φ(u) − s φ(u), u = (q − m)/s; an atom has s = 0.
        standard = (at - means) / torch.where(stds > 0, stds, torch.ones_like(stds))
        density = torch.exp(-0.5 * standard.square()) / math.sqrt(2 * math.pi)
        below = _component_cdf(at, means, stds, closed=True)
        partial = (weights * (means * below - stds * density)).sum(-1)
        return (partial + value * (levels - (weights * below).sum(-1))) / levels

    def _log_prob(self, y: Tensor) -> Tensor:
        if self.has_atoms:
            raise NfdrlError("a law with an atom has no density: use its cdf")
        live = self.weights > 0
        weights, means = self.weights.unsqueeze(-2), self.means.unsqueeze(-2)
        stds = torch.where(live, self.stds, torch.ones_like(self.stds)).unsqueeze(-2)
        standard = (y.unsqueeze(-1) - means) / stds
        return torch.logsumexp(weights.log() - stds.log() - 0.5 * standard.square(), -1) - 0.5 * math.log(2 * math.pi)

    def _spread(self, points: Tensor) -> Tensor:
        """Points broadcast to one row per law: (..., N) → batch_shape + (N,)."""
        return points.expand(*np.broadcast_shapes(points.shape[:-1], self.batch_shape), points.shape[-1])

    def _sorted_atoms(self) -> tuple[Tensor, Tensor, Tensor]:
        """Values in order, and the mass and the first moment before each of them: both one entry longer."""
        values, order = self.means.sort(-1)
        masses = self.weights.gather(-1, order)
        zero = torch.zeros_like(masses[..., :1])
        before = torch.cat([zero, masses.cumsum(-1)], -1)
        moment = torch.cat([zero, (masses * values).cumsum(-1)], -1)
        last = before[..., 1:] >= before[..., -1:]  # rounding must leave no level beyond the last atom that has mass
        before = torch.cat([zero, torch.where(last, torch.ones_like(masses), before[..., 1:])], -1)
        return values, before, moment


def _as_floats(value: Tensor | list[float] | float) -> Tensor:
    tensor = torch.as_tensor(value)
    if isinstance(value, Tensor) and tensor.is_floating_point():
        return tensor
    return torch.as_tensor(value, dtype=torch.float64)


def _normalised(weights: Tensor) -> Tensor:
    """The weights over their sum, which must be 1 already, up to rounding."""
    if bool((weights < 0).any()):
        raise NfdrlError(f"masses must be at least 0, got {float(weights.min())}")
    total = weights.sum(-1, keepdim=True)
    wrong = (total - 1).abs() > MASS_TOLERANCE * (1 if weights.dtype == torch.float64 else 100)
    if bool(wrong.any()):
        raise NfdrlError(f"masses must sum to 1, got {float(total[wrong].flatten()[0]):.9g}")
    return weights / total


def _component_cdf(y: Tensor, means: Tensor, stds: Tensor, closed: bool) -> Tensor:
    """P(Z ≤ y) of each component, or P(Z < y) when not `closed`."""
    smooth = torch.special.ndtr((y - means) / torch.where(stds > 0, stds, torch.ones_like(stds)))
    step = (means <= y) if closed else (means < y)
    return torch.where(stds > 0, smooth, step.to(smooth.dtype))


def _bisect(cdf: Callable[[Tensor], Tensor], tau: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The least y in (low, high] with cdf(y) ≥ τ, to the last bit."""
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if bool(((middle <= low) | (middle >= high)).all()):
            break
        reached = cdf(middle) >= tau
        low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
    return high


def _search(ordered: Tensor, values: Tensor, *, right: bool, clamp: bool = True) -> Tensor:
    """Index of each value in its row of `ordered`; `clamp` keeps it inside the row."""
    batch = np.broadcast_shapes(ordered.shape[:-1], values.shape[:-1])
    rows = ordered.expand(*batch, ordered.shape[-1]).contiguous()
    index = torch.searchsorted(rows, values.expand(*batch, values.shape[-1]).contiguous(), right=right)
    return index.clamp(max=ordered.shape[-1] - 1) if clamp else index


def _take(rows: Tensor, index: Tensor) -> Tensor:
    return rows.expand(*index.shape[:-1], rows.shape[-1]).gather(-1, index)
