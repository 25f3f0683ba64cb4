"""What training and evaluation need of an environment, from an id, an environment or a vector environment."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from nfdrl.envs.atari import GAME as ATARI_GAME
from nfdrl.envs.atari import AtariStream, atari_spec
from nfdrl.envs.minatar import register_minatar
from nfdrl.envs.stepping import DirectStream, Stream, VectorStream
from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.settings import read_word

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

    @property
    def known(self) -> bool:
        """Whether there are environments, not only their spaces: an agent may be loaded without one."""
        return self.spec is not None or self.given is not None

    @property
    def stacked(self) -> bool:
        """Whether observations are known to be stacks of frames that advance by one per step."""
        if self.given is None:
            return self.spec is not None and self.spec.entry_point == ATARI_GAME
        layer: Any = self.given
        while isinstance(layer, gymnasium.Wrapper) and not isinstance(layer, gymnasium.wrappers.FrameStackObservation):
            layer = layer.env
        return type(layer).__name__ in ("FrameStackObservation", "AtariVectorEnv")

    def stream(self, num_envs: int) -> Stream:
        """What training steps: the given environment, or `num_envs` new ones."""
        if isinstance(self.given, VectorEnv):
            return VectorStream(self.given)
        if self.given is None:
            if self.spec is not None and self.spec.entry_point == ATARI_GAME:
                return AtariStream(**self.spec.kwargs, num_envs=num_envs)
            return DirectStream([self.fresh() for _ in range(num_envs)])
        return DirectStream([self.given, *(self.fresh() for _ in range(num_envs - 1))])

    def fresh(self) -> Env:
        """A new environment of the same kind."""
        if not self.known:
            raise NfdrlError("this agent was loaded without an environment: pass `env` to Agent.load")
        if self.spec is None:
            raise NfdrlError(
                "this environment has no id from which another could be made: "
                "register it with Gymnasium, or use num_envs=1 and evaluate in the environment you pass"
            )
        return _make(copy.deepcopy(self.spec))

    def for_evaluation(self, count: int) -> list[Env]:
        """Environments for `count` episodes at once; only the given one if no other can be made."""
        if self.spec is None and isinstance(self.given, gymnasium.Env):
            return [self.given]
        return [self.fresh() for _ in range(count)]


def source_of(env: EnvLike) -> Source:
    """Check an environment and say how to make more of its kind."""
    if isinstance(env, str):
        spec = spec_of(env)
        made = _make(spec)
        observation_space, action_space = made.observation_space, made.action_space
        made.close()
        return Source(spec, None, _checked_observations(observation_space), _checked_actions(action_space), env)
    if isinstance(env, VectorEnv):
        observation_space, action_space = env.single_observation_space, env.single_action_space
    elif isinstance(env, gymnasium.Env):
        observation_space, action_space = env.observation_space, env.action_space
    else:
        raise NfdrlError(f"env must be an id, a gymnasium.Env or a gymnasium VectorEnv, got {type(env).__name__}")
    name = None if env.spec is None else env.spec.id
    return Source(env.spec, env, _checked_observations(observation_space), _checked_actions(action_space), name)


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


def _checked_observations(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return space
    raise NfdrlError(
        f"observations of type {type(space).__name__} are not supported: "
        "wrap the environment in gymnasium.wrappers.FlattenObservation"
    )
