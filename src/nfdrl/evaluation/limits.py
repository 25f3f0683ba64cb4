"""The best law that each family can hold: what no amount of learning can go below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nfdrl.envs.finite import Floats
from nfdrl.evaluation.distances import batch_distances
from nfdrl.laws.base import Head, Law, Method
from nfdrl.laws.categorical import C51, CategoricalLaw
from nfdrl.laws.dirac import DQN, DiracLaw
from nfdrl.laws.expectile import ERDQN, ExpectileLaw
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.fraction import FQF
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.monotone import UMDQN, MonotoneLaw
from nfdrl.laws.pushforward import PushforwardLaw
from nfdrl.laws.quantile import QRDQN, QuantileLaw
from nfdrl.losses.categorical import project
from nfdrl.losses.exact import cramer_exact
from nfdrl.numerics.atoms import equal_masses, midpoints
from nfdrl.numerics.base_points import base_points

Track = Callable[[Iterable[int], str], Iterable[int]]

LEVELS = 4096  # quantiles that stand for an exact law where its family's best law is computed from them
FIT_LEVELS = 512  # quantiles of the exact law that a flow is fitted to
FIT_RATE = 0.1
FIT_KEPT = 2  # starts that are followed to the end, the best after an eighth of the updates
REFINING, REFINING_RATE = 6, 0.01  # times as many updates, and their rate
LEAST_LOSS = 1e-20
BISECTIONS = 60


@dataclass(frozen=True)
class Fit:
    """How well a flow is fitted where its best law has no formula."""

    updates: int
    restarts: int


def family_limits(method: Method, truths: Sequence[MixtureLaw], fit: Fit, track: Track) -> Floats | None:
    """The Cramér distance to each truth of the best law of the method's family; None where nothing limits it."""
    law = best_law(method, truths, fit, track)
    if law is None:
        return None
    copies = law.batch_shape.numel() // len(truths)
    cramer = batch_distances(law, list(truths) * copies)["cramer"]
    return np.asarray(cramer.reshape(copies, -1).min(0), dtype=np.float64)


@singledispatch
def best_law(method: Method, truths: Sequence[MixtureLaw], fit: Fit, track: Track) -> Law | None:  # noqa: ARG001
    """The law that the method would have if it knew the truths; batch shape (P,), or (R·P,) for R candidates each.

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
    """Raw outputs fitted to quantiles of the truth by the exact Cramér loss: many starts, the best to the end."""
    targets = _quantiles(truths, FIT_LEVELS).to(torch.get_default_dtype())
    outputs = 3 * method.components * method.n_flows + 1
    head = method.head(outputs, 1).requires_grad_(False)
    nn.init.eye_(head.linear.weight)  # raw outputs pass through
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(fit.restarts, len(truths), outputs, generator=generator)
    raw[0] = 0  # the law that training starts from
    raw, losses = _descend(head, raw, targets, -(-fit.updates // 8), track)
    best = losses.topk(min(FIT_KEPT, fit.restarts), 0, largest=False).indices
    raw, _ = _descend(head, raw.take_along_dim(best.unsqueeze(-1), 0), targets, fit.updates, track)
    refined, _ = _descend(head, raw, targets, REFINING * fit.updates, track, refine=True)
    return head(torch.cat([raw, refined]).flatten(0, 1)).select(0)


def _descend(
    head: Head, raw: Tensor, targets: Tensor, updates: int, track: Track, *, refine: bool = False
) -> tuple[Tensor, Tensor]:
    """Raw outputs after so many steps of Adam with a cosine schedule, and the last losses.

    To refine is to descend the losses' logarithms, whose slopes do not vanish where the best law lies at infinity, as
    that of a few atoms does.

    Shapes: (R, P, outputs), (P, M) → (R, P, outputs), (R, P)
    """
    starts = raw.shape[:2]
    rows, wanted = raw.flatten(0, 1).clone().requires_grad_(True), targets.repeat(len(raw), 1)
    optimizer = torch.optim.Adam([rows], lr=REFINING_RATE if refine else FIT_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    z = base_points(targets.shape[-1], like=targets)
    losses = torch.zeros(len(rows))
    for _ in track(range(updates), "limit of the flows"):
        law = head(rows).select(0)
        assert isinstance(law, PushforwardLaw)
        losses = cramer_exact(law.at(z), wanted)
        optimizer.zero_grad()
        descended = losses.clamp_min(LEAST_LOSS).log() if refine else losses
        descended.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return rows.detach().reshape(*starts, -1), losses.detach().reshape(starts)


def _quantiles(truths: Sequence[MixtureLaw], count: int) -> Tensor:
    """Midpoint quantiles of each truth, in float64; shape (P, count)."""
    return torch.stack([truth.quantile(midpoints(count, truth.means)).double() for truth in truths])
