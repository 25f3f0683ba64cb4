"""An environment that breaks in the way that a test asks for."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

BOX = spaces.Box(-10, 10, (4,), np.float32)


class Odd(gymnasium.Env[Any, Any]):
    """Episodes of ten steps; from a step on, something of its own in the place of an observation or a reward."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    action_space = spaces.Discrete(2)
    odd: Callable[[], Any] | None = None  # what to give, or a function that fails
    where = "step"
    after = 150

    def __init__(self, space: spaces.Space[Any] = BOX, render_mode: str | None = None, **odd: Any) -> None:
        self.render_mode = render_mode
        self.observation_space, self.taken = space, 0
        vars(self).update(odd)
        self.good = np.ones(space.shape, space.dtype)

    def _given(self, where: str, good: Any) -> Any:
        odd = self.odd is not None and where == self.where and self.taken >= self.after
        return self.odd() if odd and self.odd is not None else good

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        super().reset(seed=seed)
        return self._given("reset", self.good), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        self.taken += 1
        ended = self.taken % 10 == 0
        return self._given("step", self.good), self._given("reward", 1.0), ended, False, {}

    def render(self) -> Any:
        return self._given("render", np.zeros((20, 30, 3), np.uint8))


def fail(error: BaseException) -> Callable[[], Any]:
    def raising() -> None:
        raise error

    return raising


def hang() -> None:
    while True:
        with suppress(Exception):  # as careless code does
            time.sleep(0.01)
