"""Messages as JSON: packed and written, described by a JSON Schema, read back and checked."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from nfdrl.errors import NfdrlError
from nfdrl.viewer.report_schema import Packed
from nfdrl.viewer.schema import MESSAGES

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def pack(values: ArrayLike) -> Packed:
    """Numbers as base64 of little-endian float32; infinities and NaN stay, and what is too large becomes infinite.

    >>> pack([1.0, 2.0])
    'AACAPwAAAEA='
    """
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()


def unpack(packed: Packed) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The numbers that `pack` wrote."""
    return np.frombuffer(base64.b64decode(packed), dtype="<f4")


def to_text(message: Any) -> str:
    """A message as compact JSON."""
    return json.dumps(asdict(message), separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def schema() -> dict[str, Any]:
    """The JSON Schema of all messages."""
    known: dict[str, Any] = {}
    names = [_schema_of(kind, known) for kind in MESSAGES]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Message", "anyOf": names,
            "$defs": dict(sorted(known.items()))}  # fmt: skip


def _schema_of(kind: Any, known: dict[str, Any]) -> dict[str, Any]:
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if isinstance(kind, type) and is_dataclass(kind):
        if kind.__name__ not in known:
            known[kind.__name__] = {}  # a class may hold itself
            hints = get_type_hints(kind)
            known[kind.__name__] = {
                "description": kind.__doc__,
                "type": "object",
                "properties": {name: _schema_of(hint, known) for name, hint in hints.items()},
                "required": list(hints),
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{kind.__name__}"}
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": _schema_of(inner[0], known)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(inner[1], known)}
    assert origin in (Union, UnionType), kind
    return {"anyOf": [_schema_of(part, known) for part in inner]}


def read(kind: Any, value: Any, where: str = "") -> Any:
    """The message of this class that a JSON value describes; fields with a default may be missing."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise NfdrlError(f"{where or kind.__name__} must be an object, got {value!r:.60}")
        hints = get_type_hints(kind)
        needed = {field.name for field in fields(kind) if field.default is MISSING}
        if wrong := (set(value) - set(hints)) | (needed - set(value)):
            raise NfdrlError(
                f"{where or kind.__name__} must have {', '.join(hints)}; wrong: {', '.join(map(str, wrong))}"
            )
        return kind(**{name: read(hints[name], part, f"{where}.{name}") for name, part in value.items()})
    if origin is list and isinstance(value, list):
        return [read(inner[0], part, f"{where}[{k}]") for k, part in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {name: read(inner[1], part, f"{where}.{name}") for name, part in value.items()}
    if origin is Literal and value in inner:
        return value
    if origin in (Union, UnionType):
        return _read_one_of(inner, value, where)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind in PLAIN and type(value) is kind:
        return value
    raise NfdrlError(f"{where} must be {PLAIN.get(kind, kind)}, got {value!r:.60}")


def _read_one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    for kind in kinds:
        tagged = is_dataclass(kind) and isinstance(value, Mapping) and "kind" in value
        if tagged and value["kind"] != getattr(kind, "kind", None):
            continue
        try:
            return read(kind, value, where)
        except NfdrlError:
            if tagged:
                raise
    raise NfdrlError(f"{where} has a value that it cannot have: {value!r:.60}")


def main() -> None:
    """Print the JSON Schema."""
    print(json.dumps(schema(), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
