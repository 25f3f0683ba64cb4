"""Who may write to a run's folder: one process at a time, and nothing that is not the run's own is touched."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from nfdrl.errors import NfdrlError
from nfdrl.files import read_json
from nfdrl.runs import layout

ATTEMPTS = 20  # to lock a file that others are removing
MAX_TEXT = 4096

_held: set[int] = set()  # file descriptors of our own locks


def _drop_in_child() -> None:
    """A forked process must not keep its parent's locks alive."""
    for handle in _held:
        with suppress(OSError):
            os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_drop_in_child)


class InUseError(NfdrlError):
    """Another process is writing to the folder."""


@dataclass(frozen=True)
class Holder:
    """Who has locked a run."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host!r} since {self.since}"

    @property
    def elsewhere(self) -> bool:
        return self.host != socket.gethostname()

    @property
    def may_live(self) -> bool:
        """Whether the process exists, as far as this machine can tell."""
        if self.elsewhere:
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return self.pid != os.getpid()


class Claim:
    """An exclusive lock on a run's folder, which the operating system releases when the process ends."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle

    def check(self) -> None:
        """Refuse to write on if another process has taken over by force."""
        if not _same_file(self._path, self._handle):
            raise NfdrlError(
                f"another process has taken over the run in {str(self._path.parent)!r}: nothing was written"
            )

    def release(self) -> None:
        """Let others write; the file goes while it is still locked, so that none of them can be holding it."""
        if _same_file(self._path, self._handle):
            self._path.unlink(missing_ok=True)
        _held.discard(self._handle)
        os.close(self._handle)


@contextmanager
def claimed(run: Path, *, force: bool = False) -> Iterator[Claim]:
    """The folder of a run, for this process alone; `force` takes it from a process on another machine."""
    try:
        claim = _claim(run / layout.LOCK, force)
    except OSError as error:
        raise NfdrlError(f"cannot lock the run in {str(run)!r}: {error.strerror or error}") from None
    try:
        yield claim
    finally:
        claim.release()


def _claim(path: Path, force: bool) -> Claim:
    for _ in range(ATTEMPTS):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            if _is_taken(handle):
                _refuse(path, _read(handle), force)
                path.unlink(missing_ok=True)  # the lock stays with the file that was there
            elif _same_file(path, handle):
                _write(handle, path)
                _held.add(handle)
                return Claim(path, handle)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    raise NfdrlError(f"cannot lock the run in {str(path.parent)!r}: other processes keep taking it")


def _is_taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return True
        # A shared folder without locks: all there is to go by is what the holder wrote.
        holder = _read(handle)
        return holder is not None and holder.may_live
    return False


def _refuse(path: Path, holder: Holder | None, force: bool) -> None:
    """Raise unless the holder is on another machine and is to be ignored."""
    elsewhere = holder is not None and holder.elsewhere
    if force and elsewhere:
        return
    way_out = "wait until it ends, or stop it"
    if elsewhere:
        way_out += "; if that machine no longer runs it, add --force (force=True)"
    raise InUseError(f"{str(path.parent)!r} is in use by {holder or 'another process'}: {way_out}")


def _write(handle: int, path: Path) -> None:
    holder = Holder(os.getpid(), socket.gethostname(), datetime.now(timezone.utc).isoformat(timespec="seconds"))
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(asdict(holder)).encode(), 0)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _read(handle: int) -> Holder | None:
    try:
        text = json.loads(os.pread(handle, MAX_TEXT, 0))
        return Holder(int(text["pid"]), str(text["host"])[:100], str(text["since"])[:40])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _same_file(path: Path, handle: int) -> bool:
    try:
        there, ours = os.stat(path, follow_symlinks=False), os.fstat(handle)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def check_free(folder: Path, overwrite: bool) -> None:
    """Refuse a folder with a run in it, or with files that a run would write over."""
    found = layout.traces(folder)
    if not found:
        return
    if not _is_run(folder):
        raise NfdrlError(f"{str(folder)!r} holds {found[0]!r} but no run of nfdrl: name another folder")
    if not overwrite:
        raise NfdrlError(
            f"{str(folder)!r} holds a run: resume it (--resume {shlex.quote(str(folder))}, Run.resume), "
            "overwrite it (--overwrite, overwrite=True), or name another folder"
        )


def _is_run(folder: Path) -> bool:
    """Whether a folder's settings are those of a run, or it has a checkpoint."""
    try:
        config = read_json(folder / layout.CONFIG)
    except NfdrlError:
        config = {}
    return {"method", "env"} <= config.keys() or bool(layout.checkpoints(folder))


def check_no_links(run: Path) -> None:
    """Refuse a run whose files or folders are symbolic links: it does not write or delete outside its own folder."""
    found = layout.links(run)
    if found:
        raise NfdrlError(
            f"{str(run / found[0])!r} is a symbolic link, and a run writes nothing outside its own folder: "
            "move what it points to here"
        )
