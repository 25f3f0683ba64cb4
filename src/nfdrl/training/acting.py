"""How training acts: ε-greedily."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdrl.engines import Engine

Array = NDArray[Any]


class Actor:
    """ε-greedy actions for all environments, in at most one forward pass."""

    def __init__(self, engine: Engine, actions: int, rng: np.random.Generator) -> None:
        self.engine, self.actions, self.rng = engine, actions, rng
        self.explored: Array = np.zeros(0, np.bool_)  # where the last action was random

    def act(self, observation: Array, epsilon: float) -> Array:
        """One action per row; the coins are tossed first, and no network runs if all rows explore."""
        n = len(observation)
        explore = self.explored = self.rng.random(n) < epsilon
        exploring = np.count_nonzero(explore)  # counting is the fastest way to ask for any and all
        if exploring == n:
            return self.rng.integers(self.actions, size=n)
        action = self.engine.greedy(observation)
        if exploring:
            action = np.where(explore, self.rng.integers(self.actions, size=n), action)
        return action
