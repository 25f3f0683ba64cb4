"""A replay on disk: segments of rows, each written once, so that a checkpoint writes only what is new.

The rows of an environment are numbered in order of time; row p lies in slot p mod length of its ring. A row before the
cursor does not change until the ring wraps around, so its segment is never touched again. The row at the cursor may
still change: it is written with this checkpoint, and again with the next.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdrl.errors import NfdrlError
from nfdrl.files import FileRecord, check_file, check_size, sync_folder, write_file
from nfdrl.replay import Replay
from nfdrl.runs.layout import SEGMENTS

Array = NDArray[Any]
COLUMNS = ("action", "reward", "kept", "ended", "explored", "live")
CHUNK_BYTES = 8 << 20
MAX_SEGMENTS = 256  # beyond this, all rows are written into one, so that manifests stay short


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with rows start[e] … stop[e] − 1 of each environment e, one environment after another."""

    file: FileRecord
    start: tuple[int, ...]
    stop: tuple[int, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Segment:
        start, stop = (tuple(int(row) for row in value[name]) for name in ("start", "stop"))
        if len(start) != len(stop) or any(not 0 <= a <= b for a, b in zip(start, stop, strict=True)):
            raise NfdrlError("a segment of the replay has impossible row numbers")
        return cls(FileRecord.from_json(value["file"]), start, stop)

    @property
    def rows(self) -> int:
        return sum(self.stop) - sum(self.start)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A replay as a checkpoint has it: open episodes are cut off, and the next observations begin new ones."""

    length: int
    position: tuple[int, ...]
    transitions: int
    segments: tuple[Segment, ...]

    @property
    def oldest(self) -> tuple[int, ...]:
        """The oldest row of each environment that is still stored."""
        return tuple(max(0, position - self.length + 1) for position in self.position)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Snapshot:
        position = tuple(int(row) for row in value["position"])
        segments = tuple(Segment.from_json(segment) for segment in value["segments"])
        if not position or min(position) < 0:
            raise NfdrlError("the replay has impossible row numbers")
        if any(len(segment.start) != len(position) for segment in segments):
            raise NfdrlError("a segment of the replay has another number of environments than the replay")
        return cls(int(value["length"]), position, int(value["transitions"]), segments)


class Journal:
    """Writes a replay's new rows into a folder."""

    def __init__(self, folder: Path, written: Snapshot | None = None) -> None:
        self.folder = folder
        self._segments = () if written is None else written.segments
        self._final = None if written is None else written.position  # earlier rows need not be written again

    def append(self, replay: Replay) -> Snapshot:
        """Make every row of the replay durable; earlier segments stay untouched."""
        position = replay.position + replay.open
        snapshot = Snapshot(replay.length, tuple(position.tolist()), replay.transitions, ())
        kept = tuple(s for s in self._segments if any(b > a for a, b in zip(snapshot.oldest, s.stop, strict=True)))
        if self._final is None or len(kept) >= MAX_SEGMENTS:
            kept, start = (), snapshot.oldest
        else:
            start = tuple(max(pair) for pair in zip(self._final, snapshot.oldest, strict=True))
        if start != snapshot.position:
            kept = (*kept, self._write(replay, start, snapshot.position))
        self._segments, self._final = kept, tuple(replay.position.tolist())
        return Snapshot(replay.length, snapshot.position, replay.transitions, kept)

    def _write(self, replay: Replay, start: tuple[int, ...], stop: tuple[int, ...]) -> Segment:
        self.folder.mkdir(parents=True, exist_ok=True)
        part = f"{sum(stop):012d}-{os.urandom(4).hex()}"  # never a name that an older checkpoint uses
        name = SEGMENTS.replace("*", part)
        record = write_file(self.folder / name, _chunks(replay, start, stop))
        sync_folder(self.folder)
        return Segment(record, start, stop)


def remove_unused(folder: Path, snapshots: Iterable[Snapshot]) -> None:
    """Delete the segments that no checkpoint uses any more."""
    used = {segment.file.name for snapshot in snapshots for segment in snapshot.segments}
    for path in folder.glob(SEGMENTS):
        if path.name not in used:
            path.unlink(missing_ok=True)


def row_dtype(replay: Replay, kind: np.dtype[Any]) -> np.dtype[Any]:
    """One row of a replay as one entry of an array, with an observation of this kind."""
    columns = [(name, getattr(replay, name).dtype) for name in COLUMNS]
    return np.dtype([("observation", kind), *columns])


def _chunks(replay: Replay, start: Sequence[int], stop: Sequence[int]) -> Iterator[bytes | memoryview]:
    """A plain .npy file in chunks, so that a large replay is never in memory twice."""
    empty = replay.storage.read(np.zeros(0, np.int64))
    dtype, header = row_dtype(replay, np.dtype((empty.dtype, empty.shape[1:]))), io.BytesIO()
    shape = (sum(stop) - sum(start),)
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_2_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    yield header.getvalue()
    for slots in _slots(replay, start, stop, dtype.itemsize):
        rows = np.empty(slots.size, dtype)
        rows["observation"] = replay.storage.read(slots)
        for name in COLUMNS:
            rows[name] = getattr(replay, name)[slots]
        yield rows.view(np.uint8).data


def _slots(replay: Replay, start: Sequence[int], stop: Sequence[int], itemsize: int) -> Iterator[Array]:
    step = max(1, CHUNK_BYTES // itemsize)
    for first, a, b in zip(replay.first_row.tolist(), start, stop, strict=True):
        for begin in range(a, b, step):
            yield first + np.arange(begin, min(b, begin + step)) % replay.length


def check(folder: Path, snapshot: Snapshot, *, sizes_only: bool = False) -> None:
    """Refuse a replay with a missing or damaged segment."""
    for segment in snapshot.segments:
        (check_size if sizes_only else check_file)(folder, segment.file)


def restore(replay: Replay, folder: Path, snapshot: Snapshot) -> None:
    """Fill an empty replay from its segments, after checking every byte of them."""
    if (snapshot.length, len(snapshot.position)) != (replay.length, replay.first_row.size):
        raise NfdrlError(
            f"the saved replay has {len(snapshot.position)} rings of {snapshot.length} rows, "
            f"this run's has {replay.first_row.size} of {replay.length}"
        )
    check(folder, snapshot)
    known = [row_dtype(replay, kind) for kind in replay.storage.kinds()]
    covered = [np.zeros(b - a, np.bool_) for a, b in zip(snapshot.oldest, snapshot.position, strict=True)]
    for segment in snapshot.segments:
        rows, at = _open(folder, segment, known), 0
        for env, (a, b) in enumerate(zip(segment.start, segment.stop, strict=True)):
            oldest, newest = snapshot.oldest[env], snapshot.position[env]
            skipped = max(0, oldest - a)
            first, last = a + skipped, min(b, newest)
            if first < last:
                covered[env][first - oldest : last - oldest] = True
                _put(replay, env, first, rows[at + skipped : at + last - a])
            at += b - a
    if not all(part.all() for part in covered):
        raise NfdrlError("the saved replay has gaps: rows that no segment holds")
    replay.position[:] = snapshot.position
    replay.cursor[:] = replay.position % replay.length
    replay.filled = min(replay.length, int(replay.position.max()) + 1)
    replay.transitions, replay.open = snapshot.transitions, False
    for ahead in range(replay.storage.depth + 1):  # still in a segment, but without their observations
        replay.live[replay.first_row + (replay.cursor + ahead) % replay.length] = False


def _open(folder: Path, segment: Segment, known: Sequence[np.dtype[Any]]) -> Array:
    path = folder / segment.file.name
    try:
        rows: Array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # NumPy reads the header with Python's tokenizer, which raises errors of its own
        raise NfdrlError(f"{path} is not an array of the replay: {' '.join(str(error).split())[:200]}") from None
    if rows.dtype not in known or rows.shape != (segment.rows,):
        raise NfdrlError(f"{path} must hold {segment.rows:,} rows of this replay, found an array of another kind")
    return rows


def _put(replay: Replay, env: int, first: int, rows: Array) -> None:
    step = max(1, CHUNK_BYTES // rows.dtype.itemsize)
    for begin in range(0, len(rows), step):
        part = rows[begin : begin + step]
        slots = replay.first_row[env] + np.arange(first + begin, first + begin + len(part)) % replay.length
        replay.storage.restore(slots, part["observation"])
        for name in COLUMNS:
            getattr(replay, name)[slots] = part[name]
