"""Updates through PyTorch's graph, for every method, risk functional and device: the definition of an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from nfdrl.bellman import Valuation, bellman_target
from nfdrl.engines.base import Adam, Array, Engine
from nfdrl.numerics.constants import constant
from nfdrl.observations import as_tensors
from nfdrl.replay import Batch
from nfdrl.threads import prepare_optimisers


@final
class GraphEngine(Engine):
    """Networks, laws and losses in PyTorch, gradients by autograd."""

    name: ClassVar[str] = "graph"

    @torch.no_grad()  # not inference_mode: a law may cache a tensor that a later update differentiates through
    def greedy(self, observation: Array, risk: Valuation | None = None) -> Array:
        network = self.work.online
        law = network(as_tensors(observation, next(network.parameters()).device))
        chosen: Array = self.work.value(law, risk).argmax(-1).numpy(force=True)
        return chosen

    def differentiate(self, batch: Batch, next_action: Tensor | None = None, weight: Tensor | None = None) -> float:
        work = self.work
        assert work.target is not None
        target = bellman_target(batch, work.target, work.value, work.online if work.double_q else None, next_action)
        law = work.online(batch.observation).select(batch.action)
        return descend(work.method.loss(law, target, work.generator), weight)

    def accumulating(self) -> Sequence[nn.Parameter]:
        return list(self.work.online.parameters())

    def adam(self, weights: Tensor, gradient: Tensor, learning_rate: float, eps: float) -> TorchAdam:
        return TorchAdam(weights, gradient, learning_rate, eps)


def descend(losses: Tensor, weight: Tensor | None) -> float:
    """The mean of the losses per row, weighted if asked; its gradients are accumulated."""
    share = _shares(len(losses), losses.dtype, losses.device)
    if weight is not None:
        share = share * weight
    losses.backward(share)  # type: ignore[no-untyped-call]
    return float(losses.detach() @ share)


@constant
def _shares(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((n,), 1 / n, dtype=dtype, device=device)


class TorchAdam(Adam):
    """`torch.optim.Adam` on a flat tensor."""

    def __init__(self, weights: Tensor, gradient: Tensor, learning_rate: float, eps: float) -> None:
        weights.grad = gradient
        self._gradient = gradient
        fused = weights.device.type in ("cpu", "cuda")
        prepare_optimisers()
        self._inner = torch.optim.Adam([weights], lr=learning_rate, eps=eps, fused=fused)
        self.state = {
            "mean": torch.zeros_like(weights),
            "square": torch.zeros_like(weights),
            "step": torch.zeros((), dtype=torch.float32, device=weights.device if fused else "cpu"),
        }
        mean, square, step = self.state.values()
        self._inner.state[weights] = {"step": step, "exp_avg": mean, "exp_avg_sq": square}

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        rate: Any = self._inner.param_groups[0]["lr"]
        return float(rate)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._inner.param_groups[0]["lr"] = rate

    def step(self, scale: float) -> None:
        if scale != 1:
            self._gradient.mul_(scale)
        self._inner.step()
