"""The engine for a CPU: linear layers in NumPy, and losses compiled by Numba for methods that have a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import ClassVar, cast, final

import numpy as np
import torch
from torch import Tensor, nn

from nfdrl.bellman import Valuation, bellman_target
from nfdrl.engines.base import Array, Engine, Work
from nfdrl.engines.compiled.adam import NumbaAdam
from nfdrl.engines.compiled.alike import rows_alike
from nfdrl.engines.compiled.heads import head_kernel_of
from nfdrl.engines.compiled.kernels import Bellman, kernel_of
from nfdrl.engines.compiled.layers import Trunk, linear_layers
from nfdrl.engines.graph import descend
from nfdrl.laws.base import LinearHead
from nfdrl.networks import OwnTorso
from nfdrl.replay import Batch
from nfdrl.torsos import Parts, Torso

__all__ = ["CompiledEngine", "obstacle"]


def obstacle(work: Work) -> str | None:
    """Why this engine cannot run; None where it can."""
    if isinstance(work.online.torso, Parts | OwnTorso):
        return "observations have several parts" if isinstance(work.online.torso, Parts) else "the torso is your own"
    if not isinstance(work.online.torso, Torso):
        return "the torso is not one of nfdrl's"
    if not linear_layers(work.online) and head_kernel_of(work.method, work.online.head, None) is None:
        return "the network has no linear layers that nfdrl knows"
    for parameter in work.online.parameters():
        if parameter.device.type != "cpu" or parameter.dtype != torch.float32:
            return f"the network's weights are {parameter.dtype} on {parameter.device}, not torch.float32 on the CPU"
    return None


@final
class CompiledEngine(Engine):
    """Layers in NumPy, then the method's kernel, or its law and loss through the graph where it has none."""

    name: ClassVar[str] = "compiled"

    def __init__(self, work: Work, reason: str = "") -> None:
        heads = [None if network is None else network.head for network in (work.online, work.target)]
        self._kernel = kernel_of(work.method, work.generator) if isinstance(heads[0], LinearHead) else None
        self._heads = [None if head is None else head_kernel_of(work.method, head, work.generator) for head in heads]
        self._whole = self._kernel is not None or self._heads[0] is not None
        how = "layers and loss" if self._whole else "layers (this method's loss is PyTorch's)"
        super().__init__(work, reason or f"{how} in NumPy and Numba on the CPU")
        self._online = Trunk(work.online)
        self._target = None if work.target is None else Trunk(work.target)

    def greedy(self, observation: Array, risk: Valuation | None = None) -> Array:
        return self._greedy(self._online.outputs(torch.from_numpy(observation)), risk=risk)

    def _greedy(self, outputs: Array, of_target: bool = False, risk: Valuation | None = None) -> Array:
        """The same from the outputs of a network's linear layers; a functional that has no kernel asks the law."""
        values, head, risk = None, self._heads[of_target], self.work.risk if risk is None else risk
        if self._kernel is not None:
            values = self._kernel.values(self._by_action(outputs), risk)
        elif head is not None:
            alike = rows_alike(outputs)
            values = head.values(outputs[alike.first], risk)
            values = None if values is None else values[alike.group]
        if values is None:
            trunk = cast(Trunk, self._target if of_target else self._online)
            with torch.no_grad():
                values = self.work.value(trunk.law(torch.from_numpy(outputs)), risk).numpy()
        chosen: Array = values.argmax(-1)
        return chosen

    def _by_action(self, outputs: Array) -> Array:
        return outputs.reshape(len(outputs), cast(LinearHead, self.work.online.head).actions, -1)

    def differentiate(self, batch: Batch, next_action: Tensor | None = None, weight: Tensor | None = None) -> float:
        """The mean loss; gradients of what runs in NumPy are overwritten, those of a stem and other heads added to."""
        trunk = self._online
        stem = trunk.stem(batch.observation)
        chooses = self._whole and self.work.double_q and next_action is None
        chooser: Array | None = None
        if chooses and trunk.plain:  # one pass for both observations
            count, following = len(stem), trunk.stem(batch.next_observation)
            both = trunk.dense.forward(np.concatenate([stem.numpy(), following.numpy()]))
            outputs, chooser = trunk.dense.first(both, count), both[-1][count:]
        else:
            outputs = trunk.dense.forward(stem.detach().numpy())
            if chooses:
                chooser = trunk.outputs(batch.next_observation)
        if self._kernel is not None:
            loss, slope = self._through_kernel(outputs[-1], chooser, batch, next_action, weight)
        elif self._heads[0] is not None:
            loss, slope = self._through_head(outputs[-1], chooser, batch, next_action, weight)
        else:
            output = torch.from_numpy(outputs[-1]).requires_grad_()
            loss = self._through_graph(output, batch, next_action, weight)
            assert output.grad is not None
            slope = output.grad.numpy()
        grad = trunk.dense.backward(outputs, slope, trunk.learned)
        if grad is not None:
            stem.backward(torch.from_numpy(grad))  # type: ignore[no-untyped-call]
        return loss

    def _following(self, batch: Batch, chooser: Array | None, next_action: Tensor | None) -> tuple[Array, Array]:
        """The target network's outputs for the next observations, and the next actions.

        With Double-Q the online network's outputs, `chooser`, choose them.
        """
        assert self._target is not None
        following = self._target.outputs(batch.next_observation)
        if next_action is not None:
            return following, next_action.numpy()
        if chooser is not None:
            return following, self._greedy(chooser)
        return following, self._greedy(following, of_target=True)

    def _through_kernel(
        self, outputs: Array, chooser: Array | None, batch: Batch, next_action: Tensor | None, weight: Tensor | None
    ) -> tuple[float, Array]:
        """The mean loss and its gradient in the outputs; shape (B, outputs)."""
        assert self._kernel is not None
        following, chosen = self._following(batch, chooser, next_action)
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

    def _through_head(
        self, features: Array, chooser: Array | None, batch: Batch, next_action: Tensor | None, weight: Tensor | None
    ) -> tuple[float, Array]:
        """The mean loss and its gradient in the features; that in the head's weights is written."""
        online, target = self._heads
        assert online is not None
        assert target is not None
        following, chosen = self._following(batch, chooser, next_action)
        bellman = Bellman(batch.reward.numpy(), batch.discount.numpy())
        _, share = _rows(len(chosen), 1)
        if weight is not None:
            share = share * weight.numpy()
        wanted = partial(target.target, following, chosen, bellman)
        losses, slope = online.differentiate(features, batch.action.numpy(), wanted, share)
        return float(losses @ share), slope

    def _through_graph(self, output: Tensor, batch: Batch, next_action: Tensor | None, weight: Tensor | None) -> float:
        """The mean loss; its gradient in the outputs, and in a head that is not linear, by autograd."""
        work, online, target = self.work, self._online, self._target
        assert target is not None
        chooser = online.laws if work.double_q else None
        wanted = bellman_target(batch, target.laws, work.value, chooser, next_action)
        return descend(work.method.loss(online.law(output).select(batch.action), wanted, work.generator), weight)

    def accumulating(self) -> Sequence[nn.Parameter]:
        """What autograd reaches: the stem, and a head without a kernel that is not linear."""
        parts = [*self._online.layers, *([] if self._heads[0] is None else [self.work.online.head])]
        mine = {id(p) for part in parts for p in part.parameters()}
        return [p for p in self.work.online.parameters() if id(p) not in mine]

    def adam(self, weights: Tensor, gradient: Tensor, learning_rate: float, eps: float) -> NumbaAdam:
        return NumbaAdam(weights, gradient, learning_rate, eps)


@lru_cache(maxsize=16)
def _rows(count: int, actions: int) -> tuple[Array, Array]:
    """The first law of each row among all laws, and the share of each row in a mean."""
    return np.arange(0, count * actions, actions), np.full(count, 1 / count, np.float32)
