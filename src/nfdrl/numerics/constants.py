"""Tensors that depend only on numbers: made once, but made afresh while PyTorch traces a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def constant(function: Callable[P, T]) -> Callable[P, T]:
    """Keep what `function` returns for each set of arguments.

    `torch.export` and `torch.compile` call with stand-ins for tensors, which must not be kept.
    """
    kept = lru_cache(maxsize=64)(function)

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        return (function if torch.compiler.is_compiling() else kept)(*args, **named)  # type: ignore[arg-type]

    return call
