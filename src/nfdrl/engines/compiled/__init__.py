"""The engine for a CPU: linear layers in NumPy, and losses compiled by Numba for methods that have a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, cast, final

import numpy as np
import torch
from torch import Tensor, nn

from nfdrl.bellman import bellman_target
from nfdrl.engines.base import Array, Engine, Work
from nfdrl.engines.compiled.adam import NumbaAdam
from nfdrl.engines.compiled.kernels import Bellman, kernel_of
from nfdrl.engines.compiled.layers import Trunk, linear_layers
from nfdrl.engines.graph import descend
from nfdrl.laws.base import LinearHead
from nfdrl.networks import OwnTorso, Parts
from nfdrl.replay import Batch

__all__ = ["CompiledEngine", "obstacle"]


def obstacle(work: Work) -> str | None:
    """Why this engine cannot run; None where it can."""
    if isinstance(work.online.torso, Parts | OwnTorso):
        return "observations have several parts" if isinstance(work.online.torso, Parts) else "the torso is your own"
    if not linear_layers(work.online):
        return "the network has no linear layers of a torso that nfdrl knows"
    for parameter in work.online.parameters():
        if parameter.device.type != "cpu" or parameter.dtype != torch.float32:
            return f"the network's weights are {parameter.dtype} on {parameter.device}, not torch.float32 on the CPU"
    return None


@final
class CompiledEngine(Engine):
    """Layers in NumPy, then the method's kernel, or its law and loss through the graph where it has none."""

    name: ClassVar[str] = "compiled"

    def __init__(self, work: Work, reason: str = "") -> None:
        head = work.online.head
        self._kernel = kernel_of(work.method, work.generator) if isinstance(head, LinearHead) else None
        how = "layers and loss" if self._kernel is not None else "layers (this method's loss is PyTorch's)"
        super().__init__(work, reason or f"{how} in NumPy and Numba on the CPU")
        self._online = Trunk(work.online)
        self._target = None if work.target is None else Trunk(work.target)

    def greedy(self, observation: Array) -> Array:
        return self._greedy(self._online.outputs(torch.from_numpy(observation)))

    def _greedy(self, outputs: Array) -> Array:
        """The same from the outputs of the linear layers; a functional that has no kernel asks the law."""
        values = None
        if self._kernel is not None:
            values = self._kernel.values(self._by_action(outputs), self.work.risk)
        if values is None:
            with torch.no_grad():
                values = self.work.value(self._online.law(torch.from_numpy(outputs))).numpy()
        chosen: Array = values.argmax(-1)
        return chosen

    def _by_action(self, outputs: Array) -> Array:
        return outputs.reshape(len(outputs), cast(LinearHead, self.work.online.head).actions, -1)

    def differentiate(self, batch: Batch, next_action: Tensor | None = None, weight: Tensor | None = None) -> float:
        """The mean loss; gradients of linear layers are overwritten, those of a stem and other heads are added to."""
        trunk = self._online
        stem = trunk.stem(batch.observation)
        outputs = trunk.dense.forward(stem.detach().numpy())
        if self._kernel is None:
            output = torch.from_numpy(outputs[-1]).requires_grad_()
            loss = self._through_graph(output, batch, next_action, weight)
            assert output.grad is not None
            slope = output.grad.numpy()
        else:
            loss, slope = self._through_kernel(outputs[-1], batch, next_action, weight)
        grad = trunk.dense.backward(outputs, slope, trunk.learned)
        if grad is not None:
            stem.backward(torch.from_numpy(grad))  # type: ignore[no-untyped-call]
        return loss

    def _through_kernel(
        self, outputs: Array, batch: Batch, next_action: Tensor | None, weight: Tensor | None
    ) -> tuple[float, Array]:
        """The mean loss and its gradient in the outputs; shape (B, outputs)."""
        assert self._target is not None
        assert self._kernel is not None
        following = self._target.outputs(batch.next_observation)
        if next_action is None:
            judged = self._online.outputs(batch.next_observation) if self.work.double_q else following
            chosen = self._greedy(judged)
        else:
            chosen = next_action.numpy()
        # Every law is a row of its own: picking by one index is faster than by two.
        actions = cast(LinearHead, self.work.online.head).actions
        first, share = _rows(len(chosen), actions)
        own, after = outputs.reshape(len(first) * actions, -1), following.reshape(len(first) * actions, -1)
        place = first + batch.action.numpy()
        bellman = Bellman(batch.reward.numpy(), batch.discount.numpy())
        losses, slopes = self._kernel.differentiate(own.take(place, 0), after.take(first + chosen, 0), bellman)
        if weight is not None:
            share = share * weight.numpy()
        gradient = np.zeros_like(own)
        gradient[place] = slopes * share[:, None]
        return float(losses @ share), gradient.reshape(outputs.shape)

    def _through_graph(self, output: Tensor, batch: Batch, next_action: Tensor | None, weight: Tensor | None) -> float:
        """The mean loss; its gradient in the outputs, and in a head that is not linear, by autograd."""
        work, online, target = self.work, self._online, self._target
        assert target is not None
        chooser = online.laws if work.double_q else None
        wanted = bellman_target(batch, target.laws, work.value, chooser, next_action)
        return descend(work.method.loss(online.law(output).select(batch.action), wanted, work.generator), weight)

    def accumulating(self) -> Sequence[nn.Parameter]:
        """What autograd reaches: the stem, and a head that is not linear."""
        mine = {id(p) for layer in self._online.layers for p in layer.parameters()}
        return [p for p in self.work.online.parameters() if id(p) not in mine]

    def adam(self, weights: Tensor, gradient: Tensor, learning_rate: float, eps: float) -> NumbaAdam:
        return NumbaAdam(weights, gradient, learning_rate, eps)


@lru_cache(maxsize=16)
def _rows(count: int, actions: int) -> tuple[Array, Array]:
    """The first law of each row among all laws, and the share of each row in a mean."""
    return np.arange(0, count * actions, actions), np.full(count, 1 / count, np.float32)
