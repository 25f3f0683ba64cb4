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

from nfdrl.envs.watching import Limits, limited
from nfdrl.errors import NfdrlError
from nfdrl.observations import flat, has_parts, parts_of, storage_dtype

Array = NDArray[Any]
LARGEST = float(np.finfo(np.float32).max)  # of what the replay keeps


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
    reset_limit: float  # seconds that a reset may take; 0 for any time

    @property
    def current(self) -> int | None:
        """The environment that is being used, if they are used one after another."""

    def reset(self, seed: int | None = None) -> Array:
        """Start an episode in each environment; returns the first observations."""

    def step(self, action: Array) -> Step:
        """Take one action, counted from 0, in each environment."""

    def close(self) -> None:
        """Close the environments."""


class DirectStream:
    """Single environments stepped one after another, without the copies of Gymnasium's vector classes."""

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
        self.envs, self.num_envs = tuple(envs), len(envs)
        self.observation_space = envs[0].observation_space
        assert isinstance(envs[0].action_space, gymnasium.spaces.Discrete)
        self.action_space = envs[0].action_space
        self._start = int(self.action_space.start)
        self.reset_limit, self.current = Limits.reset, 0
        self._form = form_of(self.observation_space)
        self._observation = np.zeros((self.num_envs, *self._form.shape), self._form.dtype)
        self._reward = np.zeros(self.num_envs)
        self._terminated, self._truncated = np.zeros((2, self.num_envs), np.bool_)

    def reset(self, seed: int | None = None) -> Array:
        for k in range(self.num_envs):
            self._reset(k, None if seed is None else seed + k)
        return self._observation

    def _reset(self, k: int, seed: int | None = None) -> None:
        self.current = k
        with limited(self.reset_limit, f"reset of environment {k}"):
            observation = self.envs[k].reset(seed=seed)[0]
        self._observation[k] = self._form.checked(observation, k)

    def step(self, action: Array) -> Step:
        reward, terminated, truncated = self._reward, self._terminated, self._truncated
        observation = self._observation
        reached = observation
        for k, chosen in enumerate(action.tolist()):
            self.current = k
            found, reward[k], terminated[k], truncated[k], _ = self.envs[k].step(chosen + self._start)
            observation[k] = self._form.checked(found, k)
        fresh = terminated | truncated
        if np.count_nonzero(fresh):
            reached = observation.copy()
            for k in np.flatnonzero(fresh).tolist():
                self._reset(k)
        return Step(reward, terminated, truncated, reached, observation, fresh)

    def close(self) -> None:
        for env in self.envs:
            env.close()


class VectorStream:
    """A Gymnasium vector environment in any of its three autoreset modes.

    NEXT_STEP resets in the step after an episode's last, which takes no action; SAME_STEP resets in the last step and
    gives the final observation in its info; with DISABLED, this class resets it.
    """

    current = None

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env, self.num_envs = env, env.num_envs
        self.observation_space = env.single_observation_space
        assert isinstance(env.single_action_space, gymnasium.spaces.Discrete)
        self.action_space = env.single_action_space
        self._start = int(self.action_space.start)
        self.reset_limit = Limits.reset
        self._form, self._single = form_of(self.observation_space, self.num_envs), form_of(self.observation_space)
        self._mode = autoreset_mode(env)
        self._ended = np.zeros(self.num_envs, np.bool_)

    def reset(self, seed: int | None = None) -> Array:
        self._ended[:] = False
        with limited(self.reset_limit, "reset"):
            observation = self.env.reset(seed=seed)[0]
        return self._form.checked(observation)

    def step(self, action: Array) -> Step:
        with limited(self.reset_limit, "a step, which may reset"):
            observed, *rest, info = self.env.step(action + self._start if self._start else action)
        reward, terminated, truncated = (self._column(part) for part in rest)
        observation, ended = self._form.checked(observed), terminated | truncated
        reached = observation
        if self._mode == AutoresetMode.NEXT_STEP:
            fresh, live = self._ended, ~self._ended
            self._ended = ended & live
            return Step(reward, terminated, truncated, reached, observation, fresh, live)
        if ended.any():
            if self._mode == AutoresetMode.SAME_STEP:
                reached = self._with_final(observation, ended, info)
            else:
                reached = observation.copy()
                with limited(self.reset_limit, "reset"):
                    following = self.env.reset(options={"reset_mask": ended})[0]
                observation = self._form.checked(following)
        return Step(reward, terminated, truncated, reached, observation, ended)

    def _with_final(self, observation: Array, ended: Array, info: dict[str, Any]) -> Array:
        """The observations, with the final one of each episode that ended."""
        if "final_obs" not in info:
            raise NfdrlError(
                "a vector environment with SAME_STEP autoreset ended an episode without info['final_obs']: "
                "the last transition cannot be stored"
            )
        reached, final = observation.copy(), info["final_obs"]
        # Either an array of all rows (Atari's native vector environment) or an object array with None where none ended.
        for k in np.flatnonzero(ended).tolist():
            reached[k] = self._single.checked(final[k], k)
        return reached

    def _column(self, values: Any) -> Array:
        """Rewards or flags: one per environment."""
        found = np.asarray(values)
        if found.shape != (self.num_envs,):
            raise NfdrlError(
                f"rewards and flags of {self.num_envs} environments must have that length, got {found.shape}"
            )
        return found

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


