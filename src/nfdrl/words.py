"""Names with settings as people write them on a command line: `FrozenLake-v1[map_name=8x8]`."""

from __future__ import annotations

import ast
import re
from typing import Any

from nfdrl.errors import NfdrlError

WORD = re.compile(r"^(?P<name>[^\[\]]+?)(?:\[(?P<settings>[^\[\]]*)\])?$")
CONSTANTS = {"true": True, "false": False, "none": None}


def read_word(word: str) -> tuple[str, dict[str, Any]]:
    """A name and its settings.

    >>> read_word("FrozenLake-v1[map_name=8x8,is_slippery=false]")
    ('FrozenLake-v1', {'map_name': '8x8', 'is_slippery': False})
    """
    found = WORD.match(word)
    if found is None:
        raise NfdrlError(f"{word!r} is not written NAME or NAME[SETTING=VALUE,...]")
    settings: dict[str, Any] = {}
    for part in filter(str.strip, (found["settings"] or "").split(",")):
        key, _, text = (piece.strip() for piece in part.partition("="))
        if not key or not text:
            raise NfdrlError(f"settings are written NAME=VALUE, got {part.strip()!r} in {word!r}")
        try:
            settings[key] = read_value(text)
        except ValueError:
            settings[key] = text
    return found["name"].strip(), settings


def read_value(text: str) -> Any:
    """Python's reading of a text, true, false and none in any case; `ValueError` where it is no literal.

    >>> read_value("0.5"), read_value("false"), read_value("(8, 8)")
    (0.5, False, (8, 8))
    """
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from None
