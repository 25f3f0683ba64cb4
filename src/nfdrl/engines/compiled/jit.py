"""How functions are compiled.

Numba recompiles what it keeps on disk only when the file of the function itself changes, so a compiled function and
all that is inlined into it live in one file. And where one compiled function calls another, code just compiled may
differ in the last bit from the same code read back from disk, so none does.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

import_module("scipy.linalg.cython_blas")  # what Numba multiplies matrices with: loaded now, `threads` can limit it

Array = NDArray[Any]
F = np.float32

Function = TypeVar("Function", bound=Callable[..., Any])
# Products may be contracted and divisions turned into products; NaN and infinity keep their meaning.
RULES = {"contract", "nsz", "arcp"}


def compiled(function: Function) -> Function:
    """Compile at the first call, and keep the result on disk for the next process."""
    return cast(Function, njit(cache=True, error_model="numpy", fastmath=RULES)(function))


def compiled_sums(function: Function) -> Function:
    """The same for a function whose sums may be taken in any order, so that they vectorise."""
    return cast(Function, njit(cache=True, error_model="numpy", fastmath=RULES | {"reassoc"})(function))


def inlined(function: Function) -> Function:
    """Make it part of every compiled function that calls it."""
    return cast(Function, njit(inline="always")(function))


ZERO, HALF, ONE, TWO = F(0), F(0.5), F(1), F(2)
