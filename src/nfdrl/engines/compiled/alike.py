"""Rows of a batch that are equal, as those of one state of a table are: what they share is computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from nfdrl.engines.compiled.jit import Array

Members = tuple[Array, Array]  # rows in the order of their groups, and where in it each group begins; (B,), (G + 1,)


@final
@dataclass(frozen=True)
class Alike:
    """Groups of equal rows: the `first` row of each, and the `group` of every row; (G,), (B,)."""

    first: Array
    group: Array

    def members(self) -> Members:
        """The rows of each group."""
        counts = np.bincount(self.group, minlength=len(self.first))
        return np.argsort(self.group, kind="stable"), np.concatenate([[0], counts.cumsum()])


def rows_alike(rows: Array) -> Alike:
    """The groups of rows whose bits are equal; float32 of shape (B, F)."""
    if len(rows) == 1:
        return Alike(alone(1)[0], alone(1)[0])
    bits = np.ascontiguousarray(rows).view(np.uint32)
    _, first, group = np.unique(bits @ _factors(rows.shape[1]), return_index=True, return_inverse=True)
    if not np.array_equal(bits[first][group], bits):  # different rows with one key, once in 2⁶⁴ pairs
        first = group = alone(len(rows))[0]
    return Alike(first, group)


@lru_cache(maxsize=16)
def _factors(width: int) -> Array:
    """Odd numbers of 64 bits, by which the words of a row are multiplied."""
    return np.random.default_rng(0).integers(2**63, size=width, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


@lru_cache(maxsize=16)
def alone(count: int) -> Members:
    """Every row in a group of its own."""
    return np.arange(count), np.arange(count + 1)
