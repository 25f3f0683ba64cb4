"""What every distance between two sets of returns promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdrl.numerics.constants import constant

ValueAndSlope = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Distance(ABC):
    """A distance between two laws, each given by returns in ascending order: a frozen dataclass of its settings.

    Calling it gives one number per row, squared unless `rooted`. Gradients flow through the positions of the returns.
    """

    kind: ClassVar[str]  # its name in settings
    rooted: bool

    @abstractmethod
    def value_and_slope(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The squared distance and its gradient in the predicted returns; shapes (B, N), (B, M) → (B,), (B, N)."""

    @property
    def needs_density(self) -> bool:
        """Whether the log-densities of the returns are part of the comparison."""
        return False

    def __call__(self, predicted: Tensor, target: Tensor, log_densities: tuple[Tensor, Tensor] | None = None) -> Tensor:  # noqa: ARG002
        """The distance of each row; shapes (B, N), (B, M) → (B,), and of the log-densities, where they are needed."""
        return root(squared(predicted, target, self.value_and_slope), self.rooted)

    def gain(self, samples: int) -> float:  # noqa: ARG002
        """What a loss over so many returns multiplies the distance by."""
        return 1.0


def squared(predicted: Tensor, target: Tensor, measure: ValueAndSlope) -> Tensor:
    """What `measure` finds, with its gradient; shapes (B, N), (B, M) → (B,)."""
    return cast(Tensor, _Squared.apply(predicted, target, measure))  # type: ignore[no-untyped-call]


class _Squared(torch.autograd.Function):
    """A squared distance whose gradient is found together with its value."""

    @staticmethod
    def forward(ctx: Any, predicted: Tensor, target: Tensor, measure: ValueAndSlope) -> Tensor:
        value, slope = measure(predicted, target)
        # The distance is the same from either side.
        other = measure(target, predicted)[1] if ctx.needs_input_grad[1] else None
        ctx.save_for_backward(slope, other)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        row = grad_outputs[0].unsqueeze(-1)
        return *(None if slope is None else row * slope for slope in ctx.saved_tensors), None


def root(value: Tensor, rooted: bool) -> Tensor:
    """The root where it is asked for; a floor of one rounding keeps its gradient finite at zero."""
    return (value.clamp_min(0) + torch.finfo(value.dtype).eps ** 2).sqrt() if rooted else value


@constant
def signed_masses(n: int, m: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1/N for each predicted return, −1/M for each of the target's."""
    return torch.tensor([1 / n] * n + [-1 / m] * m, dtype=dtype, device=device)
