"""Frame stacking as a setting: the agent sees the last few observations at once."""

from __future__ import annotations

import copy
from dataclasses import replace

import gymnasium
from gymnasium.envs.registration import WrapperSpec
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import FrameStackObservation

from nfdrl.envs.atari import GAME as ATARI_GAME
from nfdrl.envs.make import Source
from nfdrl.errors import NfdrlError


def stacked(source: Source, frames: int) -> Source:
    """The source of environments whose observations are the last `frames` ones, oldest first, in a new first axis.

    An episode begins with copies of its first observation.
    """
    if frames == 1:
        return source
    if isinstance(source.given, VectorEnv):
        raise NfdrlError(
            "frame_stack works on single environments: wrap those inside the vector environment in "
            "gymnasium.wrappers.FrameStackObservation instead"
        )
    spec = source.spec
    if spec is not None and spec.entry_point == ATARI_GAME:
        raise NfdrlError("Atari games stack frames themselves: write the number as in 'ALE/Pong-v5[stack=4]'")
    given: gymnasium.Env | None = None if source.given is None else FrameStackObservation(source.given, frames)
    if spec is not None:
        kwargs = {"stack_size": frames}
        wrapper = WrapperSpec("FrameStackObservation", "gymnasium.wrappers:FrameStackObservation", kwargs)
        spec = copy.deepcopy(spec)
        spec.additional_wrappers = (*spec.additional_wrappers, wrapper)
    return replace(source, spec=spec, given=given, observation_space=batch_space(source.observation_space, frames))
