"""What the arguments of `Agent` mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch

from nfdrl.bellman import Valuation
from nfdrl.envs.make import Source
from nfdrl.errors import NfdrlError, check_seed, whole
from nfdrl.laws import Method, find_method
from nfdrl.memory import check_weights, fitting
from nfdrl.networks import Network, TorsoLike, network_for
from nfdrl.risk import Mean, parse_risk
from nfdrl.settings import from_plain
from nfdrl.training.config import TrainConfig


def method_of(method: object) -> Method:
    """The method, also by its name."""
    if isinstance(method, str):
        if method.partition("[")[0] in gymnasium.registry:
            raise NfdrlError(f"{method!r} is an environment, not a method: write Agent(env={method!r})")
        return find_method(method)
    if not isinstance(method, Method):
        found = type(method).__name__
        raise NfdrlError(f"method must be a name or a Method, got {found}: an environment is passed as env=")
    return method


def risk_of(risk: str | Valuation | None) -> Valuation:
    """What actions are chosen by; by default the mean."""
    if isinstance(risk, str):
        return parse_risk(risk)
    if risk is not None and not callable(risk):
        raise NfdrlError(f"risk must be a word such as 'cvar:0.1', a Risk or a function of a law, got {risk!r:.40}")
    return risk or Mean()


def seed_of(seed: int | None) -> int:
    """The seed; a random one for None."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    chosen = whole("seed", seed)
    check_seed(chosen)
    return chosen


def config_of(config: TrainConfig | Mapping[str, Any] | None) -> TrainConfig:
    """The settings, also from a dict."""
    if config is None or isinstance(config, TrainConfig):
        return config or TrainConfig()
    return from_plain(TrainConfig, config, "training")


def device_of(name: str | torch.device) -> torch.device:
    """The device, by default a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise NfdrlError(f"unknown device {name!r:.80}: use 'auto', 'cpu' or 'cuda'") from None
    try:
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = " ".join(str(error).split())[:120]
        raise NfdrlError(f"device {str(name)!r} cannot be used on this machine: {said}") from None
    return device


def network_of(
    method: Method, source: Source, config: TrainConfig, seed: int, torso: TorsoLike | None = None
) -> Network:
    """The network of an agent, if it fits in memory."""
    with fitting("the network"):
        if torso is None and torch.get_default_device().type != "meta":
            with torch.device("meta"):
                check_weights(sum(p.numel() for p in network_of(method, source, config, seed).parameters()))
        return network_for(
            method,
            source.observation_space,
            int(source.action_space.n),
            config.torso,
            seed,
            own=torso,
            normalise=config.normalise_observations,
        )
