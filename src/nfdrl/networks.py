"""The network of a torso, nfdrl's or one's own, and a head."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import gymnasium
import torch
from torch import Tensor, nn

from nfdrl.errors import NfdrlError
from nfdrl.laws.base import Head, Law, Method
from nfdrl.normalising import Normaliser
from nfdrl.observations import Observation, parts_of, zeros
from nfdrl.torsos import OneHot, Parts, Torso, TorsoSizes, is_image, is_small_image, torso_for

EMBEDDING = 64  # learned features of a state whose one-hot row is too poor: as many as IQN has cosines for a level
TorsoLike = nn.Module | Callable[[Any], nn.Module]  # a torso of one's own, or a function of the observation space


class OwnTorso(nn.Module):
    """A module that nfdrl did not make; its width is measured on observations of zeros."""

    def __init__(self, given: TorsoLike, space: gymnasium.Space[Any]) -> None:
        super().__init__()
        module = copy.deepcopy(given) if isinstance(given, nn.Module) else given(space)
        if not isinstance(module, nn.Module):
            raise NfdrlError(f"a torso must be an nn.Module or a function that makes one, got {type(module).__name__}")
        self.module = module
        self.features = self._width(space)

    def forward(self, observation: Observation) -> Tensor:
        """Observations (B, ...) to features (B, F)."""
        features: Tensor = self.module(observation)
        return features

    @torch.no_grad()
    def _width(self, space: gymnasium.Space[Any]) -> int:
        device = next((p.device for p in self.module.parameters()), None)
        trained = self.module.training
        try:
            features = self.module.eval()(zeros(space, 2, device))
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise NfdrlError(f"the torso cannot take observations of {space}: {' '.join(str(error).split())}") from None
        finally:
            self.module.train(trained)
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
            raise NfdrlError(f"a torso must turn (B, …) into (B, features); two observations became {shape}")
        return int(features.shape[1])


def name_of(torso: TorsoLike) -> str:
    """How a torso is called in a checkpoint: by its module and the name of its class or function."""
    kind: Any = type(torso) if isinstance(torso, nn.Module) else torso
    return f"{getattr(kind, '__module__', '')}:{getattr(kind, '__qualname__', type(torso).__qualname__)}"


class Network(nn.Module):
    """Observation → features → the return law of every action; with a `normaliser`, of normalised observations."""

    def __init__(self, torso: nn.Module, head: Head, normaliser: Normaliser | None = None) -> None:
        super().__init__()
        self.normaliser = normaliser
        self.torso = torso
        self.head = head

    def features(self, observation: Observation) -> Tensor:
        """What the torso makes of observations; shape (B, ...) → (B, F)."""
        features: Tensor = self.torso(observation if self.normaliser is None else self.normaliser(observation))
        return features

    def forward(self, observation: Observation) -> Law:
        """The laws of all actions; batch shape (B, A)."""
        return self.head(self.features(observation))

    def __call__(self, observation: Observation) -> Law:
        law = super().__call__(observation)
        assert isinstance(law, Law)
        return law

    @torch.no_grad()
    def dormant(self, observation: Observation) -> dict[str, float]:
        """The share of units that are zero for all these observations, per layer of a torso of ours.

        Sokar et al. 2023, Definition 3.1, for τ = 0; a channel of a convolution is a unit.
        """
        shares: dict[str, float] = {}

        def note(name: str, output: Tensor) -> None:
            greatest = output.transpose(0, 1).flatten(1).amax(1)
            shares[name] = float((greatest <= 0).float().mean())

        layers = self.torso.named_modules() if isinstance(self.torso, Torso | Parts) else ()
        hooks = [
            layer.register_forward_hook(lambda _layer, _inputs, output, name=name: note(name, output))
            for name, layer in layers
            if isinstance(layer, nn.Linear | nn.Conv2d)
        ]
        try:
            if hooks:
                self.features(observation)
        finally:
            for hook in hooks:
                hook.remove()
        return shares


def table(method: Method, states: int, actions: int) -> Network:
    """One independent law per state-action pair of a finite MDP."""
    return Network(OneHot(states), method.head(states, actions))


def method_for(method: Method, space: gymnasium.Space[Any]) -> Method:
    """The method with what its settings leave to the observations."""
    return method.on_small_images() if is_small_image(space) else method


def network_for(
    method: Method,
    space: gymnasium.Space[Any],
    actions: int,
    sizes: TorsoSizes,
    seed: int,
    *,
    own: TorsoLike | None = None,
    normalise: bool = False,
) -> Network:
    """A torso for the observation space with the method's head on it; the same seed gives the same weights.

    The torso may be one's `own`; with `normalise`, it sees normalised observations.
    """
    if method.embeds_states and not sizes.states:
        sizes = replace(sizes, states=(EMBEDDING,))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # modules draw their initial weights from the global generator
        torso = torso_for(space, sizes) if own is None else OwnTorso(own, space)
        head = method.head(cast(int, torso.features), actions)
        return Network(torso, head, _normaliser(space) if normalise else None)


def _normaliser(space: gymnasium.Space[Any]) -> Normaliser:
    """For each box that is no image."""
    boxes = {name: part for name, part in parts_of(space).items() if isinstance(part, gymnasium.spaces.Box)}
    return Normaliser(space, [name for name, part in boxes.items() if not is_image(part)])


def change_head(network: Network, method: Method, actions: int) -> None:
    """Give the network the method's head with the weights of its current one; the range of returns is no weight."""
    with torch.random.fork_rng(devices=[]):  # the new head draws weights, which are discarded
        head = method.head(cast(int, network.torso.features), actions)
    head.load_state_dict(network.head.state_dict())
    network.head = head.to(next(network.parameters()).device)


def threads_for(space: gymnasium.Space[Any]) -> int:
    """One thread for networks without convolutions, whose tensors are too small to share."""
    images = [part for part in parts_of(space).values() if isinstance(part, gymnasium.spaces.Box) and is_image(part)]
    return torch.get_num_threads() if images else 1
