"""One environment that plays episodes to be looked at: what goes wrong says in which of them, and at which step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nfdrl.envs.stepping import LARGEST, check_observation, form_of
from nfdrl.envs.watching import Blaming, Limits, at_step, limited
from nfdrl.errors import NfdrlError

Array = NDArray[Any]


class Solo:
    """An environment whose resets and steps are limited and checked."""

    def __init__(self, env: gymnasium.Env[Any, Any], limits: Limits | None = None) -> None:
        self.env, self._limits = env, Limits() if limits is None else limits
        self._form, self._blaming = form_of(env.observation_space), Blaming()

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; returns the first observation and its info."""
        self._blaming = Blaming(lambda step: f"in the episode with seed {seed}, {at_step(step)}")
        with self._blaming, limited(self._limits.reset, "reset"):
            observation, info = self.env.reset(seed=seed)
            self._check(observation)
            return observation, dict(info)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        with self._blaming, limited(self._limits.step, "a step", "step_limit"):
            observation, reward, terminated, truncated, info = self.env.step(action)
            self._check(observation)
            if not abs(float(reward)) <= LARGEST:
                raise NfdrlError(f"the environment gave a reward of {reward}")
            self._blaming.at(self._blaming.step + 1)
            return observation, float(reward), bool(terminated), bool(truncated), dict(info)

    def render(self) -> Array:
        """The picture of this moment: shape (H, W, 3)."""
        with self._blaming:
            picture = np.asarray(self.env.render())
            if picture.ndim != 3 or picture.shape[-1] != 3:
                raise NfdrlError(f"the environment drew a picture of shape {picture.shape} instead of (H, W, 3)")
            return picture.astype(np.uint8, copy=False)

    def _check(self, observation: Any) -> None:
        found = self._form.checked(observation, 0)
        for part in found if isinstance(found, tuple) else (found,):
            check_observation(part[None])
