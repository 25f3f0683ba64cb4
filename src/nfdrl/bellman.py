"""The Bellman target: the only place where gradients are cut."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nfdrl.laws.base import Law
from nfdrl.observations import Observation
from nfdrl.replay import Batch

Predictor = Callable[[Observation], Law]  # observations (B, ...) → laws (B, A): a network
Valuation = Callable[[Law], Tensor]  # laws (B, A) → the values (B, A) by which actions are chosen


@torch.no_grad()
def bellman_target(
    batch: Batch,
    target: Predictor,
    value: Valuation,
    chooser: Predictor | None = None,
    next_action: Tensor | None = None,
) -> Law:
    """The law of r + γZ(x′, a′) for one sampled transition per row (eq:bootstrap_Bellman).

    The next action is `next_action`, or greedy in `value`: by the target network's own laws, or by those of `chooser`
    (Double-Q, van Hasselt et al. 2016). `batch.discount` is γ (γⁿ over n steps), and 0 where the episode terminated:
    the law is then a Dirac at r.
    """
    law = target(batch.next_observation)
    if next_action is None:
        judged = law if chooser is None else chooser(batch.next_observation)
        next_action = value(judged).argmax(-1)
    return law.select(next_action).bootstrap(batch.reward, batch.discount)
