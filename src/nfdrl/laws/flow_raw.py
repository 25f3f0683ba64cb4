"""Raw head outputs to the parameters of a flow law, to its returns and to its loss, and back.

`read_raw` is the definition. The two autograd functions say the same as one step each, with hand-written gradients:
the hot path of every update that goes through PyTorch's graph.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nfdrl.losses.cramer import Comparison, value_and_slope
from nfdrl.numerics.mixture import erf_backward, erf_forward
from nfdrl.numerics.normal import normal_quantile

Span = tuple[float, float]  # what the range is at least, and the unit of what is learned on top
MIN_SCALE = 1e-2  # the narrowest component; keeps 1/σ and its gradients finite


def initial_mixture(n: int) -> tuple[list[float], float]:
    """Locations and the common scale of n equal components whose mixture is nearly N(0, 1).

    F is then nearly Φ and the law nearly uniform on its range. Locations are the means of n equal slices of
    N(0, 1), drawn in so that neighbours overlap; the scale restores unit variance.
    """
    edges = normal_quantile(torch.linspace(0, 1, n + 1, dtype=torch.float64))
    densities = torch.exp(-0.5 * edges.square()) / math.sqrt(2 * math.pi)
    locations = 0.7 * n * (densities[:-1] - densities[1:])
    return locations.tolist(), math.sqrt(1 - float(locations.square().mean()))


def read_raw(raw: Tensor, span: Span) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights, locations, scales and bound of raw outputs; see `FlowLaw.from_raw`."""
    n = raw.shape[-1] // 3
    # One shift for the three parts and one softplus for the two positive ones.
    logits, locations, free = torch.split(raw + zero_point(n, raw.dtype, raw.device), [n, n, n + 1], -1)
    least, unit = _units(n, span, raw.dtype, raw.device)
    positive = torch.addcmul(least, unit, nn.functional.softplus(free))
    return logits.softmax(-1), locations, positive[..., :n], positive[..., n]


def raw_returns(raw: Tensor, span: Span, z: Tensor) -> Tensor:
    """Returns at base points: `read_raw` and `FlowLaw.at` as one step."""
    return cast(Tensor, _Returns.apply(raw, span, z))  # type: ignore[no-untyped-call]


def raw_loss(raw: Tensor, span: Span, z: Tensor, target: Tensor, how: Comparison) -> Tensor:
    """The squared distance to given returns."""
    return cast(Tensor, _Loss.apply(raw, span, z, target, how))  # type: ignore[no-untyped-call]


class _Returns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, raw: Tensor, span: Span, z: Tensor) -> Tensor:
        result, saved = returns_forward(raw, span, z)
        ctx.save_for_backward(*saved)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        return returns_backward(grad_outputs[0], ctx.saved_tensors), None, None


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, raw: Tensor, span: Span, z: Tensor, target: Tensor, how: Comparison) -> Tensor:
        returns, saved = returns_forward(raw, span, z)
        value, slope = value_and_slope(returns, target, how)
        ctx.save_for_backward(returns_backward(slope, saved))
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        return grad_outputs[0].unsqueeze(-1) * ctx.saved_tensors[0], *[None] * 4


def returns_forward(raw: Tensor, span: Span, z: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Returns at base points, and what the way back needs."""
    n = raw.shape[-1] // 3
    logits, locations, free = torch.split(raw + zero_point(n, raw.dtype, raw.device), [n, n, n + 1], -1)
    least, unit = _units(n, span, raw.dtype, raw.device)
    positive = torch.addcmul(least, unit, nn.functional.softplus(free))
    amplitudes = logits.softmax(-1).mul_(positive[..., n:])
    returns, saved = erf_forward(z, amplitudes, locations, positive[..., :n])
    return returns, (free, positive, unit, *saved)


def returns_backward(grad: Tensor, all_saved: tuple[Tensor, ...]) -> Tensor:
    """Slopes in the returns to slopes in the raw outputs."""
    free, positive, unit, *saved = all_saved
    to_amplitudes, to_locations, to_scales, _ = erf_backward(grad, tuple(saved))
    # With a = G w: ∂/∂G = Σ w ∂/∂a, and softmax turns ∂/∂w = G ∂/∂a into a(∂/∂a − ∂/∂G).
    amplitudes, bound = saved[2], positive[..., -1:]
    to_bound = (amplitudes * to_amplitudes).sum(-1, keepdim=True).div_(bound)
    to_logits = to_amplitudes.sub_(to_bound).mul_(amplitudes)
    result = torch.cat([to_logits, to_locations, to_scales, to_bound], -1)
    result[..., -len(unit) :].mul_(free.sigmoid().mul_(unit))
    return result


@lru_cache(maxsize=64)
def _units(n: int, span: Span, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """What scales and bound are at least, and their unit."""
    least, unit = [MIN_SCALE] * n + [span[0]], [1.0] * n + [span[1]]
    return torch.tensor(least, dtype=dtype, device=device), torch.tensor(unit, dtype=dtype, device=device)


@lru_cache(maxsize=64)
def zero_point(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What is added to raw outputs so that zeros give the initial mixture."""
    spread, width = initial_mixture(n)
    scale, bound = _inverse_softplus(width - MIN_SCALE), _inverse_softplus(1.0)
    return torch.tensor([0.0] * n + spread + [scale] * n + [bound], dtype=dtype, device=device)


def _inverse_softplus(value: float) -> float:
    return math.log(math.expm1(value))
