"""One gradient step, the same for every method."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from nfdrl.bellman import Valuation, bellman_target
from nfdrl.errors import NfdrlError
from nfdrl.laws.base import Law, LinearHead, Method
from nfdrl.laws.direct import Direct
from nfdrl.networks import Network
from nfdrl.replay import Batch
from nfdrl.risk import Mean

RISK_NEUTRAL = Mean()


@dataclass(frozen=True)
class Optimisation:
    """How weights move."""

    learning_rate: float = 1e-3  # ours
    adam_eps: float = 1e-8  # Kingma and Ba 2015, Algorithm 1
    max_grad_norm: float | None = None  # no clipping
    target_every: int = 1  # updates between two moves of the target network
    target_tau: float = 1.0  # share of the online weights in such a move: 1 is a copy
    double_q: bool = False  # van Hasselt et al. 2016: the online network chooses the next action
    direct: bool = True  # updates in NumPy where the method has such a form; otherwise through PyTorch's graph

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        for name in ("learning_rate", "adam_eps"):
            if not getattr(self, name) > 0:
                raise NfdrlError(f"{name} must be positive, got {getattr(self, name)}")
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise NfdrlError(f"max_grad_norm must be positive or None, got {self.max_grad_norm}")
        if self.target_every < 1:
            raise NfdrlError(f"target_every must be at least 1, got {self.target_every}")
        if not 0 < self.target_tau <= 1:
            raise NfdrlError(f"target_tau must lie in (0, 1], got {self.target_tau}")


class Learner:
    """An online network, its target copy and the optimisers."""

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
        groups = method.parameter_groups(network.head)
        apart = {id(p): k for k, group in enumerate(groups) for p in group["params"]}
        order = sorted(network.named_parameters(), key=lambda named: apart.get(id(named[1]), -1))
        names = [name for name, _ in order]
        self._online_weights, gradient = flatten(network, names)
        self._target_weights, _ = flatten(self.target, names)
        network.renew()
        shared = sum(p.numel() for _, p in order if id(p) not in apart)
        self._gradient = gradient
        # Autograd adds to gradients, NumPy's layers set them.
        set_anew = {id(p) for p in network.dense_parameters()}
        self._added_up = [p.grad for p in network.parameters() if p.grad is not None and id(p) not in set_anew]
        self.optimizer = FlatAdam(
            self._online_weights[:shared], gradient[:shared], settings.learning_rate, settings.adam_eps
        )
        self._special = [_special_optimiser(group) for group in groups]
        self.updates = 0
        self.skipped = self.skipped_in_a_row = 0  # updates whose loss or gradient was not finite

    def update(self, batch: Batch, next_action: Tensor | None = None) -> float:
        """One step on one batch; the mean loss, before the step.

        Without `next_action` the next action is greedy in the risk functional. Where the loss or its gradient is not
        finite, no weight moves, and the update is counted as skipped.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found here, and skipped
            loss = (self._through_graph if self.direct is None else self._direct)(batch, next_action)
            self._step(loss)
        self.updates += 1
        if self.updates % self.settings.target_every == 0:
            self.sync()
        return loss

    @cached_property
    def direct(self) -> Direct | None:
        """The method in NumPy, where everything an update needs has that form."""
        networks = self.online, self.target
        possible = all(n.dense is not None and isinstance(n.head, LinearHead) for n in networks)
        if not (possible and self.settings.direct and self.risk == RISK_NEUTRAL):
            return None
        return self.method.direct(self.generator)

    def _direct(self, batch: Batch, next_action: Tensor | None) -> float:
        """The mean loss; its gradient goes where the optimiser reads it. Only convolutions need a graph."""
        direct, online, dense = self.direct, self.online, self.online.dense
        assert direct is not None
        assert dense is not None
        rows, actions = len(batch.action), cast(LinearHead, online.head).actions
        following = self.target.raw(batch.next_observation).reshape(rows, actions, -1)
        if next_action is None:
            double = self.settings.double_q
            judged = online.raw(batch.next_observation).reshape(following.shape) if double else following
            chosen = direct.means(judged).argmax(-1)
        else:
            chosen = next_action.numpy()
        stem = online.stem(batch.observation)
        outputs = dense.forward(stem.detach().numpy())
        columns = (batch.action, batch.reward, batch.discount)
        action, reward, discount = (column.numpy() for column in columns)
        raw = outputs[-1].reshape(following.shape)
        losses, pull = direct.differentiate(raw, action, following, chosen, reward, discount)
        grad = dense.backward(outputs, pull.reshape(rows, -1), stem.requires_grad)
        if grad is not None:
            stem.backward(torch.from_numpy(grad))  # type: ignore[no-untyped-call]
        return float(losses.sum()) / rows

    def _through_graph(self, batch: Batch, next_action: Tensor | None) -> float:
        """The same for every method, risk and device."""
        chooser = self.online if self.settings.double_q else None
        target = bellman_target(batch, self.target, self.risk, chooser, next_action)
        online, dense = self.online, self.online.dense
        if dense is None:
            return self._backward(online(batch.observation), batch, target)
        stem = online.stem(batch.observation)
        outputs = dense.forward(stem.detach().numpy())
        output = torch.from_numpy(outputs[-1]).requires_grad_()
        loss = self._backward(online.law(output), batch, target)
        assert output.grad is not None
        grad = dense.backward(outputs, output.grad.numpy(), stem.requires_grad)
        if grad is not None:
            stem.backward(torch.from_numpy(grad))  # type: ignore[no-untyped-call]
        return loss

    def _backward(self, law: Law, batch: Batch, target: Law) -> float:
        losses = self.method.loss(law.select(batch.action), target, self.generator)
        # The gradient of their mean, without the mean's own step of autograd.
        losses.backward(_shares(len(losses), losses.dtype, losses.device))  # type: ignore[no-untyped-call]
        return float(losses.detach().mean())

    def _step(self, loss: float) -> None:
        norm = vector_norm(self._gradient)
        if math.isfinite(norm) and math.isfinite(loss):
            self.skipped_in_a_row = 0
            self.optimizer.step(self.settings.max_grad_norm, None if self._special else norm)
            for optimiser, max_norm in self._special:
                if max_norm is not None:
                    nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], max_norm)
                optimiser.step()
        else:
            self.skipped, self.skipped_in_a_row = self.skipped + 1, self.skipped_in_a_row + 1
        if self._added_up:
            torch._foreach_zero_(self._added_up)

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        return self.optimizer.learning_rate

    def set_learning_rate(self, rate: float) -> None:
        """Change the rate of the next steps."""
        self.optimizer.learning_rate = rate

    @torch.no_grad()
    def sync(self) -> None:
        """Move the target network to the online one, the whole way or a share τ of it."""
        tau = self.settings.target_tau
        if tau == 1:
            self._target_weights.copy_(self._online_weights)
        else:
            self._target_weights.lerp_(self._online_weights, tau)

    def tensors(self) -> dict[str, Tensor]:
        """Everything a run needs to go on: both networks and the state of the optimisers."""
        tensors = {f"online.{name}": value for name, value in self.online.state_dict().items()}
        tensors |= {f"target.{name}": value for name, value in self.target.state_dict().items()}
        tensors["updates"] = torch.tensor(self.updates)
        tensors |= {f"optimizer.{name}": value for name, value in self.optimizer.state.items()}
        for k, (optimiser, _) in enumerate(self._special):
            for index, state in optimiser.state_dict()["state"].items():
                tensors |= {f"special.{k}.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
        return tensors

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what `tensors` gave."""
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


class FlatAdam:
    """Adam (Kingma and Ba 2015, Algorithm 1) on one flat tensor, with the gradient's norm clipped on the way.

    The kernel is that of `torch.optim.Adam(fused=True)`, whose Python costs more than the kernel at this size.
    """

    def __init__(self, weights: Tensor, gradient: Tensor, learning_rate: float, eps: float) -> None:
        self.weights, self.gradient = weights, gradient
        self.learning_rate, self.eps = learning_rate, eps
        self.state = {
            "mean": torch.zeros_like(weights),
            "square": torch.zeros_like(weights),
            "step": torch.zeros((), dtype=torch.float32, device=weights.device),
        }

    def step(self, max_norm: float | None = None, norm: float | None = None) -> None:
        """Move the weights once; the gradient's norm may be given where it is known."""
        scale = None  # the kernel divides the gradient by it
        if max_norm is not None:
            norm = vector_norm(self.gradient) if norm is None else norm
            if norm > max_norm:
                scale = torch.tensor(norm / max_norm, dtype=torch.float32, device=self.gradient.device)
        self.state["step"].add_(1)
        torch._fused_adam_(
            *([self.weights], [self.gradient], [self.state["mean"]], [self.state["square"]], [], [self.state["step"]]),
            lr=self.learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
            grad_scale=scale,
        )


def vector_norm(values: Tensor) -> float:
    """The Euclidean norm; a dot product, whose calls take a third of the time of PyTorch's."""
    if values.device.type != "cpu":
        return float(torch.linalg.vector_norm(values))
    array = values.numpy()
    return math.sqrt(float(np.dot(array, array)))


@lru_cache(maxsize=16)
def _shares(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((n,), 1 / n, dtype=dtype, device=device)


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@torch.no_grad()
def flatten(network: nn.Module, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Move the named parameters and their gradients into two flat tensors, of which they become parts.

    One operation then clips, steps or copies all of them. Strides are kept: convolutions like theirs channels-last.
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
    """The optimiser a method asks for, and the norm its gradient is clipped to."""
    settings = {key: value for key, value in group.items() if key not in ("params", "optimizer", "max_grad_norm")}
    if group["optimizer"] != "rmsprop":
        raise NfdrlError(f"a parameter group asks for optimiser {group['optimizer']!r}; known: rmsprop")
    return torch.optim.RMSprop(group["params"], foreach=True, **settings), group.get("max_grad_norm")
