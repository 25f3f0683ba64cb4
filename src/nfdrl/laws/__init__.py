"""Return laws, one file per representation, and the methods that learn them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.laws.anchored import AnchoredMethod
from nfdrl.laws.base import Law, Method
from nfdrl.laws.categorical import C51
from nfdrl.laws.dirac import DQN
from nfdrl.laws.expectile import ERDQN
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.fraction import FQF
from nfdrl.laws.implicit import IQN
from nfdrl.laws.monotone import UMDQN
from nfdrl.laws.quantile import QRDQN
from nfdrl.losses.exact import Exact
from nfdrl.losses.surrogate import Surrogate
from nfdrl.settings import changed, from_plain, split_word, to_plain

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        DQN(),
        C51(),
        QRDQN(),
        IQN(),
        FQF(),
        ERDQN(),
        UMDQN(),
        AnchoredMethod(),
        FlowMethod(Surrogate()),
        FlowMethod(Exact()),
    )
}

__all__ = ["METHODS", "Law", "Method", "find_method", "method_config", "method_from"]


RETIRED = {"held": 0.0}  # settings of earlier files, and the value at which they did nothing


def find_method(word: str, adapt: Callable[[Method], Method] | None = None) -> Method:
    """The method that a word names, passed through `adapt` if given, then with the settings in the word's brackets.

    `package.module:NAME` is a method of your own, which is imported.

    >>> find_method("c51[atoms=13,v_min=0]")
    C51(atoms=13, v_min=0.0, v_max=10.0)
    """
    name, texts = split_word(word)
    method = _imported(name) if ":" in name else METHODS.get(name)
    if method is None:
        raise unknown_name("method", name, METHODS)
    return changed(method if adapt is None else adapt(method), texts, name)


def _imported(name: str) -> Method:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        said = " ".join(str(error).split())[:200]
        raise NfdrlError(f"method {name!r:.80} cannot be imported: {type(error).__name__}: {said}") from None
    if not isinstance(found, Method):
        raise NfdrlError(f"{name!r} must be an instance of nfdrl.laws.Method, got {type(found).__name__}")
    return found


def method_config(method: Method) -> dict[str, Any]:
    """A method as JSON: its name, its class and its settings."""
    return {"name": method.name, "class": _class(method), "settings": to_plain(method)}


def method_from(config: Any, given: Method | None = None) -> Method:
    """The method that `method_config` wrote. Nothing is imported: one that is not in METHODS must be `given`."""
    if not isinstance(config, Mapping) or "name" not in config or "settings" not in config:
        raise NfdrlError(f"a saved method must have a name and settings, got {config!r:.80}")
    name, saved = str(config["name"]), config.get("class")
    known = METHODS.get(name) if saved is None else next((m for m in METHODS.values() if _class(m) == saved), None)
    found = known or given
    if found is None:
        raise NfdrlError(
            f"the saved method {name!r} ({saved}) is not part of nfdrl: "
            "pass it as `method`, or on a command line as --method package.module:NAME"
        )
    wanted = _class(found) if saved is None else saved
    if given is not None and _class(given) != wanted:
        raise NfdrlError(f"the saved method {name!r} has class {wanted}, the one given has {_class(given)}")
    return from_plain(type(found), _without_retired(config["settings"], name), name)


def _without_retired(settings: Any, name: str) -> Any:
    """Saved settings without those that no longer exist, which must have been off."""
    if not isinstance(settings, Mapping):
        return settings
    for setting, off in RETIRED.items():
        if settings.get(setting, off) != off:
            raise NfdrlError(f"the saved method {name!r} has {setting}={settings[setting]!r}, which no longer exists")
    return {setting: value for setting, value in settings.items() if setting not in RETIRED}


def _class(method: Method) -> str:
    return f"{type(method).__module__}:{type(method).__qualname__}"
