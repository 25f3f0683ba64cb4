"""How training acts: ε-greedily, and in some episodes by the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdrl.engines import Engine
from nfdrl.risk import Mean

Array = NDArray[Any]
MEAN = Mean()


class Actor:
    """ε-greedy actions for all environments, in one forward pass, or two while some are acted in by the mean."""

    def __init__(self, engine: Engine, actions: int, rng: np.random.Generator, explore_by_mean: float = 0.0) -> None:
        self.engine, self.actions, self.rng, self.explore_by_mean = engine, actions, rng, explore_by_mean
        self.explored: Array = np.zeros(0, np.bool_)  # where the last action was another than the greedy one
        self.by_mean: Array = np.zeros(0, np.bool_)  # the environments that are acted in by the mean

    def begin(self, begun: Array) -> None:
        """Toss for the episodes that begin in some environments, if a risk functional chooses actions at all."""
        if len(self.by_mean) != len(begun):
            self.by_mean = np.zeros(len(begun), np.bool_)
        if self.explore_by_mean == 0 or isinstance(self.engine.work.risk, Mean):
            self.by_mean[begun] = False
        else:
            self.by_mean[begun] = self.rng.random(np.count_nonzero(begun)) < self.explore_by_mean

    def act(self, observation: Array, epsilon: float) -> Array:
        """One action per row; the coins are tossed first, and no network runs if all rows explore."""
        n = len(observation)
        explore = self.explored = self.rng.random(n) < epsilon
        exploring = np.count_nonzero(explore)  # counting is the fastest way to ask for any and all
        if exploring == n:
            return self.rng.integers(self.actions, size=n)
        action = self.engine.greedy(observation)
        if np.count_nonzero(self.by_mean):
            neutral = np.where(self.by_mean, self.engine.greedy(observation, MEAN), action)
            self.explored, action = explore | (neutral != action), neutral
        if exploring:
            action = np.where(explore, self.rng.integers(self.actions, size=n), action)
        return action
