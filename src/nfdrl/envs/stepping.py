"""Environments stepped together; a step says where each action led and what to act on next, whoever resets them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from nfdrl.errors import NfdrlError
from nfdrl.observations import entry, has_parts, row_shape, rows, storage_dtype

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step of E environments; every array has E rows.

    `reached` is where the action led, even at the end of an episode; `observation` is what to act on next. They differ
    where an episode was reset, which `fresh` marks. `live` is False where the environment used the step to reset and
    took no action; None means live everywhere.

    Learning may see something else than what is reported: `learned_reward` is the reward to learn from, and `life_lost`
    marks where the learned return ends although the episode continues.
    """

    reward: Array
    terminated: Array
    truncated: Array
    reached: Array
    observation: Array
    fresh: Array
    live: Array | None = None
    learned_reward: Array | None = None
    life_lost: Array | None = None


class Stream(Protocol):
    """E environments that are reset whenever an episode ends."""

    num_envs: int
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.spaces.Discrete

    def reset(self, seed: int | None = None) -> Array:
        """Start an episode in each environment; returns the first observations."""

    def step(self, action: Array) -> Step:
        """Take one action, counted from 0, in each environment."""

    def close(self) -> None:
        """Close the environments."""


class DirectStream:
    """Single environments stepped one after another, without the copies of Gymnasium's vector classes."""

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
        self.envs, self.num_envs = tuple(map(_recorded, envs)), len(envs)
        self.observation_space = envs[0].observation_space
        assert isinstance(envs[0].action_space, gymnasium.spaces.Discrete)
        self.action_space = envs[0].action_space
        self._start = int(self.action_space.start)
        space = self.observation_space
        dtype = storage_dtype(space) if has_parts(space) else space.dtype
        self._observation = np.zeros((self.num_envs, *row_shape(space)), dtype)
        self._reward = np.zeros(self.num_envs)
        self._terminated, self._truncated = np.zeros((2, self.num_envs), np.bool_)

    def reset(self, seed: int | None = None) -> Array:
        for k, env in enumerate(self.envs):
            self._observation[k] = env.reset(seed=None if seed is None else seed + k)[0]
        return self._observation

    def step(self, action: Array) -> Step:
        reward, terminated, truncated = self._reward, self._terminated, self._truncated
        observation = self._observation
        reached = observation
        for k, chosen in enumerate(action.tolist()):
            observation[k], reward[k], terminated[k], truncated[k], _ = self.envs[k].step(chosen + self._start)
        fresh = terminated | truncated
        if np.count_nonzero(fresh):
            reached = observation.copy()
            for k in np.flatnonzero(fresh).tolist():
                observation[k] = self.envs[k].reset()[0]
        return Step(reward, terminated, truncated, reached, observation, fresh)

    def close(self) -> None:
        for env in self.envs:
            env.close()


class Recorded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose dicts and tuples come as the entries of an array."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return entry(self.observation_space, observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return entry(self.observation_space, observation), reward, terminated, truncated, info


def _recorded(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return Recorded(env) if has_parts(env.observation_space) else env


class VectorStream:
    """A Gymnasium vector environment in any of its three autoreset modes.

    NEXT_STEP resets in the step after an episode's last, which takes no action; SAME_STEP resets in the last step and
    gives the final observation in its info; with DISABLED, this class resets it.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env, self.num_envs = env, env.num_envs
        self.observation_space = env.single_observation_space
        assert isinstance(env.single_action_space, gymnasium.spaces.Discrete)
        self.action_space = env.single_action_space
        self._start = int(self.action_space.start)
        self._mode = autoreset_mode(env)
        self._ended = np.zeros(self.num_envs, np.bool_)

    def reset(self, seed: int | None = None) -> Array:
        self._ended[:] = False
        return rows(self.observation_space, self.env.reset(seed=seed)[0])

    def step(self, action: Array) -> Step:
        observed, reward, terminated, truncated, info = self.env.step(action + self._start if self._start else action)
        observation, ended = rows(self.observation_space, observed), np.asarray(terminated) | np.asarray(truncated)
        reached = observation
        if self._mode == AutoresetMode.NEXT_STEP:
            fresh, live = self._ended, ~self._ended
            self._ended = ended & live
            return Step(reward, terminated, truncated, reached, observation, fresh, live)
        if ended.any():
            if self._mode == AutoresetMode.SAME_STEP:
                reached = _with_final(self.observation_space, observation, ended, info)
            else:
                reached = observation.copy()
                observation = rows(self.observation_space, self.env.reset(options={"reset_mask": ended})[0])
        return Step(reward, terminated, truncated, reached, observation, ended)

    def close(self) -> None:
        self.env.close()


def environments(stream: Stream) -> tuple[gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any], ...]:
    """The environments of a stream: single ones, or one vector environment."""
    if isinstance(stream, DirectStream):
        return stream.envs
    return (stream.env,) if isinstance(stream, VectorStream) else ()


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """How a vector environment resets, by its metadata; by default, as Gymnasium's own do."""
    mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
    return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)


def _with_final(space: gymnasium.Space[Any], observation: Array, ended: Array, info: dict[str, Any]) -> Array:
    """The observations, with the final one of each episode that ended."""
    if "final_obs" not in info:
        raise NfdrlError(
            "a vector environment with SAME_STEP autoreset ended an episode without info['final_obs']: "
            "the last transition cannot be stored"
        )
    reached, final = observation.copy(), info["final_obs"]
    # Either an array of all rows (Atari's native vector environment) or an object array with None where none ended.
    for k in np.flatnonzero(ended):
        reached[k] = entry(space, final[k])
    return reached


def check_step(step: Step, number: int) -> None:
    """Refuse NaN and infinity in what an environment returned, naming the step and the environment."""
    reward = step.reward
    # Python checks a single number faster than NumPy.
    finite = math.isfinite(reward[0]) if reward.size == 1 else bool(np.isfinite(reward).all())
    if not finite:
        env = int(np.flatnonzero(~np.isfinite(reward))[0])
        raise NfdrlError(f"environment {env} gave a reward of {reward[env]} at step {number}")
    check_observation(step.reached, number)


def check_observation(observation: Array, number: int) -> None:
    """Refuse NaN and infinity in observations of all environments."""
    kind = observation.dtype.kind
    if kind == "V":
        for name in observation.dtype.names or ():
            check_observation(observation[name], number)
    if kind != "f":
        return
    # A finite sum has only finite terms; the slow test is for a sum that overflowed.
    if math.isfinite(observation.sum()):
        return
    rows = np.isfinite(observation).reshape(len(observation), -1).all(-1)
    if not rows.all():
        env = int(np.flatnonzero(~rows)[0])
        raise NfdrlError(f"environment {env} gave an observation that is not finite at step {number}")
