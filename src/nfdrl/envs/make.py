"""What training and evaluation need of an environment, from an id, an environment or a vector environment."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar, cast

import gymnasium
from gymnasium.vector import SyncVectorEnv, VectorEnv

from nfdrl.envs.atari import GAME as ATARI_GAME
from nfdrl.envs.atari import AtariStream, atari_spec
from nfdrl.envs.layers import AnyEnv, holds_handles
from nfdrl.envs.minatar import register_minatar
from nfdrl.envs.saving import CannotBeSavedError, described, rebuilt
from nfdrl.envs.stepping import DirectStream, Stream, VectorStream
from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.observations import checked
from nfdrl.settings import read_word

T = TypeVar("T", bound=AnyEnv)
Env = gymnasium.Env[Any, Any]
EnvLike = str | Env | VectorEnv[Any, Any, Any]

PYPI = {  # what to install if an environment cannot be made and the error has this word
    "box2d": "nfdrl[box2d]",
    "ale_py": "nfdrl[atari]",
    "minatar": "nfdrl[minatar]",
    "mujoco": "gymnasium[mujoco]",
    "pygame": "nfdrl[video]",
}
PACKAGES = {"ALE/": "ale_py", "MinAtar/": "minatar"}  # namespaces whose ids exist only if a package is installed


@dataclass(frozen=True)
class Source:
    """Where environments come from.

    `spec` makes new ones; `given` is the object that the user passed, which training steps itself. `name` is the id,
    with its settings, from which the same environment can be made again.
    """

    spec: gymnasium.envs.registration.EnvSpec | None
    given: Env | VectorEnv[Any, Any, Any] | None
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.spaces.Discrete
    name: str | None

    def __deepcopy__(self, memo: dict[int, Any]) -> Source:
        """With a copy of the given environment, or with none if it cannot be copied."""
        if self.given is None:
            return self
        made = _copied(self.given)
        return replace(self, given=made, spec=None if made is None else self.spec)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: no given environment if it cannot be."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state if _can_be_pickled(self.given) else state | {"given": None, "spec": None}

    def described(self) -> dict[str, Any] | str | None:
        """A given environment as JSON, or why that is impossible; None where its name says it all."""
        if self.given is None:
            return None
        try:
            return described(self.given)
        except CannotBeSavedError as reason:
            return str(reason)

    @property
    def known(self) -> bool:
        """Whether there are environments, not only their spaces: an agent may be loaded without one."""
        return self.spec is not None or self.given is not None

    @property
    def stacked(self) -> bool:
        """Whether observations are known to be stacks of frames that advance by one per step."""
        if self.given is None:
            return self.atari
        layer: Any = self.given
        while isinstance(layer, gymnasium.Wrapper) and not isinstance(layer, gymnasium.wrappers.FrameStackObservation):
            layer = layer.env
        return type(layer).__name__ in ("FrameStackObservation", "AtariVectorEnv")

    def stream(self, num_envs: int) -> Stream:
        """What training steps: the given environment, or `num_envs` new ones."""
        if isinstance(self.given, VectorEnv):
            return VectorStream(self.given)
        if self.given is None:
            if self.spec is not None and self.atari:
                return AtariStream(**self.spec.kwargs, num_envs=num_envs)
            return DirectStream([self.fresh() for _ in range(num_envs)])
        return DirectStream([self.given, *(self._another(self.given) for _ in range(num_envs - 1))])

    @property
    def atari(self) -> bool:
        """Whether it is a game that we play in ALE's native vector environment."""
        return self.given is None and self.spec is not None and self.spec.entry_point == ATARI_GAME

    def fresh(self, render_mode: str | None = None) -> Env:
        """A new environment from the spec, maybe one that draws itself."""
        if not self.known:
            raise NfdrlError("this agent came without an environment: pass it as `env` to Agent.load")
        if self.spec is None:
            raise NfdrlError("this environment has no id from which another could be made: register it with Gymnasium")
        spec = copy.deepcopy(self.spec)
        if render_mode is not None:
            spec.kwargs["render_mode"] = render_mode
        return _make(spec)

    def _another(self, given: Env) -> Env:
        """One more like the given environment, from its spec or as a copy."""
        if self.spec is not None:
            with suppress(NfdrlError):
                return self.fresh()
        made = _copied(given)
        if made is None:
            raise NfdrlError("this environment cannot be copied: register it with Gymnasium, or use num_envs=1")
        return made

    def copies(self, count: int) -> Sequence[AnyEnv] | None:
        """Environments for `count` episodes at once, or one vector environment; None if no other can be made.

        What was given is made again as it would be saved; if that is impossible, it is copied.
        """
        if self.given is None:
            return [self.fresh() for _ in range(count)]
        if not isinstance(self.given, VectorEnv):
            made = [self._like(self.given) for _ in range(count)]
            return None if None in made else cast(list[AnyEnv], made)
        vector = self._like(self.given)
        return None if vector is None else list(vector.envs) if type(vector) is SyncVectorEnv else [vector]

    def for_observation(self, count: int) -> Stream:
        """New environments for `count` episodes at once, with the rewards that training sees."""
        if self.given is None:
            return self.stream(count)
        made = self.copies(count)
        if made is None:
            raise NfdrlError(
                "this environment cannot be copied, and training keeps its own: register it with Gymnasium"
            )
        if isinstance(made[0], VectorEnv):
            return VectorStream(made[0])
        return DirectStream(cast(list[Env], list(made)))

    def _like(self, given: AnyEnv) -> AnyEnv | None:
        with suppress(CannotBeSavedError, NfdrlError):
            return rebuilt(described(given), _find)
        return _copied(given)


