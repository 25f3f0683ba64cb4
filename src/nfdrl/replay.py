"""Replay: one ring per environment, sampled as n-step transitions."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdrl.envs.stepping import Step
from nfdrl.errors import NfdrlError
from nfdrl.observations import Observation, as_tensors, row_shape, storage_dtype

Array = NDArray[Any]
EVERY = slice(None)
COLUMN_BYTES = 8 + 4 + 4 + 1 + 1 + 1  # action, reward, discount and three flags of a row


@dataclass(frozen=True, slots=True)
class Batch:
    """Sampled transitions, one per row; `discount` is 0 where the episode terminated."""

    observation: Observation
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_observation: Observation

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device; copied to a GPU from page-locked memory, without waiting for it."""

        def move(column: Tensor) -> Tensor:
            return (column.pin_memory() if device.type == "cuda" else column).to(device, non_blocking=True)

        return self._with(move)

    def split(self, size: int) -> list[Batch]:
        """Batches of `size` rows that share this one's memory."""
        starts = range(0, len(self.action), size)
        return [self._with(lambda column, start=start: column[start : start + size]) for start in starts]  # type: ignore[misc]

    def _with(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with every tensor sent through a function."""
        observation, following = (
            function(part) if isinstance(part, Tensor) else {name: function(tensor) for name, tensor in part.items()}
            for part in (self.observation, self.next_observation)
        )
        return Batch(observation, function(self.action), function(self.reward), function(self.discount), following)


class Storage(Protocol):
    """Where observations are kept: rows are written once and gathered many times.

    `depth` is how many rows before its own an observation needs.
    """

    depth: int

    def write(self, rows: Array, observations: Array) -> None:
        """Keep observations at rows (E,)."""

    def gather(self, rows: Array) -> Observation:
        """The observations at rows (B,)."""

    def kinds(self) -> list[np.dtype[Any]]:
        """The dtypes that an entry of `read` can have, none of them with objects."""

    def read(self, rows: Array) -> Array:
        """What a checkpoint keeps of rows (N,): an array of N entries, of one of the kinds."""

    def restore(self, rows: Array, saved: Array) -> None:
        """Put back what `read` gave for these rows."""


class ArrayStorage(Storage):
    """Observations as they are, in one preallocated array; of observations with parts, a record per row."""

    depth = 0

    def __init__(self, rows: int, space: gymnasium.Space[Any], folder: Path | None = None) -> None:
        self.array = allocate((rows, *row_shape(space)), storage_dtype(space), folder)

    def write(self, rows: Array, observations: Array) -> None:
        self.array[rows] = observations

    def gather(self, rows: Array) -> Observation:
        return as_tensors(self.array.take(rows, axis=0))

    def kinds(self) -> list[np.dtype[Any]]:
        return [np.dtype((self.array.dtype, self.array.shape[1:]))]

    def read(self, rows: Array) -> Array:
        return self.array[rows]

    def restore(self, rows: Array, saved: Array) -> None:
        self.array[rows] = saved


def row_bytes(space: gymnasium.Space[Any], frames: bool = False) -> int:
    """The bytes of one row of a replay: the observation, or one frame and the places of its stack, plus the columns.

    >>> images = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    >>> row_bytes(images), row_bytes(images, frames=True)
    (28243, 7091)
    """
    observation = math.prod(row_shape(space)) * storage_dtype(space).itemsize
    if frames:
        assert space.shape is not None
        stack = min(space.shape[0], space.shape[-1])
        observation = observation // stack + 4 * stack
    return observation + COLUMN_BYTES


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any], folder: Path | None = None) -> Array:
    """Zeros in memory, or in a file in `folder` that vanishes with the process."""
    if folder is None:
        return np.zeros(shape, dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if size > free:
            raise NfdrlError(
                f"the replay needs {size / 1e9:.1f} GB on disk, and {str(folder)!r} has {free / 1e9:.1f} GB free: "
                "make buffer_size smaller"
            )
        with TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # a full disk is noticed here, not at a later write
                os.posix_fallocate(file.fileno(), 0, size)
            return np.asarray(np.memmap(file, dtype, "r+" if hasattr(os, "posix_fallocate") else "w+", shape=shape))
    except OSError as error:
        raise NfdrlError(f"cannot keep the replay in {str(folder)!r}: {error.strerror or error}") from None


class Replay:
    """The last transitions of E environments.

    Each environment has a ring of rows in order of time. A row holds an observation and, once an action was taken
    there, the action, the reward and how the step ended; the next row holds the observation that was reached. So each
    observation is stored once; an episode's final one has a row of its own, which is not `live`. Returns over several
    steps are summed when they are sampled, and stop at the end of an episode or of the data.
    """

    def __init__(
        self,
        capacity: int,
        space: gymnasium.Space[Any],
        *,
        num_envs: int = 1,
        discount: float = 0.99,
        n_step: int = 1,
        rng: np.random.Generator,
        storage: Storage | None = None,
    ) -> None:
        self.length = capacity // num_envs
        depth = 0 if storage is None else storage.depth
        if self.length < n_step + 2 + depth or n_step < 1:
            raise NfdrlError(
                f"a replay of {capacity} for {num_envs} environments is too small for returns over {n_step} steps: "
                "make buffer_size larger"
            )
        rows = self.length * num_envs
        self.storage = ArrayStorage(rows, space) if storage is None else storage
        self.action = np.zeros(rows, np.int64)
        self.reward = np.zeros(rows, np.float32)
        self.kept = np.zeros(rows, np.float32)  # the discount of one step: 0 where it terminated
        self.ended = np.zeros(rows, np.bool_)
        self.explored = np.zeros(rows, np.bool_)  # the action was taken to explore
        self.live = np.zeros(rows, np.bool_)
        self.discount, self.n_step, self.rng = discount, n_step, rng
        self.first_row = np.arange(num_envs) * self.length
        self.cursor = np.zeros(num_envs, np.int64)
        self.position = np.zeros(num_envs, np.int64)  # rows ever begun; the cursor is this modulo the length
        self.open = False  # whether the row at the cursor holds an observation
        self.filled = 1  # rows in use by the environment that uses most
        self.transitions = 0  # ever added

    def __len__(self) -> int:
        """The number of transitions that can be sampled."""
        return int(np.count_nonzero(self.live))

    def start(self, observation: Array) -> None:
        """All environments were reset: the next actions are taken at these observations."""
        if self.open:
            self._advance(EVERY)
        self.open = True
        self.storage.write(self.first_row + self.cursor, observation)

    def add(self, action: Array, step: Step, explored: Array | None = None) -> int:
        """Store one step of all environments; returns the number of transitions in it.

        A return over several steps stops before an action that was `explored`: what follows it says little about the
        policy (Watkins 1989 cuts traces there).
        """
        if self.first_row.size == 1 and step.live is None and not self.storage.depth:
            return self._add_one(action, step, explored)
        chosen: Any = EVERY if step.live is None or step.live.all() else np.flatnonzero(step.live)
        rows = (self.first_row + self.cursor)[chosen]
        terminated = step.terminated[chosen]
        if step.life_lost is not None:
            terminated = terminated | step.life_lost[chosen]
        self.action[rows] = action[chosen]
        self.reward[rows] = (step.reward if step.learned_reward is None else step.learned_reward)[chosen]
        self.kept[rows] = self.discount * ~terminated
        self.ended[rows] = terminated | step.truncated[chosen]
        self.explored[rows] = False if explored is None else explored[chosen]
        self.live[rows] = True
        self._advance(chosen)
        self.storage.write((self.first_row + self.cursor)[chosen], step.reached[chosen])
        if np.count_nonzero(step.fresh):
            renewed = np.flatnonzero(step.fresh)
            self._advance(renewed)
            self.storage.write((self.first_row + self.cursor)[renewed], step.observation[renewed])
        self.transitions += rows.size
        return int(rows.size)

    def _add_one(self, action: Array, step: Step, explored: Array | None) -> int:
        """The same for a single environment: plain indices take a tenth of the time of one-element arrays."""
        row, terminated = int(self.cursor[0]), bool(step.terminated[0])
        if step.life_lost is not None:
            terminated = terminated or bool(step.life_lost[0])
        self.action[row] = action[0]
        self.reward[row] = (step.reward if step.learned_reward is None else step.learned_reward)[0]
        self.kept[row] = 0.0 if terminated else self.discount
        self.ended[row] = terminated or step.truncated[0]
        self.explored[row] = explored is not None and explored[0]
        self.live[row] = True
        self._write_next(step.reached)
        if step.fresh[0]:
            self._write_next(step.observation)
        self.transitions += 1
        return 1

    def _write_next(self, observation: Array) -> None:
        position = int(self.position[0]) + 1
        row = position % self.length
        self.position[0], self.cursor[0], self.live[row] = position, row, False
        if self.filled < self.length:
            self.filled = row + 1 if row else self.length
        self.storage.write(self.cursor, observation)

    def _advance(self, chosen: Any) -> None:
        """Advance the cursors by one row; the newest transition that needs what was there is forgotten."""
        position = self.position[chosen] + 1
        self.position[chosen] = position
        moved = position % self.length
        self.cursor[chosen] = moved
        last = (moved + self.storage.depth) % self.length if self.storage.depth else moved
        self.live[self.first_row[chosen] + last] = False
        if self.filled < self.length and moved.size:
            self.filled = self.length if not moved.all() else max(self.filled, int(moved.max()) + 1)

    def sample(self, size: int) -> Batch:
        """`size` transitions, drawn uniformly with replacement."""
        if not self.transitions:
            raise NfdrlError("the replay is empty: add a transition before sampling")
        return self.transitions_at(self._draw(size))

    def _draw(self, size: int) -> Array:
        rows = self._candidates(size)
        while True:
            dead = np.flatnonzero(~self.live[rows])
            if not dead.size:
                return rows
            if dead.size == size and not self.live.any():
                raise NfdrlError("the replay holds no transition that can be sampled")
            rows[dead] = self._candidates(dead.size)

    def _candidates(self, size: int) -> Array:
        draws = self.rng.integers(self.filled * self.first_row.size, size=size)
        if self.filled == self.length or self.first_row.size == 1:
            return draws
        env, time = np.divmod(draws, self.filled)
        return env * self.length + time

    def transitions_at(self, rows: Array) -> Batch:
        """The n-step transitions that begin at rows (B,)."""
        reward, discount, last = self.reward[rows], self.kept[rows], rows
        following = self._following(rows)
        for _ in range(self.n_step - 1):
            continues = ~self.ended[last] & self.live[following] & ~self.explored[following]
            reward = reward + np.where(continues, discount * self.reward[following], 0).astype(np.float32)
            discount = np.where(continues, discount * self.kept[following], discount)
            last = np.where(continues, following, last)
            following = self._following(last)
        return Batch(
            self.storage.gather(rows),
            torch.from_numpy(self.action[rows]),
            torch.from_numpy(reward),
            torch.from_numpy(discount),
            self.storage.gather(following),
        )

    def _following(self, rows: Array) -> Array:
        """The next rows, around the end of each ring."""
        following = rows + 1
        return np.where(following % self.length == 0, following - self.length, following)
