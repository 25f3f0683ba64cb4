"""Where an agent is evaluated: environments that play episodes side by side, apart from those of training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from nfdrl.envs.atari import native
from nfdrl.envs.layers import AnyEnv, freeze, normalisers
from nfdrl.envs.make import Source
from nfdrl.envs.stepping import LARGEST, VectorStream, check_observation, check_step, form_of
from nfdrl.envs.watching import Limits, closed_after, limited
from nfdrl.errors import NfdrlError
from nfdrl.observations import stack as rows_of
from nfdrl.training.loop import Trainer

Array = NDArray[Any]


class Arena(Protocol):
    """Places at which episodes are played, each with a seed of its own."""

    width: int
    together: bool  # whether new episodes can only begin in all places at once

    @property
    def current(self) -> int | None:
        """The place that is being used, if they are used one after another."""

    def begin(self, places: Sequence[int], seeds: Sequence[int]) -> None:
        """Start an episode in some places; the first time, and where they begin together, in the first ones."""

    def observations(self, places: Sequence[int]) -> Array:
        """What to act on in these places."""

    def step(self, places: Sequence[int], action: Array) -> tuple[Array, Array]:
        """Take an action in each of these places; returns their rewards, and whether the episode is over."""


class SingleArena:
    """Single environments."""

    together = False

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]], limits: Limits) -> None:
        self.envs, self.width, self.current, self._limits = envs, len(envs), 0, limits
        self._form = form_of(envs[0].observation_space)
        self._observation: list[Any] = [None] * len(envs)

    def begin(self, places: Sequence[int], seeds: Sequence[int]) -> None:
        for place, seed in zip(places, seeds, strict=True):
            self.current = place
            with limited(self._limits.reset, f"reset of environment {place}"):
                observation = self.envs[place].reset(seed=seed)[0]
            self._see(place, observation)

    def observations(self, places: Sequence[int]) -> Array:
        return rows_of(self.envs[0].observation_space, [self._observation[place] for place in places])

    def step(self, places: Sequence[int], action: Array) -> tuple[Array, Array]:
        reward, over = np.zeros(len(places)), np.zeros(len(places), np.bool_)
        with limited(self._limits.step, "a step", "step_limit"):
            for k, (place, chosen) in enumerate(zip(places, action.tolist(), strict=True)):
                self.current = place
                observation, reward[k], terminated, truncated, _ = self.envs[place].step(chosen)
                over[k] = terminated or truncated
                if not abs(reward[k]) <= LARGEST:
                    raise NfdrlError(f"environment {place} gave a reward of {reward[k]}")
                self._see(place, observation)
        return reward, over

    def _see(self, place: int, observation: Any) -> None:
        """Take an observation that fits and is finite."""
        found = self._form.checked(observation, place)
        for part in found if isinstance(found, tuple) else (found,):
            check_observation(part[None], place)
        self._observation[place] = observation


class VectorArena:
    """A vector environment, whose sub-environments are reset together: what they play after an episode is ignored."""

    together, current = True, None

    def __init__(self, env: VectorEnv[Any, Any, Any], limits: Limits) -> None:
        self._stream, self.width = VectorStream(env), env.num_envs
        self._stream.reset_limit = limits.reset
        self._start = int(self._stream.action_space.start)
        self._action = np.zeros(env.num_envs, np.int64)

    def begin(self, places: Sequence[int], seeds: Sequence[int]) -> None:
        self._observation = self._stream.reset(seed=seeds[places.index(0)])
        check_observation(self._observation)

    def observations(self, places: Sequence[int]) -> Array:
        return self._observation[list(places)]

    def step(self, places: Sequence[int], action: Array) -> tuple[Array, Array]:
        self._action[list(places)] = action - self._start
        step = self._stream.step(self._action)
        check_step(step)
        self._observation = step.observation
        return np.asarray(step.reward)[list(places)], np.asarray(step.terminated | step.truncated)[list(places)]


class AtariArena:
    """Games in ALE's native vector environment: whole episodes, raw rewards."""

    together, current = False, None

    def __init__(self, source: Source, width: int) -> None:
        assert source.spec is not None
        self.env = native(**source.spec.kwargs, num_envs=width, mode=AutoresetMode.NEXT_STEP)
        self.width, self._action = width, np.zeros(width, np.int64)
        self._begun = False

    def begin(self, places: Sequence[int], seeds: Sequence[int]) -> None:
        mask = np.zeros(self.width, np.bool_)
        mask[list(places)] = True
        options = {"reset_mask": mask} if self._begun else None
        self._observation = self.env.reset(seed=np.array(seeds), options=options)[0]
        self._begun = True

    def observations(self, places: Sequence[int]) -> Array:
        return np.asarray(self._observation[list(places)])

    def step(self, places: Sequence[int], action: Array) -> tuple[Array, Array]:
        self._action[list(places)] = action
        self._observation, reward, terminated, truncated, _ = self.env.step(self._action)
        return reward[list(places)], (terminated | truncated)[list(places)]


@contextmanager
def arena_of(source: Source, count: int, trainer: Trainer) -> Iterator[Arena]:
    """Where to play `count` episodes at once, with the statistics of training as they now are and frozen.

    In new environments where that is possible; in the environment of training if there is no other, whose episode is
    cut off.
    """
    trained, limits = trainer.stepped(), trainer.config.limits()
    if source is not trainer.source and source.given is not None:
        with _given_arena(source.given, trained, limits) as arena:
            yield arena
        return
    with _new_arena(source, count, trained, limits) as made:
        if made is not None:
            yield made
            return
    assert source.given is not None
    if trainer.running:
        raise NfdrlError("this environment cannot be copied, and training needs it: pass another as env=")
    warnings.warn("this environment cannot be copied: evaluating ends its episode; pass another as env=", stacklevel=4)
    trainer.cut()
    with _given_arena(source.given, trained, limits) as arena:
        yield arena


@contextmanager
def _new_arena(source: Source, count: int, trained: Sequence[AnyEnv], limits: Limits) -> Iterator[Arena | None]:
    """New environments for `count` episodes at once, with the statistics of those that are `trained` in.

    None where the only environment is the one in training.
    """
    with ExitStack() as stack:
        if source.atari:
            arena = AtariArena(source, count)
            stack.callback(arena.env.close)
            yield arena
            return
        made = source.copies(count)
        if made is None:
            yield None
            return
        for env in made:
            stack.enter_context(closed_after(env.close))
            freeze(env, trained[0] if trained else None)
        yield _arena(made, limits)


@contextmanager
def _given_arena(env: AnyEnv, trained: Sequence[AnyEnv], limits: Limits) -> Iterator[Arena]:
    """An environment of the user's, with the statistics of training and frozen for as long as it is used."""
    before = [(layer, layer.update_running_mean) for layer in normalisers(env)]
    freeze(env, trained[0] if trained else None)
    try:
        yield _arena([env], limits)
    finally:
        for layer, updating in before:
            layer.update_running_mean = updating


def _arena(envs: Sequence[AnyEnv], limits: Limits) -> Arena:
    if isinstance(envs[0], VectorEnv):
        return VectorArena(envs[0], limits)
    return SingleArena([env for env in envs if not isinstance(env, VectorEnv)], limits)
