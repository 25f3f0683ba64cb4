"""Files that survive a crash: written whole, synced, and read back only if they are what was written."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from nfdrl.errors import NfdrlError

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
        """The record that `asdict` wrote; the name must not leave its folder."""
        name, size, digest = value["name"], value["bytes"], value["blake2b"]
        if not (isinstance(name, str) and isinstance(size, int) and isinstance(digest, str)):
            raise NfdrlError("a manifest's entry must have a name, a number of bytes and a checksum")
        if Path(name).name != name or name in (".", "..", ""):
            raise NfdrlError(f"a manifest names the file {name!r}, which is not one of its folder")
        return cls(name, size, digest)


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> FileRecord:
    """Write and sync a new file; where that fails, nothing of it stays."""
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
    """Put new content in place of a file's: a reader finds the old or the new, never a part."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fresh.unlink(missing_ok=True)
    write_file(fresh, [content])
    fresh.replace(path)
    sync_folder(path.parent)


def check_writable(folder: Path) -> None:
    """Make `folder`, or refuse before minutes are spent on what cannot be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise NfdrlError(f"cannot write to {str(folder)!r}: {error.strerror or error}") from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_size(folder: Path, record: FileRecord) -> Path:
    """The path of a file that is there and has the size it should; nothing is read."""
    path = folder / record.name
    if not path.is_file():
        raise NfdrlError(f"{path} is missing")
    found = path.stat().st_size
    if found != record.bytes:
        raise NfdrlError(f"{path} is damaged: it has {found:,} bytes, the manifest says {record.bytes:,}")
    return path


def check_file(folder: Path, record: FileRecord) -> Path:
    """The path of a file whose bytes have the size and the checksum they should."""
    path, digest = check_size(folder, record), hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    _compare(path, digest.hexdigest(), record)
    return path


def read_file(folder: Path, record: FileRecord) -> bytes:
    """The bytes of a file, checked before anyone interprets them."""
    path = check_size(folder, record)
    content = path.read_bytes()
    _compare(path, hashlib.blake2b(content, digest_size=32).hexdigest(), record)
    return content


def _compare(path: Path, found: str, record: FileRecord) -> None:
    if found != record.blake2b:
        raise NfdrlError(f"{path} is damaged: its checksum is not the manifest's")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Put an object into a JSON file, in place of what was there."""
    replace_file(path, to_json(content))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, which is not read where it is too large."""
    try:
        _check_length(path.stat().st_size, path)
        return from_json(path.read_bytes(), path)
    except OSError as error:
        raise NfdrlError(f"{path} cannot be read: {error.strerror or error}") from None


def to_json(content: Mapping[str, Any]) -> bytes:
    """JSON without NaN, with a final newline."""
    return (json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def from_json(content: bytes, path: Path) -> dict[str, Any]:
    """The object in the content of a JSON file."""
    _check_length(len(content), path)
    try:
        value = json.loads(content.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise NfdrlError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise NfdrlError(f"{path} does not hold a JSON object")
    return value


def _check_length(size: int, path: Path) -> None:
    if size > MAX_JSON:
        raise NfdrlError(f"{path} has {size:,} bytes: too many for a settings file")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The same object with a checksum of itself."""
    return {**content, "checksum": _seal(content)}


def unsealed(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The object without its checksum, which must fit."""
    inner = {name: value for name, value in content.items() if name != "checksum"}
    if content.get("checksum") != _seal(inner):
        raise NfdrlError(f"{path} is damaged: its checksum does not fit its content")
    return inner


def _seal(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
