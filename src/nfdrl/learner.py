"""One gradient step, the same for every method."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nfdrl.bellman import Valuation
from nfdrl.engines import EngineName, Work, engine_for
from nfdrl.errors import NfdrlError, check_numbers
from nfdrl.laws.base import Method
from nfdrl.networks import Network
from nfdrl.replay import Batch
from nfdrl.risk import Mean
from nfdrl.threads import prepare_optimisers

RISK_NEUTRAL = Mean()


@dataclass(frozen=True)
class Optimisation:
    """How weights move."""

    learning_rate: float = 1e-3  # ours
    adam_eps: float = 1e-8  # Kingma and Ba 2015, Algorithm 1
    max_grad_norm: float | None = None  # no clipping
    target_every: int = 1  # updates between moves of the target network
    target_tau: float = 1.0  # share of the online weights in each move: 1 is a copy
    double_q: bool = False  # van Hasselt et al. 2016: the online network chooses the next action
    engine: EngineName = "auto"  # compiled where it can run, otherwise graph

    def __post_init__(self) -> None:
        for name in ("learning_rate", "adam_eps"):
            if not getattr(self, name) > 0:
                raise NfdrlError(f"{name} must be positive, got {getattr(self, name)}")
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise NfdrlError(f"max_grad_norm must be positive or None, got {self.max_grad_norm}")
        if self.target_every < 1:
            raise NfdrlError(f"target_every must be at least 1, got {self.target_every}")
        if not 0 < self.target_tau <= 1:
            raise NfdrlError(f"target_tau must lie in (0, 1], got {self.target_tau}")
        check_numbers(self)


class Learner:
    """An online network, its target copy, the engine that computes gradients and the optimisers that apply them."""

    def __init__(
        self,
        method: Method,
        network: Network,
        settings: Optimisation,
        *,
        risk: Valuation = RISK_NEUTRAL,
        generator: torch.Generator | None = None,
    ) -> None:
        self.method, self.online, self.settings = method, network, settings
        self.risk, self.generator = risk, generator
        self.target = copy.deepcopy(network).requires_grad_(False)
        self.target.normaliser = network.normaliser  # both see observations alike
        self.updates = 0
        self.skipped = self.skipped_in_a_row = 0  # updates whose loss or gradient was not finite
        self._bind()

    def _bind(self) -> None:
        """Flatten weights and gradients, and build the engine and the optimisers on them."""
        network, settings = self.online, self.settings
        groups = self.method.parameter_groups(network.head)
        apart = {id(p): k for k, group in enumerate(groups) for p in group["params"]}
        order = sorted(network.named_parameters(), key=lambda named: apart.get(id(named[1]), -1))
        names = [name for name, _ in order]
        self._online_weights, self._gradient = flatten(network, names)
        self._target_weights, _ = flatten(self.target, names)
        work = Work(self.method, network, self.risk, self.target, self.generator, settings.double_q)
        self.engine = engine_for(work, settings.engine)
        self._accumulated = [p.grad for p in self.engine.accumulating() if p.grad is not None]
        shared = sum(p.numel() for _, p in order if id(p) not in apart)
        parts = self._online_weights[:shared], self._gradient[:shared]
        self.optimizer = self.engine.adam(*parts, settings.learning_rate, settings.adam_eps)
        self._special = [_special_optimiser(group) for group in groups]

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made from: its weights and gradients must share memory of its own."""
        kept = ("method", "online", "settings", "risk", "generator", "target", "updates", "skipped", "skipped_in_a_row")
        return {name: getattr(self, name) for name in kept} | {"rate": self.learning_rate, "tensors": self.tensors()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tensors, rate = state.pop("tensors"), state.pop("rate")
        self.__dict__.update(state)
        self._bind()
        self.load_tensors(tensors)
        self.set_learning_rate(rate)

    def update(self, batch: Batch, next_action: Tensor | None = None, weight: Tensor | None = None) -> float:
        """One step on one batch; returns the mean loss before the step.

        Without `next_action` the next action is greedy in the risk functional; `weight` is a factor per row on the
        loss. If the loss or its gradient is not finite, no weight moves, and the update is counted as skipped.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # _step finds and skips what is not finite
            loss = self.engine.differentiate(batch, next_action, weight)
            self._step(loss)
        self.updates += 1
        if self.updates % self.settings.target_every == 0:
            self.sync()
        return loss

    def _step(self, loss: float) -> None:
        norm = vector_norm(self._gradient)
        if math.isfinite(norm) and math.isfinite(loss):
            self.skipped_in_a_row = 0
            self.optimizer.step(self._scale(norm))
            for optimiser, max_norm in self._special:
                if max_norm is not None:
                    nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], max_norm)
                optimiser.step()
        else:
            self.skipped, self.skipped_in_a_row = self.skipped + 1, self.skipped_in_a_row + 1
        for gradient in self._accumulated:
            gradient.zero_()

    def _scale(self, norm: float) -> float:
        """The factor that clips the main optimiser's gradient; `norm` is that of the whole gradient."""
        limit = self.settings.max_grad_norm
        if limit is None:
            return 1.0
        if self._special:
            norm = vector_norm(self._gradient[: len(self.optimizer.state["mean"])])
        return limit / norm if norm > limit else 1.0

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        return self.optimizer.learning_rate

    def set_learning_rate(self, rate: float) -> None:
        """Change the rate of the next steps."""
        self.optimizer.learning_rate = rate

    @torch.no_grad()
    def sync(self) -> None:
        """Move the target network towards the online one: all the way, or a share τ of it."""
        tau = self.settings.target_tau
        if tau == 1:
            self._target_weights.copy_(self._online_weights)
        else:
            self._target_weights.lerp_(self._online_weights, tau)

    def tensors(self) -> dict[str, Tensor]:
        """Everything a run needs to resume: both networks and the state of the optimisers."""
        tensors = {f"online.{name}": value for name, value in self.online.state_dict().items()}
        tensors |= {f"target.{name}": value for name, value in self.target.state_dict().items()}
        tensors["updates"] = torch.tensor(self.updates)
        tensors |= {f"optimizer.{name}": value for name, value in self.optimizer.state.items()}
        for k, (optimiser, _) in enumerate(self._special):
            for index, state in optimiser.state_dict()["state"].items():
                tensors |= {f"special.{k}.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
        return tensors

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Resume from what `tensors` returned."""
        for name, network in (("online", self.online), ("target", self.target)):
            network.load_state_dict(_under(tensors, f"{name}."))
        self.updates = int(tensors["updates"])
        for name, value in _under(tensors, "optimizer.").items():
            self.optimizer.state[name].copy_(value)
        for k, (optimiser, _) in enumerate(self._special):
            whole = optimiser.state_dict()
            for name, value in _under(tensors, f"special.{k}.").items():
                index, _, field = name.partition(".")
                whole["state"].setdefault(int(index), {})[field] = value
            optimiser.load_state_dict(whole)


def vector_norm(values: Tensor) -> float:
    """The Euclidean norm; NumPy's dot product takes a third of the time of PyTorch's norm."""
    if values.device.type != "cpu":
        return float(torch.linalg.vector_norm(values))
    array = values.numpy()
    return math.sqrt(float(np.dot(array, array)))


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@torch.no_grad()
def flatten(network: nn.Module, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Move the named parameters and their gradients into two flat tensors, of which they become views.

    One operation then clips, steps or copies all of them. Strides are kept, such as the channels-last ones of
    convolutions.
    """
    parameters = [network.get_parameter(name) for name in names]
    flat = torch.cat([p.reshape(-1) for p in parameters])
    gradient = torch.zeros_like(flat)
    start = 0
    for p in parameters:
        part = slice(start, start + p.numel())
        whole = flat[part].as_strided(p.shape, p.stride())
        whole.copy_(p)
        p.data = whole
        if p.requires_grad:
            p.grad = gradient[part].as_strided(p.shape, p.stride())
        start = part.stop
    return flat, gradient


def _special_optimiser(group: dict[str, Any]) -> tuple[torch.optim.Optimizer, float | None]:
    """The optimiser that a method asks for, and the norm to which its gradient is clipped."""
    settings = {key: value for key, value in group.items() if key not in ("params", "optimizer", "max_grad_norm")}
    if group["optimizer"] != "rmsprop":
        raise NfdrlError(f"unknown optimiser {group['optimizer']!r} in a parameter group: known: rmsprop")
    prepare_optimisers()
    return torch.optim.RMSprop(group["params"], foreach=True, **settings), group.get("max_grad_norm")
