"""The best laws a family can hold: from quantiles of exact laws, or fitted where there is no formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nfdrl.laws.base import LinearHead, Method
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.pushforward import PushforwardLaw
from nfdrl.losses.exact import cramer_exact
from nfdrl.numerics.atoms import midpoints
from nfdrl.numerics.base_points import base_points

Truths = Sequence[MixtureLaw]
Track = Callable[[Iterable[int], str], Iterable[int]]

LEVELS = 4096  # quantiles that stand for an exact law where a formula gives the best law
FIT_LEVELS = 512  # quantiles of the exact law that a flow is fitted to
RATE, REFINING_RATE = 0.1, 0.01
KEPT = 2  # starts that are followed to the end: the best ones after an eighth of the updates
LEAST_LOSS = 1e-20


@dataclass(frozen=True)
class Fit:
    """How long to search: updates per start, starts, and refining updates as a multiple of the updates."""

    updates: int = 2_000
    restarts: int = 1
    refining: int = 6


def quantiles_of(truths: Truths, count: int) -> Tensor:
    """Midpoint quantiles of each truth, in float64; shape (P, count)."""
    return torch.stack([truth.quantile(midpoints(count, truth.means)).double() for truth in truths])


def fit_returns(method: Method, targets: Tensor, fit: Fit, track: Track = lambda steps, _: steps) -> PushforwardLaw:
    """The flow law nearest to each row of sorted returns in Cramér distance ∫(F − G)² dy: the best of many starts.

    Shapes: (P, M) → batch shape (P,)
    """
    with torch.random.fork_rng(devices=[]):
        head = method.head(1, 1)  # its weights are not used
    assert isinstance(head, LinearHead)
    outputs = head.linear.out_features
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(fit.restarts, len(targets), outputs, generator=generator, dtype=targets.dtype)
    raw[0] = 0  # the law that training starts from
    if fit.restarts > KEPT:
        raw, losses = _descend(head, raw, targets, -(-fit.updates // 8), track)
        best = losses.topk(KEPT, 0, largest=False).indices
        raw = raw.take_along_dim(best.unsqueeze(-1), 0)
    raw, losses = _descend(head, raw, targets, fit.updates, track)
    refined, least = _descend(head, raw, targets, fit.refining * fit.updates, track, refine=True)
    best = torch.cat([losses, least]).argmin(0)
    return _read(head, torch.cat([raw, refined]).take_along_dim(best[None, :, None], 0).squeeze(0))


def _descend(
    head: LinearHead, raw: Tensor, targets: Tensor, updates: int, track: Track, *, refine: bool = False
) -> tuple[Tensor, Tensor]:
    """Raw outputs after `updates` steps of Adam with a cosine schedule, and their losses.

    Refining descends the logarithms of the losses, whose slopes do not vanish where the best law lies at infinity, as
    it does for a few atoms.

    Shapes: (R, P, outputs), (P, M) → (R, P, outputs), (R, P)
    """
    starts = raw.shape[:2]
    rows, wanted = raw.flatten(0, 1).clone().requires_grad_(True), targets.repeat(len(raw), 1)
    optimizer = torch.optim.Adam([rows], lr=REFINING_RATE if refine else RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    z = base_points(targets.shape[-1], like=targets)
    for _ in track(range(updates), "fitting flows"):
        losses = cramer_exact(_read(head, rows).at(z), wanted)
        optimizer.zero_grad()
        descended = losses.clamp_min(LEAST_LOSS).log() if refine else losses
        descended.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        losses = cramer_exact(_read(head, rows).at(z), wanted)
    return rows.detach().reshape(*starts, -1), losses.reshape(starts)


def _read(head: LinearHead, raw: Tensor) -> PushforwardLaw:
    law = head.read(raw).select(0)
    assert isinstance(law, PushforwardLaw)
    return law
