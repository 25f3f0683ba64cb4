"""Frame stacking as a setting: the agent sees the last few observations at once."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.envs.registration import WrapperSpec
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from nfdrl.envs.atari import GAME as ATARI_GAME
from nfdrl.envs.make import Source
from nfdrl.errors import NfdrlError


class StackedFrames(gymnasium.wrappers.FrameStackObservation):
    """Gymnasium's wrapper, known by its name as the one that the setting asks for, so that nothing is stacked twice."""


ENTRY_POINT = f"{StackedFrames.__module__}:{StackedFrames.__name__}"


def stacked(source: Source, frames: int) -> Source:
    """The source of environments whose observations are the last `frames` ones, oldest first, along a new first axis.

    An episode begins with copies of its first observation.
    """
    spec, given = source.spec, source.given
    if frames == 1 or isinstance(given, StackedFrames):
        return source
    if isinstance(given, VectorEnv):
        raise NfdrlError(
            "frame_stack works on single environments: wrap those inside the vector environment in "
            "gymnasium.wrappers.FrameStackObservation instead"
        )
    if spec is not None and spec.entry_point == ATARI_GAME:
        raise NfdrlError("Atari games stack frames themselves: write their number as in 'ALE/Pong-v5[stack=4]'")
    wrapped: gymnasium.Env[Any, Any] | None = None if given is None else StackedFrames(given, frames)
    if spec is not None:
        spec = copy.deepcopy(spec)
        spec.additional_wrappers += (WrapperSpec(StackedFrames.__name__, ENTRY_POINT, {"stack_size": frames}),)
    return replace(source, spec=spec, given=wrapped, observation_space=batch_space(source.observation_space, frames))
