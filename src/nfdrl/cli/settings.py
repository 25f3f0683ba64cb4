"""Settings given as NAME=VALUE words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.words import read_value

if TYPE_CHECKING:
    from nfdrl.laws.base import Method
    from nfdrl.training.config import TrainConfig


def apply_settings(words: Sequence[str], method: Method, config: TrainConfig) -> tuple[Method, TrainConfig]:
    """The method and the training settings with the named fields changed."""
    settings: Any = method
    of_method = {field.name for field in fields(settings)} - {"comparison"}
    of_config = {field.name for field in fields(config)} - {"torso"}
    of_torso = {field.name for field in fields(config.torso)}
    changes: dict[str, dict[str, Any]] = {"method": {}, "config": {}, "torso": {}}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise NfdrlError(f"settings are written NAME=VALUE, got {word!r}")
        for owner, names in (("config", of_config), ("torso", of_torso), ("method", of_method)):
            if name in names:
                current = getattr({"config": config, "torso": config.torso, "method": method}[owner], name)
                changes[owner][name] = _value(name, text, current)
                break
        else:
            raise unknown_name("setting", name, sorted(of_config | of_torso | of_method))
    try:
        torso = replace(config.torso, **changes["torso"])
        return replace(settings, **changes["method"]), replace(config, torso=torso, **changes["config"])
    except (TypeError, OverflowError) as error:  # None where a number must be, a list where a width must be
        raise NfdrlError(f"{' '.join(words)}: {error}") from None


def _value(name: str, text: str, current: Any) -> Any:
    """Python's reading of the text, which must be of the kind that the setting has now."""
    if isinstance(current, str):
        return text
    try:
        value = read_value(text)
    except ValueError:
        raise NfdrlError(f"{name} cannot be {text!r}") from None
    if isinstance(current, tuple):
        value = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if isinstance(current, bool) or isinstance(value, bool):
        fits = isinstance(current, bool) and isinstance(value, bool)
    elif isinstance(current, int):
        fits = isinstance(value, int)
    else:
        fits = value is None or isinstance(value, (int, float, tuple))
    if not fits:
        raise NfdrlError(f"{name} is like {current!r}, it cannot be {text!r}")
    return value
