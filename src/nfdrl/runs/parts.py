"""What a checkpoint says of an agent's parts, made again or held against those that are given."""

from __future__ import annotations

from typing import Any, Literal, cast

import gymnasium

from nfdrl.envs.make import EnvLike, Source, source_from, source_of
from nfdrl.envs.stacking import stacked
from nfdrl.errors import NfdrlError
from nfdrl.networks import TorsoLike, name_of
from nfdrl.risk import Risk, parse_risk
from nfdrl.runs.checkpoint import space_config, space_from


def saved_source(config: dict[str, Any], env: EnvLike | Literal[False] | None, frames: int) -> Source:
    """The given or the saved environment, whose spaces must be the saved ones; or, for False, these spaces alone."""
    name, described = config["env"], config.get("source")  # without a description, the name says it all
    if env is False:
        spaces = [space_from(config[kind]) for kind in ("observation_space", "action_space")]
        return Source(None, None, spaces[0], cast(gymnasium.spaces.Discrete, spaces[1]), None)
    if env is not None:
        source = source_of(env)
    elif described is not None:
        source = source_from(described)
    elif name is None:
        raise NfdrlError("the saved environment cannot be made again, because it is not registered: pass env=")
    elif ":" in str(name):
        raise NfdrlError(f"the saved environment {name!r} would import a module: pass env= if you trust it")
    else:
        source = source_of(name)
    source = stacked(source, frames)
    check_spaces(source, config["observation_space"], config["action_space"])
    return source


def check_spaces(source: Source, *wanted: gymnasium.Space[Any] | dict[str, Any]) -> None:
    """Refuse an environment with other spaces than an agent has, or a saved one had."""
    for name, own in zip(("observation_space", "action_space"), wanted, strict=True):
        found = space_config(getattr(source, name))
        expected = space_config(own) if isinstance(own, gymnasium.Space) else own
        if found != expected:
            raise NfdrlError(f"the environment's {name} is {found}, the agent's {expected}")


def check_torso(saved: Any, given: TorsoLike | None) -> None:
    """Ask for the torso that an agent was saved with, by its name; which module it comes from may have changed."""
    if saved is None and given is not None:
        raise NfdrlError(f"the saved agent has a torso of nfdrl's, but {name_of(given)} was passed as `torso`")
    if saved is not None and given is None:
        raise NfdrlError(f"the saved agent's torso {saved!r} is not part of nfdrl: pass it as `torso`")
    if given is not None and name_of(given).partition(":")[2] != str(saved).partition(":")[2]:
        raise NfdrlError(f"the saved agent's torso is {saved!r}, the one given is {name_of(given)!r}")


def saved_risk(word: Any) -> Risk:
    """The risk of a saved agent; a function is not saved."""
    if word is None:
        raise NfdrlError("the saved agent chose actions by a function of your own: pass it as `risk`")
    if not isinstance(word, str):
        raise NfdrlError(f"the saved risk must be a word, got {word!r}")
    return parse_risk(word)
