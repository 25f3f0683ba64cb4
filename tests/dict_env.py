"""A small environment whose observations are a dict with a tuple inside: an image, a vector and a finite part."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

SIDE = 6


class Corridor(gymnasium.Env[Any, Any]):
    """Walk left or right to the end that the signal names; the image shows where you are."""

    def __init__(self, length: int = SIDE) -> None:
        self.length = length
        self.observation_space = Dict(
            {
                "map": Box(0, 255, (length, length), np.uint8),
                "robot": Tuple([Box(-np.inf, np.inf, (2,), np.float64), Discrete(2, start=1)]),
            }
        )
        self.action_space = Discrete(2)

    def _observation(self) -> dict[str, Any]:
        picture = np.zeros((self.length, self.length), np.uint8)
        picture[self.place % self.length, :] = 255
        speed = np.array([self.place * 100.0, self.steps + self.np_random.normal()])
        return {"map": picture, "robot": (speed, self.goal + 1)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.place, self.steps, self.goal = self.length // 2, 0, int(self.np_random.integers(2))
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 1 if action else -1
        self.steps += 1
        ended = self.place in (0, self.length - 1)
        reward = 1.0 if ended and (self.place > 0) == bool(self.goal) else -0.01
        return self._observation(), reward, ended, self.steps >= 20, {}


gymnasium.register("Corridor-v0", Corridor)
