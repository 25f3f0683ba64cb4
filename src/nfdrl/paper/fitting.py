"""Fitting one flow law to a known law by the exact Cramér loss: what a flow can represent, without any Bellman step."""

from __future__ import annotations

import torch
from torch import Tensor

from nfdrl.laws.flow import FlowLaw
from nfdrl.losses.exact import cramer_exact
from nfdrl.numerics.base_points import base_points
from nfdrl.paper.base import Progress

LEARNING_RATE = 0.05


def fit_flow(
    targets: Tensor, updates: int, progress: Progress, components: int = 4, initial_bound: float = 1.0
) -> FlowLaw:
    """One flow law for each row of sorted target returns, by Adam with a cosine schedule on ∫(F − G)².

    Shapes: (B, M) → batch shape (B,)
    """
    raw = torch.zeros(targets.shape[0], 3 * components + 1, dtype=targets.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([raw], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    z = base_points(targets.shape[-1], like=targets)
    for _ in progress.track(range(updates), f"fitting a flow of {components} components"):
        loss = cramer_exact(FlowLaw.from_raw(raw, initial_bound).at(z), targets).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return FlowLaw.from_raw(raw.detach(), initial_bound)


def row_of(law: FlowLaw, row: int) -> FlowLaw:
    """One law of a batch of shape (B,), alone."""
    return FlowLaw(law.weights[row], law.locations[row], law.scales[row], law.bound[row], law.center[row])
