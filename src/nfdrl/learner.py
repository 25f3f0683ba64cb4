"""One gradient step, the same for every method."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from nfdrl.bellman import bellman_target
from nfdrl.laws.base import Method
from nfdrl.networks import Network


@dataclass(frozen=True)
class Batch:
    """Sampled transitions, one a row; `discount` is 0 where the episode terminated."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_observation: Tensor


class Learner:
    """An online network, its target copy and an optimiser."""

    def __init__(
        self,
        method: Method,
        network: Network,
        learning_rate: float,
        target_every: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        self.method, self.online, self.generator = method, network, generator
        self.target = copy.deepcopy(network).requires_grad_(False)
        self.optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, fused=True)
        self.target_every = target_every
        self.updates = 0

    def update(self, batch: Batch, next_action: Tensor) -> Tensor:
        """One step on one batch; the mean loss, before the step."""
        target = bellman_target(self.target, batch.next_observation, next_action, batch.reward, batch.discount)
        predicted = self.online(batch.observation).select(batch.action)
        loss = self.method.loss(predicted, target, self.generator).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.target_every == 0:
            self.sync()
        return loss.detach()

    def set_learning_rate(self, rate: float) -> None:
        """Change the rate of the next steps."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    @torch.no_grad()
    def sync(self) -> None:
        """Copy the online weights into the target network."""
        online, target = list(self.online.parameters()), list(self.target.parameters())
        torch._foreach_copy_(target, online)
