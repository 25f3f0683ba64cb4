"""Torsos, the choice of one for an observation space, and the network that puts a head on one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nfdrl.errors import NfdrlError
from nfdrl.laws.base import Head, Law, Method

NATURE_LEAST_SIDE = 36  # the three convolutions of Mnih et al. 2015 leave nothing of a smaller image


@dataclass(frozen=True)
class TorsoSizes:
    """Widths of the fully connected layers."""

    mlp: tuple[int, ...] = (128, 128)  # ours: two layers, wide enough for classic control, narrow enough for a CPU
    image: tuple[int, ...] = (512,)  # Mnih et al. 2015, Methods
    small_image: tuple[int, ...] = (128,)  # Young and Tian 2019 (MinAtar), Section 3

    def __post_init__(self) -> None:
        """Refuse layers without units."""
        for name in ("mlp", "image", "small_image"):
            widths = getattr(self, name)
            if any(width < 1 for width in widths):
                raise NfdrlError(f"widths of {name} layers must be at least 1, got {widths}")


class OneHot(nn.Module):
    """A finite state as a one-hot row: a linear head on it is a table."""

    def __init__(self, n: int, start: int = 0) -> None:
        super().__init__()
        self.features = n
        self.start = start

    def forward(self, state: Tensor) -> Tensor:
        """Integers (...) to rows (..., n)."""
        index = state.long() - self.start
        return nn.functional.one_hot(index, self.features).to(torch.get_default_dtype())


class MultiOneHot(nn.Module):
    """Several finite coordinates, each as a one-hot row, side by side, then fully connected layers."""

    def __init__(self, sizes: Sequence[int], starts: Sequence[int], widths: Sequence[int]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(OneHot(n, start) for n, start in zip(sizes, starts, strict=True))
        self.layers = MLP(sum(sizes), widths)
        self.features = self.layers.features

    def forward(self, state: Tensor) -> Tensor:
        """Integers (B, ...) to features (B, F)."""
        columns = state.flatten(1).unbind(-1)
        rows = [part(column) for part, column in zip(self.parts, columns, strict=True)]
        return self.layers.forward(torch.cat(rows, -1))


class Layers(nn.ModuleList):
    """Linear layers, each followed by ReLU.

    They are one step of autograd: at this size its bookkeeping takes longer than the layers.
    """

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        sizes = [inputs, *widths]
        super().__init__(nn.Linear(n, m) for n, m in pairwise(sizes))
        self.features = sizes[-1]
        self.weights = [*self.parameters()]  # weight, bias, weight, bias, …

    def forward(self, x: Tensor) -> Tensor:
        """Rows (B, F) to rows (B, last width)."""
        if not torch.is_grad_enabled():
            return _activations(x, self.weights)[-1]
        return cast(Tensor, _Layers.apply(x, *self.weights))  # type: ignore[no-untyped-call]


def _activations(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """The input and the output of every layer."""
    outputs = [x]
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        outputs.append(torch.addmm(bias, outputs[-1], weight.t()).relu_())
    return outputs


class _Layers(torch.autograd.Function):
    """What `Layers` computes, with its own backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        outputs = _activations(x, weights)
        ctx.save_for_backward(*outputs, *weights[::2])
        return outputs[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        grad, count = grad_outputs[0], len(ctx.saved_tensors) // 2
        outputs, weights = ctx.saved_tensors[: count + 1], ctx.saved_tensors[count + 1 :]
        found: list[Tensor | None] = []
        for k in reversed(range(count)):
            grad = torch.ops.aten.threshold_backward(grad, outputs[k + 1], 0)
            found = [grad.t() @ outputs[k], grad.sum(0), *found]
            if k or ctx.needs_input_grad[0]:
                grad = grad @ weights[k]
        return grad if ctx.needs_input_grad[0] else None, *found


class MLP(nn.Module):
    """Fully connected layers with ReLU on the flattened observation."""

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers = Layers(inputs, widths)
        self.features = self.layers.features

    def forward(self, observation: Tensor) -> Tensor:
        """Numbers (B, ...) to features (B, F)."""
        if observation.ndim != 2:
            observation = observation.reshape(len(observation), -1)
        if not observation.is_floating_point():
            observation = observation.to(torch.get_default_dtype())
        return self.layers.forward(observation)


class ImageTorso(nn.Module):
    """Convolutions, then fully connected layers, on images of either channel order.

    Channels-last observations are permuted, not copied: the result already has PyTorch's `channels_last` strides,
    which its convolutions want.
    """

    def __init__(
        self,
        convolutions: nn.Sequential,
        shape: Sequence[int],
        widths: Sequence[int],
        channels_first: bool,
        scale: bool,
    ) -> None:
        super().__init__()
        self.channels_first, self.scale = channels_first, scale
        self.convolutions = convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.no_grad():
            flat = self._convolve(torch.zeros(1, *shape)).shape[1]
        self.layers = Layers(flat, widths)
        self.features = self.layers.features

    def forward(self, image: Tensor) -> Tensor:
        """Images (B, H, W, C) or (B, C, H, W) to features (B, F)."""
        return self.layers.forward(self._convolve(image))

    def _convolve(self, image: Tensor) -> Tensor:
        if not self.channels_first:
            image = image.permute(0, 3, 1, 2)
        # A product after the conversion is ten times as fast as a division of integers.
        x = image.float().mul_(1 / 255) if self.scale else image.to(torch.get_default_dtype())
        if self.channels_first:
            x = x.contiguous(memory_format=torch.channels_last)
        return cast(Tensor, self.convolutions(x)).flatten(1)


class NatureCNN(ImageTorso):
    """The torso of Mnih et al. 2015 for 84 × 84 × 4, and for other images of at least 36 × 36."""

    def __init__(self, shape: Sequence[int], widths: Sequence[int], channels_first: bool, scale: bool = True) -> None:
        channels = shape[0] if channels_first else shape[-1]
        convolutions = nn.Sequential(
            *(nn.Conv2d(channels, 32, 8, stride=4), nn.ReLU()),
            *(nn.Conv2d(32, 64, 4, stride=2), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3), nn.ReLU()),
        )
        super().__init__(convolutions, shape, widths, channels_first, scale)


