"""Torsos, and the network that puts a head on one."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from nfdrl.laws.base import Head, Law, Method


class OneHot(nn.Module):
    """A finite state as a one-hot row: a linear head on it is a table."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.features = n

    def forward(self, state: Tensor) -> Tensor:
        """Integers (...) to rows (..., n)."""
        return cast(Tensor, nn.functional.one_hot(state.long(), self.features)).to(torch.get_default_dtype())


class Network(nn.Module):
    """Observation → features → the return law of every action."""

    def __init__(self, torso: nn.Module, head: Head) -> None:
        super().__init__()
        self.torso = torso
        self.head = head

    def forward(self, observation: Tensor) -> Law:
        """The laws of all actions; batch shape (B, A)."""
        return self.head(self.torso(observation))

    def __call__(self, observation: Tensor) -> Law:
        return cast(Law, super().__call__(observation))


def table(method: Method, states: int, actions: int) -> Network:
    """One independent law for each state-action pair of a finite MDP."""
    return Network(OneHot(states), method.head(states, actions))
