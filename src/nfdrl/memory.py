"""How much memory and disk there is, limits of containers included, and the refusal to start with too little."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from nfdrl.errors import NfdrlError

RESERVE = 256 << 20  # networks, optimisers, batches and the environments themselves
UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as a number near 2⁶³


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take: the least of the machine's and of every control group's above it."""
    found = [value for value in (_of_machine(root), *_of_groups(root)) if value is not None]
    return min(found) if found else None


def _of_machine(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def _of_groups(root: Path) -> Iterator[int | None]:
    """What is left under each limit: cgroup v2 (memory.max) and v1 (memory.limit_in_bytes), from our group up."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.strip().split(":", 2)
        if controllers == "":
            yield from _left(root / "sys/fs/cgroup", group, "memory.max", "memory.current", "memory.stat")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
            yield from _left(root / "sys/fs/cgroup/memory", group, *names)


def _left(top: Path, group: str, limit: str, usage: str, stat: str) -> Iterator[int | None]:
    inner = top / group.lstrip("/")
    for folder in (inner, *inner.parents):
        allowed, used = _number(folder / limit), _number(folder / usage)
        if allowed is not None and used is not None and allowed < UNLIMITED:
            yield max(0, allowed - used + _reclaimable(folder / stat))
        if folder == top:
            return


def _reclaimable(stat: Path) -> int:
    """Cached files count as used, but make room when memory is asked for."""
    for line in _lines(stat):
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def check_memory(rows: int, row_bytes: int, available: int | None = None) -> None:
    """Refuse a replay that does not fit, with the number of rows that would."""
    free = available_memory() if available is None else available
    if free is None or rows * row_bytes + RESERVE <= free:
        return
    raise NfdrlError(
        f"a replay of {rows:,} transitions needs {gigabytes(rows * row_bytes)}, and {gigabytes(free)} of memory are "
        f"free: buffer_size can be at most {max(0, free - RESERVE) // row_bytes:,}; or set replay_on_disk to a folder"
    )


def check_disk(folder: Path, rows: int, row_bytes: int) -> None:
    """Refuse a run whose checkpoints would not fit: the replay's rows, and those between checkpoints that are kept."""
    inside = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(inside).free
    if rows * row_bytes > free:
        raise NfdrlError(
            f"checkpoints with a replay of up to {rows:,} rows need {gigabytes(rows * row_bytes)}, and "
            f"{gigabytes(free)} are free in {str(inside)!r}: make buffer_size, checkpoint_every or keep smaller"
        )


def gigabytes(count: int) -> str:
    """An amount in gigabytes.

    >>> gigabytes(28_240_000_000)
    '28.2 GB'
    """
    return f"{count / 1e9:.3g} GB"
