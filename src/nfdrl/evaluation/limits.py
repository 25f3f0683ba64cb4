"""The best law that each family can hold: what no amount of learning can go below."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from nfdrl.envs.finite import Floats
from nfdrl.evaluation.distances import batch_distances
from nfdrl.laws.base import Law, Method
from nfdrl.laws.categorical import C51, CategoricalLaw
from nfdrl.laws.dirac import DQN, DiracLaw
from nfdrl.laws.expectile import ERDQN, ExpectileLaw
from nfdrl.laws.fitting import Fit, Track, fit_returns
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.fraction import FQF
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.monotone import UMDQN, MonotoneLaw
from nfdrl.laws.quantile import QRDQN, QuantileLaw
from nfdrl.losses.categorical import project
from nfdrl.numerics.atoms import equal_masses, midpoints

LEVELS = 4096  # quantiles that stand for an exact law where its family's best law is computed from them
FIT_LEVELS = 512  # quantiles of the exact law that a flow is fitted to
BISECTIONS = 60


def family_limits(method: Method, truths: Sequence[MixtureLaw], fit: Fit, track: Track) -> Floats | None:
    """The Cramér distance to each truth of the best law of the method's family; None where nothing limits it."""
    law = best_law(method, truths, fit, track)
    return None if law is None else batch_distances(law, truths)["cramer"]


@singledispatch
def best_law(method: Method, truths: Sequence[MixtureLaw], fit: Fit, track: Track) -> Law | None:  # noqa: ARG001
    """The law that the method would have if it knew the truths; batch shape (P,).

    None for IQN: a network of the level stands for any quantile function.
    """
    return None


@best_law.register
def _dirac(_: DQN, truths: Sequence[MixtureLaw], *__: Any) -> Law:
    return DiracLaw(torch.stack([truth.mean() for truth in truths]))


@best_law.register
def _categorical(method: C51, truths: Sequence[MixtureLaw], *_: Any) -> Law:
    """The projection, which is the nearest law on the support in Cramér distance (Rowland et al. 2018, Section 3.2)."""
    values = _quantiles(truths, LEVELS)
    support = torch.linspace(method.v_min, method.v_max, method.atoms, dtype=values.dtype)
    masses = project(equal_masses(values), values, support)
    return CategoricalLaw(masses.clamp_min(torch.finfo(masses.dtype).tiny).log(), support)


@best_law.register
def _quantile(method: QRDQN, truths: Sequence[MixtureLaw], *_: Any) -> Law:
    """Quantiles at midpoint levels: the nearest N equal atoms, in W1 (Dabney et al. 2018, Lemma 2) and in Cramér."""
    return QuantileLaw(_quantiles(truths, method.quantiles))


@best_law.register
def _fraction(method: FQF, truths: Sequence[MixtureLaw], *_: Any) -> Law:
    """Even fractions, at which training starts and which the published rate of 2.5e-9 does not leave."""
    return QuantileLaw(_quantiles(truths, method.fractions))


@best_law.register
def _expectile(method: ERDQN, truths: Sequence[MixtureLaw], *__: Any) -> Law:
    """The true expectiles, imputed; e solves τ E(Z−e)₊ = (1−τ) E(e−Z)₊."""
    values = _quantiles(truths, LEVELS)
    outer = method.outermost_level
    levels = torch.linspace(outer, 1 - outer, method.expectiles, dtype=values.dtype)
    low, high = (edge.unsqueeze(-1).expand(-1, method.expectiles) for edge in (values[:, 0], values[:, -1]))
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        gap = values.unsqueeze(-2) - middle.unsqueeze(-1)
        above = levels * gap.clamp_min(0).mean(-1) > (1 - levels) * (-gap).clamp_min(0).mean(-1)
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return ExpectileLaw(0.5 * (low + high), levels)


@best_law.register
def _monotone(method: UMDQN, truths: Sequence[MixtureLaw], *_: Any) -> Law:
    """Straight lines between grid points, each at the mean of the exact CDF over the cell around the point."""
    grid = torch.linspace(method.v_min, method.v_max, method.points, dtype=torch.float64)
    around = (grid[1] - grid[0]) * (midpoints(64, grid) - 0.5)
    points = (grid.unsqueeze(-1) + around).flatten()
    cumulative = torch.stack([truth.cdf(points).double().reshape(-1, 64).mean(-1) for truth in truths])
    cumulative[:, 0], cumulative[:, -1] = 0.0, 1.0
    return MonotoneLaw(cumulative, grid, grid.new_zeros(()), grid.new_ones(()))


@best_law.register
def _flow(method: FlowMethod, truths: Sequence[MixtureLaw], fit: Fit, track: Track) -> Law:
    return fit_returns(method, _quantiles(truths, FIT_LEVELS).to(torch.get_default_dtype()), fit, track)


def _quantiles(truths: Sequence[MixtureLaw], count: int) -> Tensor:
    """Midpoint quantiles of each truth, in float64; shape (P, count)."""
    return torch.stack([truth.quantile(midpoints(count, truth.means)).double() for truth in truths])
