"""An environment as JSON: its registered id, its arguments and its wrappers; and back, without importing anything.

A saved entry point is compared and never followed: the environment is the one that the id is registered for here, and a
wrapper must be Gymnasium's own or a class that the program has imported already.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from nfdrl.envs.layers import AnyEnv
from nfdrl.errors import NfdrlError

WRAPPERS = "gymnasium.wrappers"
WRITES = ("RecordVideo",)  # wrappers that write files


class CannotBeSavedError(Exception):
    """Why an environment cannot be made again from JSON."""


def described(env: AnyEnv) -> dict[str, Any]:
    """All that is needed to make the environment again; raises `CannotBeSavedError` if something is not recorded."""
    spec = env.unwrapped.spec
    if spec is None:
        raise CannotBeSavedError("it is not registered with Gymnasium")
    registered = gymnasium.registry.get(spec.id)
    if registered is None or _named(registered.entry_point) != _named(spec.entry_point):
        raise CannotBeSavedError(f"its id {spec.id!r} is not registered for it")
    if isinstance(env, VectorEnv):
        _check_vector(env, spec)
    return {
        "id": spec.id,
        "entry_point": _named(spec.entry_point),
        "vector": isinstance(env, VectorEnv),
        "max_episode_steps": spec.max_episode_steps,
        "kwargs": to_saved(spec.kwargs, "an argument"),
        "wrappers": [_wrapper(layer) for layer in _wrappers(env)],
    }


def rebuilt(saved: Mapping[str, Any], find: Callable[[str], EnvSpec]) -> AnyEnv:
    """The environment that `described` wrote; `find` knows the registered spec of an id."""
    name = str(saved["id"])
    if ":" in name:
        raise NfdrlError(f"the saved environment {name!r} would import a module: pass env= if you trust it")
    spec = copy.deepcopy(find(name))
    if _named(spec.entry_point) != saved["entry_point"]:
        raise NfdrlError(f"{name!r} is now registered for another environment than when it was saved: pass env=")
    spec.kwargs, spec.max_episode_steps = dict(from_saved(saved["kwargs"])), saved["max_episode_steps"]
    classes = [_wrapper_class(str(one["entry_point"])) for one in saved["wrappers"]]
    kwargs = [dict(from_saved(one["kwargs"])) for one in saved["wrappers"]]
    try:
        return gymnasium.make_vec(spec) if saved["vector"] else _wrapped(spec, classes, kwargs)
    except gymnasium.error.DependencyNotInstalled:
        raise
    except Exception as error:  # whatever a constructor raises for arguments that it does not take here
        raise NfdrlError(f"the saved environment {name!r} cannot be made again ({error}): pass env=") from None


def _wrapped(spec: EnvSpec, classes: list[Any], kwargs: list[dict[str, Any]]) -> AnyEnv:
    """The bare environment, whose entry point may have wrapped it already, in all its wrappers, from the inside."""
    spec.max_episode_steps, spec.order_enforce, spec.additional_wrappers = None, False, ()
    env: AnyEnv = gymnasium.make(spec, disable_env_checker=True)
    inner = [type(layer) for layer in _wrappers(env)]
    if classes[: len(inner)] != inner:
        raise NfdrlError(f"it now has other wrappers: {', '.join(kind.__name__ for kind in inner)}")
    for kind, arguments in list(zip(classes, kwargs, strict=True))[len(inner) :]:
        env = kind(env, **arguments)
    return env


def _wrappers(env: AnyEnv) -> list[Any]:
    """The wrappers of a single environment, from the inside; Gymnasium's checker changes nothing and does not count."""
    found, layer = [], env
    while isinstance(layer, gymnasium.Wrapper):
        found.append(layer)
        layer = layer.env
    return [layer for layer in reversed(found) if not isinstance(layer, gymnasium.wrappers.PassiveEnvChecker)]


def _check_vector(env: VectorEnv[Any, Any, Any], spec: EnvSpec) -> None:
    if isinstance(env, VectorWrapper):
        raise CannotBeSavedError(f"Gymnasium does not record the vector wrapper {type(env).__name__}")
    if "vectorization_mode" not in spec.kwargs:
        raise CannotBeSavedError("it was not made by gymnasium.make_vec")
    if "wrappers" in spec.kwargs:
        raise CannotBeSavedError("wrappers of gymnasium.make_vec are functions")


