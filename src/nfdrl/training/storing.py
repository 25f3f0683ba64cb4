"""The replay of a run: how it stores observations, and whether they fit."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np

from nfdrl.envs.make import Source
from nfdrl.errors import NfdrlError
from nfdrl.frames import FrameStorage
from nfdrl.memory import check_batch, check_memory, fitting
from nfdrl.replay import COLUMN_BYTES, ArrayStorage, Replay, Storage, row_bytes
from nfdrl.torsos import is_image
from nfdrl.training.config import TrainConfig


def stores_frames(source: Source, config: TrainConfig) -> bool:
    """Whether the replay stores the frames of stacked images instead of the stacks."""
    choice, space = config.frame_replay, source.observation_space
    asked = choice in ("on", "compressed")
    images = isinstance(space, gymnasium.spaces.Box) and is_image(space) and len(space.shape) == 3
    if asked and not images:
        raise NfdrlError(f"frame_replay={choice} needs stacked images, but observations are {space}")
    return asked or (choice == "auto" and images and (source.stacked or config.frame_stack > 1))


def transition_bytes(source: Source, config: TrainConfig) -> int:
    """The bytes that a transition takes in the replay."""
    return row_bytes(source.observation_space, stores_frames(source, config))


def resident_bytes(source: Source, config: TrainConfig) -> int:
    """The bytes of memory that a transition takes in the replay."""
    row = COLUMN_BYTES if config.replay_on_disk else transition_bytes(source, config)
    if config.frame_replay == "compressed":
        return COLUMN_BYTES + row // 4  # the games we tried took a thirtieth to a fifth
    return row


def check_replay_fits(source: Source, config: TrainConfig) -> None:
    """Refuse a replay that this machine cannot hold."""
    check_memory(config.buffer_size, resident_bytes(source, config))
    check_batch(config.batch_size, 2 * row_bytes(source.observation_space))


def new_replay(source: Source, config: TrainConfig, num_envs: int, rng: np.random.Generator) -> Replay:
    """An empty replay, if it fits."""
    check_replay_fits(source, config)
    with fitting(f"a replay of {config.buffer_size:,} transitions"):
        return _made(source, config, num_envs, rng)


def _made(source: Source, config: TrainConfig, num_envs: int, rng: np.random.Generator) -> Replay:
    return Replay(
        config.buffer_size,
        source.observation_space,
        num_envs=num_envs,
        discount=config.discount,
        n_step=config.n_step,
        rng=rng,
        storage=_storage(source, config, num_envs),
    )


def _storage(source: Source, config: TrainConfig, num_envs: int) -> Storage:
    space = source.observation_space
    folder = Path(config.replay_on_disk) if config.replay_on_disk else None
    if stores_frames(source, config):
        compressed = config.frame_replay == "compressed"
        if compressed and folder is not None:
            raise NfdrlError("a replay cannot be compressed and on disk: set only one of frame_replay, replay_on_disk")
        return FrameStorage(config.buffer_size, num_envs, space, folder, compressed=compressed)
    return ArrayStorage(config.buffer_size // num_envs * num_envs, space, folder)
