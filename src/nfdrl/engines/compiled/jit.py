"""How functions are compiled.

What Numba keeps on disk is made anew only when the file of the function itself changes: a compiled function and all
that is inlined into it stand in one file. And what was just compiled may differ in the last bit from what is read back
where one compiled function calls another: none does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]
F = np.float32

Function = TypeVar("Function", bound=Callable[..., Any])
# Products may be contracted and divisions become products; NaN and infinity keep their meaning.
RULES = {"contract", "nsz", "arcp"}


def compiled(function: Function) -> Function:
    """Compiled at its first call, and kept on disk for the next process."""
    return cast(Function, njit(cache=True, error_model="numpy", fastmath=RULES)(function))


def compiled_sums(function: Function) -> Function:
    """The same for a function whose sums may be taken in any order, so that they vectorise."""
    return cast(Function, njit(cache=True, error_model="numpy", fastmath=RULES | {"reassoc"})(function))


def inlined(function: Function) -> Function:
    """Part of whatever compiled function calls it."""
    return cast(Function, njit(inline="always")(function))


ZERO, HALF, ONE, TWO = F(0), F(0.5), F(1), F(2)
