"""Replay of single frames: each frame of stacked images is kept once, in memory, on disk or compressed."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdrl.observations import storage_dtype
from nfdrl.replay import Storage, allocate
from nfdrl.torsos import channels_come_first

Array = NDArray[Any]


class FrameStorage(Storage):
    """Observations that are stacks of frames, for the rings of a `Replay`.

    A row keeps the newest frame of its observation and the places of the older ones: earlier rows, as long as each
    observation is the previous one advanced by a frame. Each write checks that. Where it does not hold, as at the start
    of an episode, an older frame that is blank or a copy of the newest takes no place of its own, and any other is kept
    aside until its row is written again. So every stack comes back as it was, whatever made it.

    An observation needs the `depth` rows before its own, which the replay therefore keeps that much longer.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        space: gymnasium.Space[Any],
        folder: Path | None = None,
        *,
        compressed: bool = False,
    ) -> None:
        assert space.shape is not None
        self.first = channels_come_first(space.shape)
        stack, *frame = space.shape if self.first else (space.shape[-1], *space.shape[:-1])
        self.depth, self.length = stack - 1, capacity // num_envs
        self.blank = self.length * num_envs  # the row after the last one stays empty
        shape, dtype = (self.blank + 1, *frame), storage_dtype(space)
        self.frames: Any = PackedFrames(shape, dtype) if compressed else allocate(shape, dtype, folder)
        self.places = np.full((self.blank, stack), self.blank, np.int32)
        self.aside = np.zeros((0, *frame), self.frames.dtype)
        self._free: list[int] = []
        self._owned: dict[int, list[int]] = {}  # row → the places aside that it brought

    @property
    def nbytes(self) -> int:
        """The memory taken, in bytes."""
        return int(self.frames.nbytes) + self.places.nbytes + self.aside.nbytes

    def write(self, rows: Array, observations: Array) -> None:
        """Keep observations at rows (E,), each the successor of the row last written in its ring."""
        stacks = observations if self.first else np.moveaxis(observations, -1, 1)
        previous = np.where(rows % self.length == 0, rows + self.length - 1, rows - 1)
        for row in self._owned.keys() & set(rows.tolist()) if self._owned else ():
            self._free += self._owned.pop(row)
        older = self.places[previous, 1:]
        moved_on = (stacks[:, :-1] == self._stacks(older)).all((1, 2, 3))
        self.frames[rows] = stacks[:, -1]
        self.places[rows, :-1] = older
        self.places[rows, -1] = rows
        for k in np.flatnonzero(~moved_on).tolist():
            self.places[rows[k], :-1] = [self._place(int(rows[k]), stacks[k], j) for j in range(self.depth)]

    def _place(self, row: int, stack: Array, j: int) -> int:
        """The place of the j-th frame of a stack that does not continue the previous one."""
        if not stack[j].any():
            return self.blank
        if np.array_equal(stack[j], stack[-1]):
            return row
        if not self._free:
            have = len(self.aside)
            self.aside = np.concatenate([self.aside, np.zeros((max(have, 8), *stack[j].shape), self.aside.dtype)])
            self._free = list(range(len(self.aside) - 1, have - 1, -1))
        slot = self._free.pop()
        self.aside[slot] = stack[j]
        self._owned.setdefault(row, []).append(slot)
        return self.blank + 1 + slot

    def gather(self, rows: Array) -> Tensor:
        stacks = self._stacks(self.places[rows])
        return torch.from_numpy(stacks if self.first else np.moveaxis(stacks, 1, -1))

    def kinds(self) -> list[np.dtype[Any]]:
        """A frame and the places of the older ones; or, while some are kept aside, the whole stack."""
        frame, dtype = self.frames.shape[1:], self.frames.dtype
        places = [("frame", dtype, frame), ("places", "i4", self.depth + 1)]
        return [np.dtype(places), np.dtype([("stack", dtype, (self.depth + 1, *frame))])]

    def read(self, rows: Array) -> Array:
        saved = np.zeros(len(rows), self.kinds()[bool(self._owned)])
        if self._owned:
            saved["stack"] = self._stacks(self.places[rows])
        else:
            saved["frame"], saved["places"] = self.frames[rows], self.places[rows]
        return saved

    def restore(self, rows: Array, saved: Array) -> None:
        """Put back what `read` gave for these rows, which must be consecutive."""
        if "places" in (saved.dtype.names or ()):
            self.frames[rows], self.places[rows] = saved["frame"], saved["places"]
            return
        for row, stack in zip(rows, saved["stack"], strict=True):
            self.write(row[None], (stack if self.first else np.moveaxis(stack, 0, -1))[None])

    def _stacks(self, places: Array) -> Array:
        """Frames at places (B, S)."""
        stacks: Array = self.frames.take(places, axis=0, mode="clip")
        if self._owned:
            apart = places > self.blank
            stacks[apart] = self.aside[places[apart] - self.blank - 1]
        return stacks


class PackedFrames:
    """Frames compressed one by one; as much of an array as `FrameStorage` needs.

    A frame of a game takes 200 to 1,400 bytes instead of 7,056, and 10 to 20 µs to unpack.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self._packed = [_pack(np.zeros(shape[1:], dtype))] * shape[0]

    @property
    def nbytes(self) -> int:
        """The memory taken, in bytes: packed frames and the list of them."""
        return sys.getsizeof(self._packed) + sum(map(sys.getsizeof, self._packed))

    def __setitem__(self, rows: Array, frames: Array) -> None:
        for row, frame in zip(rows.tolist(), frames, strict=True):
            self._packed[row] = _pack(frame)

    def __getitem__(self, rows: Array) -> Array:
        return self.take(rows)

    def take(self, places: Array, axis: int = 0, mode: str = "clip") -> Array:  # noqa: ARG002
        """Frames at places of any shape; places past the last one mean the last one."""
        packed = self._packed
        chosen = places.clip(max=len(packed) - 1).ravel().tolist()
        frames = bytearray().join([zlib.decompress(packed[place]) for place in chosen])
        return np.frombuffer(frames, self.dtype).reshape(*places.shape, *self.shape[1:])


def _pack(frame: Array) -> bytes:
    return zlib.compress(frame.tobytes(), 1)
