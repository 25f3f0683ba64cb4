"""The Bellman target: the only place where gradients are cut."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nfdrl.laws.base import Law


@torch.no_grad()
def bellman_target(
    network: nn.Module, next_observation: Tensor, next_action: Tensor, reward: Tensor, discount: Tensor
) -> Law:
    """The law of r + γZ(x′, a′) for one sampled transition a row (eq:bootstrap_Bellman).

    `discount` is γ (γⁿ over n steps), and 0 where the episode terminated: the law is then a Dirac at r.
    """
    law: Law = network(next_observation)
    return law.select(next_action).bootstrap(reward, discount)
