"""Observations of several parts: Dict and Tuple spaces as records of an array, and as one tensor per part.

A part is named by its keys or places, joined by dots: `camera`, `0`, `robot.speed`. Arrays of observations have a field
per part, so that they are indexed, copied and stored like any others; each part keeps its own dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdrl.errors import NfdrlError

Array = NDArray[Any]
Observation = Tensor | dict[str, Tensor]  # what a torso takes: a tensor (B, ...), or one per part
WHOLE = "observation"  # the name of an observation that has no parts
LEAVES = (
    gymnasium.spaces.Box,
    gymnasium.spaces.Discrete,
    gymnasium.spaces.MultiDiscrete,
    gymnasium.spaces.MultiBinary,
)


def has_parts(space: gymnasium.Space[Any]) -> bool:
    """Whether observations are dicts or tuples."""
    return isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple)


def parts_of(space: gymnasium.Space[Any]) -> dict[str, gymnasium.Space[Any]]:
    """The spaces of all parts by name, inner ones included; a space without parts is its only one.

    >>> from gymnasium.spaces import Box, Dict, Discrete, Tuple
    >>> [*parts_of(Dict({"camera": Box(0, 255, (8, 8), np.uint8), "robot": Tuple([Discrete(3), Box(-1, 1, (2,))])}))]
    ['camera', 'robot.0', 'robot.1']
    """
    if not has_parts(space):
        return {WHOLE: space}
    found = [(".".join(path), part) for path, part in _leaves(space)]
    parts = dict(found)
    if not found or len(parts) < len(found) or "" in parts:
        raise NfdrlError(f"the parts of an observation must have different names, got {[name for name, _ in found]}")
    return parts


def _leaves(space: gymnasium.Space[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not has_parts(space):
        yield path, space
    else:
        for key, inner in _items(space, space.spaces):  # type: ignore[attr-defined]
            yield from _leaves(inner, (*path, str(key)))


def _items(space: gymnasium.Space[Any], value: Any) -> list[tuple[Any, Any]]:
    """The entries of a dict or a tuple, in the order of the space."""
    if isinstance(space, gymnasium.spaces.Dict):
        return [(key, value[key]) for key in space.spaces]
    return list(enumerate(value))


def checked(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """The space, if observations of it can be learned from."""
    for part in parts_of(space).values():
        if not isinstance(part, LEAVES):
            raise NfdrlError(
                f"observations of type {type(part).__name__} are not supported: turn them into a Box, Discrete, "
                "MultiDiscrete or MultiBinary, alone or in a Dict or Tuple, by gymnasium.wrappers.TransformObservation"
            )
    return space


def storage_dtype(space: gymnasium.Space[Any]) -> np.dtype[Any]:
    """The dtype in which observations are kept: small integers as they are, floats in single precision.

    For a space with parts, a record of them.
    """
    if has_parts(space):
        parts = parts_of(space).items()
        return np.dtype([(name, storage_dtype(part), row_shape(part)) for name, part in parts])
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        return np.dtype(np.float32)
    # PyTorch has no unsigned integers beyond one byte.
    return dtype if dtype in (np.bool_, np.uint8, np.int8, np.int16, np.int32) else np.dtype(np.int64)


def row_shape(space: gymnasium.Space[Any]) -> tuple[int, ...]:
    """The shape of an observation in an array of them; a record has none."""
    if has_parts(space):
        return ()
    assert space.shape is not None
    return tuple(space.shape)


def entry(space: gymnasium.Space[Any], observation: Any) -> Any:
    """An observation as it is assigned to an entry of an array."""
    return tuple(flat(space, observation)) if has_parts(space) else observation


def flat(space: gymnasium.Space[Any], value: Any) -> Iterator[Any]:
    """The parts of an observation, in their order."""
    if not has_parts(space):
        yield value
    else:
        for (_, inner), (_, part) in zip(_items(space, space.spaces), _items(space, value), strict=True):  # type: ignore[attr-defined]
            yield from flat(inner, part)


def stack(space: gymnasium.Space[Any], observations: Sequence[Any]) -> Array:
    """Single observations as an array of them."""
    if not has_parts(space):
        return np.stack(observations)
    return np.array([entry(space, observation) for observation in observations], storage_dtype(space))


def rows(space: gymnasium.Space[Any], batch: Any) -> Array:
    """A batch as an array of observations: of a dict or tuple of arrays, a record per row."""
    if not has_parts(space) or (isinstance(batch, np.ndarray) and batch.dtype.names is not None):
        return np.asarray(batch)
    columns = [np.asarray(column) for column in flat(space, batch)]
    records = np.zeros(len(columns[0]), storage_dtype(space))
    for name, column in zip(parts_of(space), columns, strict=True):
        records[name] = column
    return records


def as_rows(space: gymnasium.Space[Any], observation: Any) -> tuple[Array, bool]:
    """Observations in the dtype in which they are kept, and whether it was a single one without a batch axis."""
    dtype = storage_dtype(space)
    if has_parts(space):
        if isinstance(observation, np.ndarray) and observation.dtype == dtype:
            return np.atleast_1d(observation), observation.ndim == 0
        return _record_rows(space, observation, dtype)
    array, shape = np.asarray(observation), row_shape(space)
    single = array.shape == shape
    if not single and array.shape[1:] != shape:
        raise NfdrlError(f"observations must have shape {shape} or (B, …), got {array.shape}")
    return _cast(space, array[None] if single else array, dtype), single


def _cast(space: gymnasium.Space[Any], array: Array, dtype: np.dtype[Any]) -> Array:
    """The same in another dtype; what cannot be an observation is refused."""
    try:
        rows = np.ascontiguousarray(array, dtype=dtype)
    except (TypeError, ValueError):
        raise NfdrlError(f"observations must be numbers, got {array.item(0)!r:.50}") from None
    if isinstance(space, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
        count = space.n if isinstance(space, gymnasium.spaces.Discrete) else space.nvec
        strange = (rows != array) | (rows < space.start) | (rows >= space.start + count)
        if strange.any():
            raise NfdrlError(f"observations must lie in {space}, got {np.atleast_1d(array)[strange].item(0)}")
    return rows


def _record_rows(space: gymnasium.Space[Any], observation: Any, dtype: np.dtype[Any]) -> tuple[Array, bool]:
    names = [*parts_of(space)]
    try:
        columns = [np.asarray(column) for column in flat(space, observation)]
    except (KeyError, TypeError, ValueError, IndexError):
        raise NfdrlError(f"observations must have the parts {names} of {space}") from None
    shapes = [dtype[name].shape for name in names]
    single = all(column.shape == shape for column, shape in zip(columns, shapes, strict=True))
    lengths = {1} if single else {column.shape[:1] for column in columns}
    fits = all(column.shape[1:] == shape for column, shape in zip(columns, shapes, strict=True))
    if not single and (not fits or len(lengths) != 1):
        found = {name: column.shape for name, column in zip(names, columns, strict=True)}
        wanted = dict(zip(names, shapes, strict=True))
        raise NfdrlError(f"the parts of observations must have shapes {wanted}, alone or with B rows each, got {found}")
    records = np.zeros(1 if single else len(columns[0]), dtype)
    for (name, part), column in zip(parts_of(space).items(), columns, strict=True):
        records[name] = _cast(part, column, dtype[name].base)
    return records, single


def as_tensors(array: Array, device: torch.device | None = None) -> Observation:
    """An array of observations as a tensor, or as one per part."""
    if array.dtype.names is None:
        whole = torch.from_numpy(array)
        return whole if device is None else whole.to(device)
    parts = {name: torch.from_numpy(array[name].copy()) for name in array.dtype.names}
    return parts if device is None else {name: part.to(device) for name, part in parts.items()}


def zeros(space: gymnasium.Space[Any], count: int, device: torch.device | None = None) -> Observation:
    """As many observations of zeros."""
    return as_tensors(np.zeros((count, *row_shape(space)), storage_dtype(space)), device)
