"""Errors a user can act on, and the checks that raise them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class NfdrlError(ValueError):
    """Bad input, said in one line; the command line prints it and exits 2."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> NfdrlError:
    """An error for a name that is not in `known`, with the nearest one suggested.

    >>> str(unknown_name("method", "qrdqn", ["c51", "qr-dqn"]))
    "unknown method 'qrdqn': did you mean 'qr-dqn'? (known: c51, qr-dqn)"
    """
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = f"(known: {', '.join(choices)})" if hint else f"known: {', '.join(choices)}"
    return NfdrlError(f"unknown {kind} {name!r}: {hint}{listed}")


def check_open_unit(name: str, value: Tensor) -> None:
    """Refuse a probability level outside (0, 1)."""
    inside = (value > 0) & (value < 1)
    if not bool(inside.all()):
        raise NfdrlError(f"{name} must lie strictly between 0 and 1, got {_first(value, ~inside)}")


def check_discount(value: Tensor) -> None:
    """Refuse a discount outside [0, 1]."""
    low, high = value.aminmax()
    if not (low.item() >= 0 and high.item() <= 1):  # NaN is neither
        raise NfdrlError(f"discount must lie in [0, 1], got {_first(value, ~((value >= 0) & (value <= 1)))}")


def check_finite(name: str, value: Tensor) -> None:
    """Refuse NaN and infinity."""
    finite = value.isfinite()
    if not bool(finite.all()):
        raise NfdrlError(f"{name} must be finite, got {_first(value, ~finite)}")


def check_positive(name: str, value: Tensor) -> None:
    """Refuse zero and negative numbers."""
    positive = value > 0
    if not bool(positive.all()):
        raise NfdrlError(f"{name} must be positive, got {_first(value, ~positive)}")


def _first(value: Tensor, bad: Tensor) -> float:
    return float(value.detach()[bad].flatten()[0])
