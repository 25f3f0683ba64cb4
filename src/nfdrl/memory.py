"""How much memory and disk is free, within the limits of containers, and checks that it is enough."""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nfdrl.errors import NfdrlError

RESERVE = 256 << 20  # networks, optimisers, batches and the environments themselves
UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as a number near 2⁶³


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take: the least of what the machine, control groups and `ulimit -v` allow."""
    kibibytes = _entry(root / "proc/meminfo", "MemAvailable")
    found = [*([] if kibibytes is None else [1024 * kibibytes]), *_of_groups(root), *_of_process(root)]
    return min(found, default=None)


def _of_process(root: Path) -> Iterator[int]:
    """What is left of the addresses that this process may use."""
    allowed, pages = resource.getrlimit(resource.RLIMIT_AS)[0], "".join(_lines(root / "proc/self/statm")).split()
    if allowed != resource.RLIM_INFINITY and pages:
        yield max(0, allowed - int(pages[0]) * resource.getpagesize())


def _of_groups(root: Path) -> Iterator[int]:
    """What is left under each limit: cgroup v2 (memory.max) and v1 (memory.limit_in_bytes), from our group up."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.strip().split(":", 2)
        if controllers == "":
            yield from _left(root / "sys/fs/cgroup", group, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            yield from _left(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _left(top: Path, group: str, limit: str, usage: str) -> Iterator[int]:
    inner = top / group.lstrip("/")
    for folder in (inner, *inner.parents):
        allowed, used = _number(folder / limit), _number(folder / usage)
        if allowed is not None and used is not None and allowed < UNLIMITED:
            # Cached files count as used, but are dropped when memory is needed.
            cached = _entry(folder / "memory.stat", "inactive_file", "total_inactive_file") or 0
            yield max(0, allowed - used + cached)
        if folder == top:
            return


def _entry(path: Path, *names: str) -> int | None:
    """The number after the first of the names that stands in a file of such lines."""
    for line in _lines(path):
        name, _, rest = line.replace(":", " ", 1).partition(" ")
        if name in names:
            return int(rest.split()[0])
    return None


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
        f"a replay of {rows:,} transitions needs {gigabytes(rows * row_bytes)}, and {gigabytes(free)} of memory is "
        f"free: buffer_size may be at most {max(0, free - RESERVE) // row_bytes:,}; or set replay_on_disk to a folder"
    )


def check_batch(rows: int, row_bytes: int) -> None:
    """Refuse a batch that does not fit."""
    free = available_memory()
    if free is not None and rows * row_bytes > free:
        raise NfdrlError(
            f"a batch of {rows:,} transitions needs {gigabytes(rows * row_bytes)}, and {gigabytes(free)} of memory is "
            "free: make batch_size smaller"
        )


def check_weights(count: int) -> None:
    """Refuse a network that does not fit: its weights, their copy, gradients, and two moments each."""
    free, needed = available_memory(), 5 * 4 * count
    if free is not None and needed > free:
        raise NfdrlError(
            f"a network of {count:,} weights needs {gigabytes(needed)} to learn, and {gigabytes(free)} of memory is "
            "free: make its layers smaller"
        )


@contextmanager
def fitting(what: str) -> Iterator[None]:
    """Say what did not fit into memory; PyTorch has no error of its own for that."""
    try:
        yield
    except NfdrlError:  # which says more
        raise
    except (MemoryError, OverflowError):
        raise NfdrlError(f"{what} does not fit into memory") from None
    except (RuntimeError, TypeError, ValueError) as error:
        if re.search(r"alloc|memory|overflow|too large|too big|dimension", str(error)):
            raise NfdrlError(f"{what} does not fit into memory") from None
        raise


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed, of NumPy or of PyTorch, which has no error of its own for that on a CPU."""
    return isinstance(error, MemoryError) or bool(
        re.search(r"can't allocate memory|out of memory|bad_alloc|can't start new thread", str(error))
    )


def check_disk(folder: Path, rows: int, row_bytes: int) -> None:
    """Refuse a run whose checkpoints would not fit: the replay's rows, and those added between kept checkpoints."""
    inside = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(inside).free
    if rows * row_bytes > free:
        raise NfdrlError(
            f"checkpoints with a replay of up to {rows:,} rows need {gigabytes(rows * row_bytes)}, and "
            f"{gigabytes(free)} is free in {str(inside)!r}: make buffer_size, checkpoint_every or keep smaller"
        )


def gigabytes(count: int) -> str:
    """An amount in gigabytes, a small one in megabytes.

    >>> gigabytes(28_240_000_000), gigabytes(5_000_000_000_000), gigabytes(151_000)
    ('28.2 GB', '5,000 GB', '0.151 MB')
    """
    if count < 1e8:
        return f"{count / 1e6:.3g} MB"
    return f"{count / 1e9:,.0f} GB" if count >= 1e12 else f"{count / 1e9:.3g} GB"
