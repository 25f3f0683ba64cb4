"""An environment under its wrappers: the statistics that normalise it, and whether somebody else has used it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from subprocess import Popen
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

Array = NDArray[Any]
AnyEnv = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]

RUNNING = ("obs_rms", "return_rms")  # Gymnasium's names: NormalizeObservation and NormalizeReward, single and vector
MOMENTS = ("mean", "var", "count")
DISCOUNTED = ("discounted_reward", "accumulated_reward")  # the running return of NormalizeReward


def layers(env: AnyEnv | None) -> Iterator[Any]:
    """The environment and everything that it wraps, from the outside; then those of a SyncVectorEnv."""
    layer: Any = env
    while layer is not None:
        yield layer
        if isinstance(layer, VectorEnv):
            for inner in vars(layer).get("envs", ()):
                yield from layers(inner)
        inner = vars(layer).get("env")
        layer = inner if isinstance(inner, gymnasium.Env | VectorEnv) else None


def trace_of(env: AnyEnv | None) -> list[Any]:
    """What changes when somebody resets or steps an environment: its generators and its clocks."""
    found = [(vars(layer).get("_np_random"), vars(layer).get("_elapsed_steps")) for layer in layers(env)]
    return [(None if rng is None else str(rng.bit_generator.state), elapsed) for rng, elapsed in found]


def holds_handles(env: AnyEnv) -> bool:
    """Whether a layer has a pipe or a process: a copy would share it, and close it for both."""
    values = [value for layer in layers(env) for value in vars(layer).values()]
    values += [part for value in values if isinstance(value, list | tuple) for part in value]
    return any(isinstance(value, Connection | BaseProcess | Popen) for value in values)


def discount_of(envs: Sequence[AnyEnv]) -> float | None:
    """The discount that an environment, or the finite MDP that it plays, has of its own."""
    for layer in (layer for env in envs for layer in layers(env)):
        own = vars(layer)
        found = own.get("discount", getattr(own.get("mdp"), "discount", None))
        if isinstance(found, int | float):
            return float(found)
    return None


def normalisers(env: AnyEnv | None) -> list[Any]:
    """The layers that normalise by running statistics."""
    return [layer for layer in layers(env) if any(name in vars(layer) for name in RUNNING)]


def statistics(envs: Sequence[AnyEnv]) -> dict[str, Array]:
    """All running statistics, by their place and name."""
    found: dict[str, Array] = {}
    for place, layer in _places(envs):
        own = vars(layer)
        for name in filter(own.__contains__, RUNNING):
            found |= {f"{place}.{name}.{moment}": np.array(getattr(own[name], moment)) for moment in MOMENTS}
        found |= {f"{place}.{name}": np.array(own[name]) for name in DISCOUNTED if name in own}
    return found


def restore_statistics(envs: Sequence[AnyEnv], saved: Mapping[str, Array]) -> None:
    """Give environments the statistics that `statistics` found in others like them."""
    for place, layer in _places(envs):
        own = vars(layer)
        for name in filter(own.__contains__, RUNNING):
            for moment in MOMENTS:
                value = saved.get(f"{place}.{name}.{moment}")
                before = getattr(own[name], moment)
                if value is not None and value.shape == np.shape(before):
                    # A count is Python's number: NumPy's would change the type of what it is multiplied by.
                    setattr(own[name], moment, value.item() if type(before) is float else value.copy()[()])
        for name in filter(own.__contains__, DISCOUNTED):
            value = saved.get(f"{place}.{name}")
            if value is not None and value.shape == np.shape(own[name]):
                own[name] = value.copy()


def _places(envs: Sequence[AnyEnv]) -> Iterator[tuple[str, Any]]:
    for k, env in enumerate(envs):
        yield from ((f"{k}.{depth}", layer) for depth, layer in enumerate(normalisers(env)))


def freeze(env: AnyEnv, like: AnyEnv | None = None) -> None:
    """Stop the running statistics, at the values that another environment has for the same quantity."""
    given = normalisers(like)
    for layer in normalisers(env):
        for name in filter(vars(layer).__contains__, RUNNING):
            theirs = next((vars(other)[name] for other in given if name in vars(other)), None)
            if theirs is not None and np.shape(theirs.mean) == np.shape(vars(layer)[name].mean):
                vars(layer)[name] = copy.deepcopy(theirs)
        layer.update_running_mean = False
