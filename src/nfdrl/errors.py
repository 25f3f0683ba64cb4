"""Errors a user can act on, and the checks that raise them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import fields
from numbers import Integral
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


MOST = 2**31 - 1  # of anything that is counted: no array is longer
MOST_STEPS = 2**62  # of a run
MOST_EPISODES = 10**8  # of an evaluation


class NfdrlError(ValueError):
    """A mistake that the user can correct, explained in one line; the command line prints it and exits with 2."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> NfdrlError:
    """An error for a name that is not in `known`, with the nearest one suggested.

    >>> str(unknown_name("method", "qrdqn", ["c51", "qr-dqn"]))
    "unknown method 'qrdqn': did you mean 'qr-dqn'? (known: c51, qr-dqn)"
    """
    return NfdrlError(f"unknown {kind} {name!r:.100}: {suggestion(name, known)}")


def suggestion(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names, if one is near, and all of them."""
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    listed = f"known: {', '.join(choices)}"
    return f"did you mean {near[0]!r}? ({listed})" if near else listed


def check_at_least(least: int, **values: float) -> None:
    """Refuse a number below `least`.

    >>> check_at_least(1, samples=0)
    Traceback (most recent call last):
        ...
    nfdrl.errors.NfdrlError: samples must be at least 1, got 0
    """
    for name, value in values.items():
        if value < least:
            raise NfdrlError(f"{name} must be at least {least}, got {value}")


def check_at_most(most: int, **values: int) -> None:
    """Refuse a number above `most`.

    >>> check_at_most(1000, frame_stack=2000)
    Traceback (most recent call last):
        ...
    nfdrl.errors.NfdrlError: frame_stack must be at most 1,000, got 2,000
    """
    for name, value in values.items():
        if value > most:
            raise NfdrlError(f"{name} must be at most {most:,}, got {value:,}")


def check_numbers(settings: Any, kind: type | None = None) -> None:
    """Refuse a count below 1 or above `MOST` and a number that is not finite; with `kind`, among the fields of that."""
    for field in fields(kind or settings):
        name, value = field.name, getattr(settings, field.name)
        if field.type in (int, "int"):
            check_at_least(1, **{name: value})
        if type(value) is int:  # also where it may be None
            check_at_most(MOST, **{name: value})
        if type(value) is float and not math.isfinite(value):
            raise NfdrlError(f"{name} must be finite, got {value}")


def check_seed(seed: object) -> None:
    """Refuse a seed that some generator cannot take."""
    if not isinstance(seed, Integral) or not 0 <= int(seed) < 1 << 32:
        raise NfdrlError(f"seed must be a whole number from 0 to 4,294,967,295, got {seed!r:.50}")


def whole(name: str, value: float | str) -> int:
    """A number of things, also written as 1e5 or 100_000.

    >>> whole("steps", 1e5), whole("steps", "1e5"), whole("steps", "10_000")
    (100000, 100000, 10000)
    >>> whole("steps", 0.5)
    Traceback (most recent call last):
        ...
    nfdrl.errors.NfdrlError: steps must be a whole number, got 0.5
    """
    try:
        found = int(value) if isinstance(value, int) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if isinstance(value, bool) or not math.isfinite(found) or found != int(found):
        raise NfdrlError(f"{name} must be a whole number, got {value}")
    return int(found)


def check_open_unit(name: str, value: Tensor) -> None:
    """Refuse a probability level outside (0, 1)."""
    _check(name, value, (value > 0) & (value < 1), "lie strictly between 0 and 1")


def check_discount(value: Tensor) -> None:
    """Refuse a discount outside [0, 1]."""
    low, high = value.aminmax()
    if not (low.item() >= 0 and high.item() <= 1):  # NaN is neither
        _check("discount", value, (value >= 0) & (value <= 1), "lie in [0, 1]")


def check_finite(name: str, value: Tensor) -> None:
    """Refuse NaN and infinity."""
    _check(name, value, value.isfinite(), "be finite")


def check_positive(name: str, value: Tensor) -> None:
    """Refuse zero and negative numbers."""
    _check(name, value, value > 0, "be positive")


def _check(name: str, value: Tensor, good: Tensor, rule: str) -> None:
    if not bool(good.all()):
        raise NfdrlError(f"{name} must {rule}, got {float(value.detach()[~good].flatten()[0])}")
