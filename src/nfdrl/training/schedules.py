"""Numbers that change over a run, as functions of the fraction that is done."""

from __future__ import annotations

import math
from typing import Literal

from nfdrl.errors import unknown_name

Decay = Literal["constant", "linear", "quadratic", "cosine"]
DECAYS: tuple[Decay, ...] = ("constant", "linear", "quadratic", "cosine")


def decay(kind: Decay, fraction: float) -> float:
    """The factor on a learning rate after `fraction` of the run: 1 at the start.

    >>> [decay("linear", f) for f in (0.0, 0.25, 1.0)]
    [1.0, 0.75, 0.0]
    """
    if kind == "constant":
        return 1.0
    if kind == "linear":
        return max(0.0, 1 - fraction)
    if kind == "quadratic":
        return max(0.0, 1 - fraction) ** 2
    if kind == "cosine":
        return 0.5 * (1 + math.cos(math.pi * min(1.0, fraction)))
    raise unknown_name("decay", kind, DECAYS)