class SmallCNN(ImageTorso):
    """The torso of Young and Tian 2019 for MinAtar's 10 × 10 × C, and for other images of at least 3 × 3."""

    def __init__(self, shape: Sequence[int], widths: Sequence[int], channels_first: bool, scale: bool = False) -> None:
        channels = shape[0] if channels_first else shape[-1]
        super().__init__(nn.Sequential(nn.Conv2d(channels, 16, 3), nn.ReLU()), shape, widths, channels_first, scale)


class Network(nn.Module):
    """Observation → features → the return law of every action."""

    def __init__(self, torso: nn.Module, head: Head) -> None:
        super().__init__()
        self.torso = torso
        self.head = head

    def forward(self, observation: Tensor) -> Law:
        """The laws of all actions; batch shape (B, A)."""
        return self.head.forward(self.torso.forward(observation))

    # Without the modules' hooks: for one observation they take longer than the network.
    __call__ = forward


class RowPass:
    """A network asked for a row or a few at a time: its fully connected torso in NumPy, on views of the weights.

    PyTorch's calls take ten times as long as such a product.
    """

    def __init__(self, network: Network) -> None:
        torso = network.torso
        assert isinstance(torso, MLP)
        views = [weight.detach().numpy() for weight in torso.layers.weights]
        self.network, self.weights = network, [(w.T, b) for w, b in zip(views[::2], views[1::2], strict=True)]

    @staticmethod
    def suits(network: Network) -> bool:
        """Whether the network is one of these, on the CPU."""
        return type(network.torso) is MLP and next(network.parameters()).device.type == "cpu"

    def __call__(self, observation: NDArray[Any]) -> Law:
        """The laws of all actions; shape (B, ...) → batch shape (B, A)."""
        x = observation.reshape(len(observation), -1)
        for weight, bias in self.weights:
            x = x @ weight
            x += bias
            np.maximum(x, 0, out=x)
        return self.network.head.forward(torch.from_numpy(x))


def table(method: Method, states: int, actions: int) -> Network:
    """One independent law for each state-action pair of a finite MDP."""
    return Network(OneHot(states), method.head(states, actions))


def network_for(method: Method, space: gymnasium.Space[object], actions: int, sizes: TorsoSizes, seed: int) -> Network:
    """A torso that suits the observation space under the method's head; the same seed gives the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # modules draw their first weights from the global generator
        torso = torso_for(space, sizes)
        return Network(torso, method.head(cast(int, torso.features), actions))


def torso_for(space: gymnasium.Space[object], sizes: TorsoSizes | None = None) -> nn.Module:
    """The torso that suits an observation space; its `features` attribute says how wide it is.

    >>> type(torso_for(gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8))).__name__
    'NatureCNN'
    """
    sizes = TorsoSizes() if sizes is None else sizes
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Discrete):
        return OneHot(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = space.nvec.ravel().tolist(), np.asarray(space.start).ravel().tolist()
        return MultiOneHot(counts, starts, sizes.mlp)
    if isinstance(space, spaces.MultiBinary):
        return MLP(math.prod(space.shape), sizes.mlp)
    if isinstance(space, spaces.Box):
        return _image_torso(space, sizes) if is_image(space) else MLP(math.prod(space.shape), sizes.mlp)
    raise NfdrlError(
        f"no torso for observations of type {type(space).__name__}: "
        "wrap the environment in gymnasium.wrappers.FlattenObservation"
    )


def is_image(space: gymnasium.spaces.Box) -> bool:
    """Whether a box holds images: three axes, of which the two longest are at least 3 long."""
    return len(space.shape) == 3 and sorted(space.shape)[1] >= 3


def channels_come_first(shape: Sequence[int]) -> bool:
    """Whether (C, H, W): of the first and the last axis the shorter one has the channels; last where equal.

    >>> channels_come_first((4, 84, 84)), channels_come_first((10, 10, 6))
    (True, False)
    """
    return shape[0] < shape[-1]


def _image_torso(space: gymnasium.spaces.Box, sizes: TorsoSizes) -> nn.Module:
    shape, first = space.shape, channels_come_first(space.shape)
    sides = shape[1:] if first else shape[:-1]
    scale = space.dtype == np.uint8
    if min(sides) >= NATURE_LEAST_SIDE:
        return NatureCNN(shape, sizes.image, first, scale)
    if min(sides) >= 3:
        return SmallCNN(shape, sizes.small_image, first, scale)
    return MLP(math.prod(shape), sizes.mlp)
