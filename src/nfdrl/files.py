"""Files that survive a crash: written whole, synced, and checked when they are read back."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from nfdrl.errors import NfdrlError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ODD = "backslashreplace"  # for the bytes of names that are not UTF-8; JSON reads them back as they were
CHUNK = 1 << 20
MAX_JSON = 64 << 20


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a file must be: its name, its size and the BLAKE2b of its bytes."""

    name: str
    bytes: int
    blake2b: str

    @classmethod
    def from_json(cls, value: Any) -> FileRecord:
        """The record that `asdict` wrote; its name must not point outside its folder."""
        name, size, digest = value["name"], value["bytes"], value["blake2b"]
        if not (isinstance(name, str) and isinstance(size, int) and isinstance(digest, str)):
            raise NfdrlError("each entry of a manifest must have a name, a number of bytes and a checksum")
        if Path(name).name != name or name in (".", "..", ""):
            raise NfdrlError(f"a manifest must name files in its own folder, got {name!r}")
        return cls(name, size, digest)


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> FileRecord:
    """Write and sync a new file; if that fails, nothing of it remains."""
    digest, size = hashlib.blake2b(digest_size=32), 0
    try:
        with path.open("xb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
                size += len(chunk)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return FileRecord(path.name, size, digest.hexdigest())


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content; readers see the old or the new, never a part. Folders and devices are left alone."""
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "it exists, and is not a file", str(path))
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fresh.unlink(missing_ok=True)
    write_file(fresh, [content])
    try:
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


class Appender:
    """A file that grows by whole pieces; those that cannot be written wait until they can be.

    A file that is empty begins with `header`. It is never written through a symbolic link.
    """

    def __init__(self, path: Path, header: bytes = b"") -> None:
        self.path, self.header = path, header
        self.waiting: list[bytes] = []
        self._whole: int | None = None  # the size to return to after a piece was half written

    def flush(self) -> None:
        """Write what is waiting; if that fails, the file stays as it was and the pieces go on waiting."""
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            if self._whole is not None:
                os.ftruncate(handle, self._whole)
            self._whole = os.fstat(handle).st_size
            rest = memoryview(b"".join(self.waiting if self._whole else [self.header, *self.waiting]))
            try:
                while rest:
                    rest = rest[os.write(handle, rest) :]
            except OSError:
                os.ftruncate(handle, self._whole)
                raise
        finally:
            os.close(handle)
        self._whole = None
        self.waiting.clear()


def check_writable(folder: Path) -> None:
    """Make `folder`; refuse one that cannot be written to before any time is spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise NfdrlError(f"cannot write to {str(folder)!r}: {error.strerror or error}") from None


def check_file_name(path: Path) -> None:
    """Refuse a file that could not be made, before any time is spent; no folder is made for it yet."""
    inside = next(folder for folder in path.absolute().parents if folder.exists())
    try:
        with TemporaryFile(dir=inside):
            path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise NfdrlError(f"cannot write {str(path)!r:.200}: {error.strerror or error}") from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_size(folder: Path, record: FileRecord) -> Path:
    """The path of a file that exists and has the right size; its content is not read."""
    path = folder / record.name
    if not path.is_file():
        raise NfdrlError(f"{path} is missing")
    found = path.stat().st_size
    if found != record.bytes:
        raise NfdrlError(f"{path} is damaged: it has {found:,} bytes, the manifest says {record.bytes:,}")
    return path


def check_file(folder: Path, record: FileRecord) -> Path:
    """The path of a file that has the right size and checksum."""
    path, digest = check_size(folder, record), hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    _compare(path, digest.hexdigest(), record)
    return path


def read_file(folder: Path, record: FileRecord) -> bytes:
    """The bytes of a file, checked before they are interpreted."""
    path = check_size(folder, record)
    content = path.read_bytes()
    _compare(path, hashlib.blake2b(content, digest_size=32).hexdigest(), record)
    return content


def _compare(path: Path, found: str, record: FileRecord) -> None:
    if found != record.blake2b:
        raise NfdrlError(f"{path} is damaged: its checksum is not that of the manifest")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object to a JSON file, replacing what was there."""
    replace_file(path, to_json(content))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; one that is too large is not read."""
    try:
        _check_length(path.stat().st_size, path)
        return from_json(path.read_bytes(), path)
    except OSError as error:
        raise NfdrlError(f"{path} cannot be read: {error.strerror or error}") from None


def to_json(content: Mapping[str, Any]) -> bytes:
    """JSON without NaN, with a final newline."""
    return (json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode(errors=ODD)


def from_json(content: bytes, path: Path) -> dict[str, Any]:
    """The object that the content of a JSON file describes."""
    _check_length(len(content), path)
    try:
        value = json.loads(content.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise NfdrlError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise NfdrlError(f"{path} does not hold a JSON object")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file; one that is too large is not read."""
    try:
        _check_length(path.stat().st_size, path)
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise NfdrlError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, NfdrlError):
            raise
        raise NfdrlError(f"{path} is not valid TOML: {' '.join(str(error).split())[:200]}") from None


def to_toml(content: Mapping[str, Any], comment: str = "") -> bytes:
    """TOML that `read_toml` reads: values first, then a table per mapping, after a comment.

    >>> print(to_toml({"steps": 1000, "set": {"torso.mlp": [64, 64]}}).decode(), end="")
    steps = 1000
    <BLANKLINE>
    [set]
    "torso.mlp" = [64, 64]
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    tables = {name: value for name, value in content.items() if isinstance(value, Mapping)}
    lines += [f"{_toml_key(name)} = {_toml(value)}" for name, value in content.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{_toml_key(name)}]", *(f"{_toml_key(key)} = {_toml(value)}" for key, value in table.items())]
    return ("\n".join(lines) + "\n").encode()


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)


@contextmanager
def describing(what: str, path: Path) -> Iterator[None]:
    """Blame the file for whatever Python, Gymnasium or PyTorch raise on values read from it."""
    try:
        yield
    except NfdrlError:
        raise
    except MemoryError:
        raise NfdrlError(f"{path} describes {what} that does not fit into memory") from None
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError, csv.Error) as error:
        raise NfdrlError(f"{path} does not describe {what}: {' '.join(repr(error).split())[:300]}") from None


def _check_length(size: int, path: Path) -> None:
    if size > MAX_JSON:
        raise NfdrlError(f"{path} has {size:,} bytes: too many for a settings file")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The object with a checksum of itself."""
    return {**content, "checksum": _seal(content)}


def unsealed(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The object without its checksum, which must match."""
    inner = {name: value for name, value in content.items() if name != "checksum"}
    if content.get("checksum") != _seal(inner):
        raise NfdrlError(f"{path} is damaged: its checksum does not match its content")
    return inner


def _seal(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
