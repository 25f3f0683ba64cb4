"""What an engine is: it computes updates and greedy actions, and nothing else knows which one runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nfdrl.bellman import Valuation
from nfdrl.laws.base import Law, Method
from nfdrl.networks import Network
from nfdrl.replay import Batch
from nfdrl.risk import Mean

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Work:
    """What an engine works on; acting needs neither a target network nor a generator."""

    method: Method
    online: Network
    risk: Valuation = field(default_factory=Mean)
    target: Network | None = None
    generator: torch.Generator | None = None
    double_q: bool = False  # van Hasselt et al. 2016: the online network chooses the next action

    def value(self, law: Law, risk: Valuation | None = None) -> Tensor:
        """What actions are chosen by: the risk functional of the work, or another."""
        return self.method.value(law, self.risk if risk is None else risk)


class Adam(Protocol):
    """Adam (Kingma and Ba 2015, Algorithm 1) on one flat tensor of weights, with the state a checkpoint keeps."""

    learning_rate: float
    state: dict[str, Tensor]

    def step(self, scale: float) -> None:
        """Move the weights once, along the gradient times `scale`."""


class Engine(ABC):
    """One way to compute. Copies and pickles are rebuilt from the work, so that they follow their own networks."""

    name: ClassVar[str]

    def __init__(self, work: Work, reason: str) -> None:
        self.work, self.reason = work, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.work, self.reason)

    def __str__(self) -> str:
        return f"{self.name} engine: {self.reason}"

    @abstractmethod
    def greedy(self, observation: Array, risk: Valuation | None = None) -> Array:
        """The actions with the greatest value, by the risk functional of the work or another; shape (B, ...) → (B,)."""

    @abstractmethod
    def differentiate(self, batch: Batch, next_action: Tensor | None = None, weight: Tensor | None = None) -> float:
        """The mean loss of a batch; its gradient goes into the online network's parameters.

        Without `next_action` the next action is greedy in the risk functional. `weight` is a factor per row on the
        loss, as prioritised replay needs.
        """

    @abstractmethod
    def accumulating(self) -> Sequence[nn.Parameter]:
        """The parameters whose gradients `differentiate` adds to; it overwrites those of all others."""

    @abstractmethod
    def adam(self, weights: Tensor, gradient: Tensor, learning_rate: float, eps: float) -> Adam:
        """The optimiser of weights whose gradient `differentiate` fills."""