def _wrapper(layer: Any) -> dict[str, Any]:
    """A wrapper by its name and arguments: it must have recorded all that its constructor takes."""
    kind = type(layer)
    recorded = dict(layer._saved_kwargs) if isinstance(layer, RecordConstructorArgs) else None
    foreign = kind.__module__.partition(".")[0] != "gymnasium"
    takes = set(inspect.signature(kind).parameters) - {"env"} if foreign else set()
    known = vars(sys.modules[kind.__module__]).get(kind.__name__) is kind
    if recorded is None or not known or not takes <= set(recorded):
        raise CannotBeSavedError(f"the wrapper {kind.__name__} does not record its arguments")
    if kind.__name__ in WRITES:
        raise CannotBeSavedError(f"the wrapper {kind.__name__} writes files")
    recorded.pop("env", None)
    kwargs = {name: to_saved(value, f"{name} of {kind.__name__}") for name, value in recorded.items()}
    return {"entry_point": f"{kind.__module__}:{kind.__name__}", "kwargs": {"dict": kwargs}}


def _wrapper_class(entry_point: str) -> Any:
    """The class of wrappers, which must be there already."""
    module, _, name = entry_point.partition(":")
    ours = module == WRAPPERS or module.startswith(f"{WRAPPERS}.")
    try:
        home = import_module(module) if ours else sys.modules.get(module)
    except ImportError:
        home = None
    found = vars(home).get(name) if home is not None else None
    if not (isinstance(found, type) and issubclass(found, gymnasium.Wrapper)) or name in WRITES:
        raise NfdrlError(f"the saved environment has a wrapper {entry_point!r} that is not imported here: pass env=")
    return found


def _named(entry_point: Any) -> str:
    """An entry point to compare: the text, or where a function or class was defined."""
    if isinstance(entry_point, str) or entry_point is None:
        return str(entry_point)
    return f"{getattr(entry_point, '__module__', '')}:{getattr(entry_point, '__qualname__', repr(entry_point))}"


def to_saved(value: Any, what: str) -> Any:
    """An argument as JSON that keeps tuples, arrays and NumPy's types apart from lists and numbers."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if np.isfinite(value) else {"float": str(value)}
    if type(value) is list:
        return [to_saved(part, what) for part in value]
    if type(value) is tuple:
        return {"tuple": [to_saved(part, what) for part in value]}
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return {"dict": {key: to_saved(part, what) for key, part in value.items()}}
    if isinstance(value, AutoresetMode):
        return {"autoreset": value.value}
    if isinstance(value, type) and issubclass(value, np.generic):
        return {"type": value.__name__}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise CannotBeSavedError(f"{what} is an array that is not finite")
        return {"array": value.tolist(), "dtype": value.dtype.name, "scalar": isinstance(value, np.generic)}
    raise CannotBeSavedError(f"{what} is a {type(value).__name__}")


def from_saved(value: Any) -> Any:
    """The argument that `to_saved` wrote."""
    if isinstance(value, list):
        return [from_saved(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = np.array(value["array"], _number_type(value["dtype"]))
        return array[()] if value["scalar"] else array
    (tag, content), *rest = value.items()
    read: dict[str, Callable[[Any], Any]] = {
        "tuple": lambda parts: tuple(from_saved(part) for part in parts),
        "dict": lambda parts: {str(key): from_saved(part) for key, part in parts.items()},
        "float": float,
        "autoreset": AutoresetMode,
        "type": lambda name: _number_type(name).type,
    }
    if rest or tag not in read:
        raise NfdrlError(f"the saved environment has an unknown argument {value!r:.80}: pass env=")
    return read[tag](content)


def _number_type(name: Any) -> np.dtype[Any]:
    found = np.dtype(str(name))
    if found.kind not in "biuf":
        raise NfdrlError(f"the saved environment has an array of type {name!r:.20}: pass env=")
    return found