def form_of(space: gymnasium.Space[Any], num_envs: int | None = None) -> Form | PartsForm:
    """What observations of a space look like, each or of all environments at once."""
    return PartsForm(space, num_envs) if has_parts(space) else Form(space, num_envs)


class Form:
    """What observations of a space look like, each or of all environments at once: nothing is broadcast or rounded."""

    def __init__(self, space: gymnasium.Space[Any], num_envs: int | None = None) -> None:
        assert space.shape is not None
        self.space, self.dtype = space, np.dtype(space.dtype)
        self.shape = space.shape if num_envs is None else (num_envs, *space.shape)
        self._range = _range(space)
        self._plain = {self.dtype}  # dtypes that lose nothing

    def checked(self, observation: Any, env: int | None = None) -> Array:
        """The observation as an array that fits the space."""
        found = observation if type(observation) is np.ndarray else np.asarray(observation)
        if found.shape != self.shape:
            raise self._misfit(env, f"of shape {found.shape} instead of {self.shape}")
        if found.dtype not in self._plain:
            self._check_dtype(found, env)
        if self._range is not None and not ((found >= self._range[0]) & (found < self._range[1])).all():
            raise self._misfit(env, f"outside {self.space}")
        return found

    def _check_dtype(self, found: Array, env: int | None) -> None:
        if np.can_cast(found.dtype, self.dtype, "same_kind"):
            self._plain.add(found.dtype)
            return
        try:
            with np.errstate(all="ignore"):
                same = np.array_equal(found.astype(self.dtype), found)
        except (TypeError, ValueError):
            same = False
        if not same:
            raise self._misfit(env, f"of {found.dtype} whose values are not {self.dtype}")

    def _misfit(self, env: int | None, how: str) -> NfdrlError:
        return NfdrlError(f"{'environments' if env is None else f'environment {env}'} gave an observation {how}")


class PartsForm:
    """The same for dicts and tuples: checked part by part, and then an entry of an array of records, or the array."""

    def __init__(self, space: gymnasium.Space[Any], num_envs: int | None = None) -> None:
        self.space, self.num_envs = space, num_envs
        self.dtype, self.shape = storage_dtype(space), ()
        self._forms = {name: Form(part, num_envs) for name, part in parts_of(space).items()}

    def checked(self, observation: Any, env: int | None = None) -> Any:
        """The observation as a tuple of its parts, or as one record per environment."""
        try:
            parts = [*flat(self.space, observation)]
        except (KeyError, TypeError, ValueError, IndexError):
            which = "environments" if env is None else f"environment {env}"
            raise NfdrlError(f"{which} gave an observation without the parts {[*self._forms]}") from None
        columns = [form.checked(part, env) for form, part in zip(self._forms.values(), parts, strict=True)]
        if self.num_envs is None:
            return tuple(columns)
        records = np.zeros(self.num_envs, self.dtype)
        for name, column in zip(self._forms, columns, strict=True):
            records[name] = column
        return records


def _range(space: gymnasium.Space[Any]) -> tuple[Any, Any] | None:
    """From where to where, exclusively, the whole numbers of a space go."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return space.start, space.start + space.n
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return space.start, space.start + space.nvec
    return (0, 2) if isinstance(space, gymnasium.spaces.MultiBinary) else None


def check_step(step: Step) -> None:
    """Refuse what the replay cannot hold: NaN, infinity, numbers beyond float32; errors name the environment."""
    reward = step.reward
    # Python checks a single number faster than NumPy.
    good = abs(reward[0]) <= LARGEST if reward.size == 1 else bool((np.abs(reward) <= LARGEST).all())
    if not good:
        env = int(np.flatnonzero(~(np.abs(reward) <= LARGEST))[0])
        raise NfdrlError(f"environment {env} gave a reward of {reward[env]}")
    check_observation(step.reached)
    if step.observation is not step.reached:  # an episode was reset
        check_observation(step.observation)


def check_observation(observation: Array, first: int = 0) -> None:
    """Refuse NaN, infinity and numbers beyond float32 in observations of all environments from the `first` on."""
    for name in observation.dtype.names or ():
        check_observation(observation[name], first)
    if observation.dtype.kind != "f":
        return
    # A finite sum has only finite terms; the slow test is for a sum that overflowed, and for more than float32 holds.
    if observation.dtype.itemsize <= 4 and math.isfinite(observation.sum()):
        return
    rows = (np.abs(observation) <= LARGEST).reshape(len(observation), -1).all(-1)
    if not rows.all():
        env = first + int(np.flatnonzero(~rows)[0])
        raise NfdrlError(f"environment {env} gave an observation that is not finite")
