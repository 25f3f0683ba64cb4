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
from nfdrl.runs import layout

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
    live: int | None = None  # transitions that can be sampled; older checkpoints do not say

    @property
    def oldest(self) -> tuple[int, ...]:
        """The oldest row of each environment that is still stored."""
        return tuple(max(0, position - self.length + 1) for position in self.position)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Snapshot:
        position = tuple(int(row) for row in value["position"])
        segments = tuple(Segment.from_json(segment) for segment in value["segments"])
        if not position or not all(0 <= row < 1 << 62 for row in (*position, int(value["transitions"]))):
            raise NfdrlError("the replay has impossible row numbers")
        if any(len(segment.start) != len(position) for segment in segments):
            raise NfdrlError("a segment of the replay has another number of environments than the replay")
        live = value.get("live")
        return cls(
            int(value["length"]), position, int(value["transitions"]), segments, None if live is None else int(live)
        )


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
        return Snapshot(replay.length, snapshot.position, replay.transitions, kept, _count_live(replay, position))

    def _write(self, replay: Replay, start: tuple[int, ...], stop: tuple[int, ...]) -> Segment:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = layout.segment_name(sum(stop), os.urandom(4).hex())  # never a name that an older checkpoint uses
        record = write_file(self.folder / name, _chunks(replay, start, stop))
        sync_folder(self.folder)
        return Segment(record, start, stop)


def remove_unused(folder: Path, snapshots: Iterable[Snapshot]) -> None:
    """Delete the segments that no checkpoint uses any more."""
    used = {segment.file.name for snapshot in snapshots for segment in snapshot.segments}
    for path in layout.segments(folder):
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


def check_sizes(folder: Path, snapshot: Snapshot) -> None:
    """Refuse a replay with a segment that is missing or has another size; no content is read."""
    for segment in snapshot.segments:
        check_size(folder, segment.file)


def restore(replay: Replay, folder: Path, snapshot: Snapshot, *, partly: bool = False) -> int:
    """Fill an empty replay from its segments, after checking every byte of them; returns how many transitions are lost.

    Nothing may be lost, unless `partly`: then segments that are missing or damaged are left out.
    """
    if (snapshot.length, len(snapshot.position)) != (replay.length, replay.first_row.size):
        raise NfdrlError(
            f"the saved replay has {len(snapshot.position)} rings of {snapshot.length} rows, "
            f"this run's has {replay.first_row.size} of {replay.length}"
        )
    known = [row_dtype(replay, kind) for kind in replay.storage.kinds()]
    covered = [np.zeros(b - a, np.bool_) for a, b in zip(snapshot.oldest, snapshot.position, strict=True)]
    for segment in snapshot.segments:
        rows = _whole(folder, segment, known, partly)
        if rows is not None:
            _restore_segment(replay, rows, segment, snapshot, covered)
    if not partly and not all(part.all() for part in covered):
        raise NfdrlError("the saved replay has gaps: rows that no segment holds")
    _forget_gaps(replay, snapshot, covered)
    return _finish(replay, snapshot, covered)


def _whole(folder: Path, segment: Segment, known: Sequence[np.dtype[Any]], partly: bool) -> Array | None:
    """The rows of a segment whose bytes are those that were written; None if it may be left out."""
    try:
        check_file(folder, segment.file)
        return _open(folder, segment, known)
    except (NfdrlError, OSError):
        if partly:
            return None
        raise


def _restore_segment(replay: Replay, rows: Array, segment: Segment, snapshot: Snapshot, covered: list[Array]) -> None:
    at = 0
    for env, (a, b) in enumerate(zip(segment.start, segment.stop, strict=True)):
        oldest, newest = snapshot.oldest[env], snapshot.position[env]
        skipped = max(0, oldest - a)
        first, last = a + skipped, min(b, newest)
        if first < last:
            covered[env][first - oldest : last - oldest] = True
            _put(replay, env, first, rows[at + skipped : at + last - a])
        at += b - a


def _forget_gaps(replay: Replay, snapshot: Snapshot, covered: list[Array]) -> None:
    """A transition needs its own row, the next one, and the earlier ones that hold frames of its observation."""
    for env, (oldest, have) in enumerate(zip(snapshot.oldest, covered, strict=True)):
        gaps = np.flatnonzero(~have) + oldest
        for offset in range(-1, replay.storage.depth + 1):
            replay.live[replay.first_row[env] + (gaps + offset) % replay.length] = False


def _finish(replay: Replay, snapshot: Snapshot, covered: list[Array]) -> int:
    """Set the cursors, unless nothing is left; returns how many transitions are lost."""
    missing = sum(int((~have).sum()) for have in covered)
    for env, position in enumerate(snapshot.position):  # still in a segment, but without their observations
        gone = position + np.arange(replay.storage.depth + 1)
        replay.live[replay.first_row[env] + gone % replay.length] = False
    if missing and not len(replay):
        return missing if snapshot.live is None else snapshot.live
    replay.position[:] = snapshot.position
    replay.cursor[:] = replay.position % replay.length
    replay.filled = min(replay.length, int(replay.position.max()) + 1)
    replay.transitions, replay.open = snapshot.transitions, False
    return 0 if not missing else missing if snapshot.live is None else snapshot.live - len(replay)


def _count_live(replay: Replay, position: Array) -> int:
    """The transitions that will be left once the next observations are written at `position`."""
    live = replay.live.copy()
    for ahead in range(replay.storage.depth + 1):
        live[replay.first_row + (position + ahead) % replay.length] = False
    return int(np.count_nonzero(live))


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