def _copied(env: T) -> T | None:
    """A deep copy; None for what cannot be copied, such as an emulator, a process or an open file."""
    if holds_handles(env):
        return None
    try:
        return copy.deepcopy(env)
    except Exception:  # whatever the parts of an environment raise
        return None


def _can_be_pickled(env: AnyEnv | None) -> bool:
    try:
        return env is None or (not holds_handles(env) and bool(pickle.dumps(env)))
    except Exception:  # whatever the parts of an environment raise
        return False


def source_of(env: EnvLike) -> Source:
    """Check an environment and say how to make more of its kind."""
    if isinstance(env, str):
        spec = spec_of(env)
        made = _make(spec)
        observation_space, action_space = made.observation_space, made.action_space
        made.close()
        return Source(spec, None, checked(observation_space), _checked_actions(action_space), env)
    if isinstance(env, VectorEnv):
        observation_space, action_space = env.single_observation_space, env.single_action_space
    elif isinstance(env, gymnasium.Env):
        observation_space, action_space = env.observation_space, env.action_space
    else:
        raise NfdrlError(f"env must be an id, a gymnasium.Env or a gymnasium VectorEnv, got {type(env).__name__}")
    name = None if env.spec is None else env.spec.id
    return Source(env.spec, env, checked(observation_space), _checked_actions(action_space), name)


def source_from(saved: Any) -> Source:
    """The environment that `Source.described` wrote, if it can be made without importing anything."""
    if isinstance(saved, str):
        raise NfdrlError(f"the saved environment cannot be made again, because {saved}: pass env=")
    try:
        return source_of(rebuilt(saved, _find))
    except gymnasium.error.DependencyNotInstalled as error:
        raise _missing(str(error), str(saved["id"])) from None


def spec_of(word: str) -> gymnasium.envs.registration.EnvSpec:
    """The spec that `id` or `id[setting=value,...]` names: settings of an Atari game or of the constructor."""
    name, settings = read_word(word)
    spec = _find(name)
    if name.startswith("ALE/"):
        return atari_spec(spec, settings)
    if settings:
        spec = copy.deepcopy(spec)
        spec.kwargs.update(settings)
    return spec


def _find(name: str) -> gymnasium.envs.registration.EnvSpec:
    """The registered spec of an id; like Gymnasium, import the module named before a colon."""
    if ":" not in name and name not in gymnasium.registry:
        _register_extras(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module, colon, inner = name.partition(":")
            if colon:
                import_module(module)
            spec = gymnasium.spec(inner if colon else name)
    except gymnasium.error.Error as error:
        for namespace, package in PACKAGES.items():
            if name.startswith(namespace) and find_spec(package) is None:
                raise _missing(package, name) from error
        raise _unknown(name) from None
    except ModuleNotFoundError as error:
        raise NfdrlError(f"environment {name!r} needs a module that is not installed: {error.name}") from None
    except (ValueError, TypeError):
        raise NfdrlError(f"{name!r:.80} is not an environment: it must name a module before the colon") from None
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        raise NfdrlError(f"environment {name!r:.80} cannot be imported: {_said(error)}") from None
    return spec


def _unknown(name: str) -> NfdrlError:
    """An error with the nearest id, without a list of a hundred others."""
    error = str(unknown_name("environment", name, sorted(gymnasium.registry)))
    return NfdrlError(error.partition(" (known:")[0] if "did you mean" in error else error.partition(": known:")[0])


def _register_extras(name: str) -> None:
    """Import the package whose ids exist only after that."""
    if name.startswith("ALE/") and find_spec("ale_py"):
        import ale_py

        gymnasium.register_envs(ale_py)
    if name.startswith("MinAtar/") and find_spec("minatar"):
        register_minatar()


def _make(spec: gymnasium.envs.registration.EnvSpec) -> Env:
    # Gymnasium's checker warns about style at every step; what training relies on is checked here and in the stream.
    try:
        return gymnasium.make(spec, disable_env_checker=True)
    except gymnasium.error.DependencyNotInstalled as error:
        raise _missing(str(error), spec.id) from None
    except ModuleNotFoundError as error:
        raise _missing(error.name or "", spec.id) from None
    except (Exception, SystemExit) as error:  # an unknown setting, or whatever its constructor raises
        given = f" with {spec.kwargs!r:.200}" if spec.kwargs else ""
        raise NfdrlError(f"environment {spec.id!r} cannot be made{given}: {_said(error)}") from None


def _said(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _missing(what: str, name: str) -> NfdrlError:
    lowered = what.lower()
    for word, package in PYPI.items():
        if word in lowered:
            return NfdrlError(f'environment {name!r} needs a package that is not installed: pip install "{package}"')
    return NfdrlError(f"environment {name!r} needs a package that is not installed: {what}")


def _checked_actions(space: gymnasium.Space[Any]) -> gymnasium.spaces.Discrete:
    if isinstance(space, gymnasium.spaces.Discrete):
        return space
    if isinstance(space, gymnasium.spaces.MultiDiscrete | gymnasium.spaces.MultiBinary):
        hint = "number the combinations with a gymnasium.ActionWrapper whose action_space is Discrete"
    else:
        hint = "discretise them with gymnasium.wrappers.TransformAction or an ActionWrapper (Discrete → chosen points)"
    raise NfdrlError(f"actions must be Discrete, got {type(space).__name__}: {hint}")
