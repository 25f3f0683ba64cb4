"""Torsos, and the choice of one for an observation space."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from nfdrl.errors import NfdrlError
from nfdrl.observations import has_parts, parts_of

NATURE_LEAST_SIDE = 36  # the three convolutions of Mnih et al. 2015 leave nothing of a smaller image
NATURE_RATE = 1e-4  # Stable-Baselines3's and CleanRL's DQN; twice that left 59 % of a layer dead on Pong
SMALL_RATE = 2.5e-4  # Young and Tian 2019; 1e-3 left 95 % of a layer dead on MinAtar's Asterix


@dataclass(frozen=True)
class TorsoSizes:
    """Widths of the fully connected layers."""

    # layers for observations that are no images
    mlp: tuple[int, ...] = (128, 128)  # ours: two layers, wide enough for classic control, narrow enough for a CPU
    # layers after the convolutions of an image
    image: tuple[int, ...] = (512,)  # Mnih et al. 2015, Methods
    # layers after the convolution of an image of less than 36 pixels
    small_image: tuple[int, ...] = (128,)  # Young and Tian 2019 (MinAtar), Section 3
    # layers on the one-hot row of a state that is one of n
    states: tuple[int, ...] = ()  # ours: without any, a linear head is a table; IQN and FQF have (64,)

    def __post_init__(self) -> None:
        for name in ("mlp", "image", "small_image", "states"):
            widths = getattr(self, name)
            if any(width < 1 for width in widths):
                raise NfdrlError(f"widths of {name} layers must be at least 1, got {widths}")


class Layers(nn.ModuleList):
    """Linear layers, each followed by ReLU."""

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        sizes = [inputs, *widths]
        super().__init__(nn.Linear(n, m) for n, m in pairwise(sizes))
        self.features = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Rows (B, F) to rows (B, last width)."""
        for layer in self:
            x = nn.functional.relu(layer(x))
        return x


class Torso(nn.Module, ABC):
    """Observations to features: a stem that turns them into rows, then any number of fully connected layers."""

    def __init__(self, inputs: int, widths: Sequence[int], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():  # of the stem
            self.add_module(name, part)
        self.layers = Layers(inputs, widths)
        self.features = self.layers.features

    @abstractmethod
    def stem(self, observation: Tensor) -> Tensor:
        """Observations (B, ...) to rows (B, inputs)."""

    def forward(self, observation: Tensor) -> Tensor:
        """Observations (B, ...) to features (B, F)."""
        features: Tensor = self.layers(self.stem(observation))
        return features


class OneHot(Torso):
    """A finite state as a one-hot row, then fully connected layers; without them a linear head on it is a table."""

    def __init__(self, n: int, start: int = 0, widths: Sequence[int] = ()) -> None:
        super().__init__(n, widths)
        self.n, self.start = n, start

    def stem(self, observation: Tensor) -> Tensor:
        """Integers (...) to rows (..., n)."""
        index = observation.long() - self.start
        return nn.functional.one_hot(index, self.n).to(torch.get_default_dtype())


class MultiOneHot(Torso):
    """Several finite coordinates, each as a one-hot row, side by side, then fully connected layers."""

    def __init__(self, sizes: Sequence[int], starts: Sequence[int], widths: Sequence[int]) -> None:
        super().__init__(sum(sizes), widths)
        self.parts = [OneHot(n, start) for n, start in zip(sizes, starts, strict=True)]

    def stem(self, observation: Tensor) -> Tensor:
        columns = observation.flatten(1).unbind(-1)
        return torch.cat([part(column) for part, column in zip(self.parts, columns, strict=True)], -1)


class MLP(Torso):
    """Fully connected layers with ReLU on the flattened observation."""

    def stem(self, observation: Tensor) -> Tensor:
        if observation.ndim != 2:
            observation = observation.reshape(len(observation), -1)
        if not observation.is_floating_point():
            observation = observation.to(torch.get_default_dtype())
        return observation


class ImageTorso(Torso):
    """Convolutions, then fully connected layers, on images of either channel order, or without channels.

    Of several images at once, (S, H, W, C), all channels are stacked.
    """

    def __init__(
        self,
        convolutions: nn.Sequential,
        shape: Sequence[int],
        widths: Sequence[int],
        channels_first: bool,
        scale: bool,
    ) -> None:
        with torch.no_grad():
            channels, height, width = _image_sizes(shape, channels_first)
            flat = convolutions(torch.zeros(1, channels, height, width)).numel()
        convolutions = convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        super().__init__(flat, widths, convolutions=convolutions)
        self.channels_first, self.scale = channels_first, scale

    def stem(self, observation: Tensor) -> Tensor:
        """Images (B, H, W, C) or (B, C, H, W) to rows."""
        return self.convolve(self.channels_last(observation)).flatten(1)

    def convolve(self, image: Tensor) -> Tensor:
        """Floats (B, H, W, C) to (B, C′, H′, W′), stored channels-last, as PyTorch's convolutions prefer."""
        features: Tensor = cast(Any, self.convolutions)(image.permute(0, 3, 1, 2))
        return features

    def channels_last(self, observation: Tensor) -> Tensor:
        """Images of either order as floats (B, H, W, C), bytes divided by 255."""
        dtype = torch.float32 if self.scale else torch.get_default_dtype()
        if observation.ndim == 3:
            observation = observation.unsqueeze(-1)
        elif observation.ndim == 5 and self.channels_first:
            observation = observation.flatten(1, 2)
        elif observation.ndim == 5:
            observation = observation.permute(0, 2, 3, 1, 4).flatten(3)
        if self.channels_first:  # convert the type and move the axis in one pass, channel by channel
            batch, channels, *sides = observation.shape
            image = torch.empty(batch, *sides, channels, dtype=dtype, device=observation.device)
            for k in range(channels):
                image[..., k].copy_(observation[:, k])
        else:
            image = observation.to(dtype)
        # A product after the conversion is ten times as fast as dividing integers.
        return image.mul_(1 / 255) if self.scale else image


class NatureCNN(ImageTorso):
    """The torso of Mnih et al. 2015 for 84 × 84 × 4, and for other images of at least 36 × 36.

    Its initial weights are those of He et al. 2015. PyTorch's own shrink the difference between two images to a
    thirtieth on the way through four layers: what all images share then moves the weights until no unit responds.
    """

    def __init__(self, shape: Sequence[int], widths: Sequence[int], channels_first: bool, scale: bool = True) -> None:
        channels, _, _ = _image_sizes(shape, channels_first)
        convolutions = nn.Sequential(
            *(nn.Conv2d(channels, 32, 8, stride=4), nn.ReLU(inplace=True)),
            *(nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(inplace=True)),
            *(nn.Conv2d(64, 64, 3), nn.ReLU(inplace=True)),
        )
        super().__init__(convolutions, shape, widths, channels_first, scale)
        for layer in (*convolutions, *self.layers):
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(cast(Tensor, layer.bias))


class SmallCNN(ImageTorso):
    """The torso of Young and Tian 2019 for MinAtar's 10 × 10 × C, and for other images of at least 3 × 3."""

    KERNEL, FILTERS = 3, 16

    def __init__(self, shape: Sequence[int], widths: Sequence[int], channels_first: bool, scale: bool = False) -> None:
        channels, height, width = _image_sizes(shape, channels_first)
        convolutions = nn.Sequential(nn.Conv2d(channels, self.FILTERS, self.KERNEL), nn.ReLU(inplace=True))
        super().__init__(convolutions, shape, widths, channels_first, scale)
        self.image = height, width, channels

    def stem(self, observation: Tensor) -> Tensor:
        """Images to rows, position by position."""
        return self.convolve(self.channels_last(observation)).permute(0, 2, 3, 1).flatten(1)


class Parts(nn.Module):
    """A torso per part of an observation, their features side by side, then fully connected layers on all of them."""

    def __init__(self, torsos: dict[str, nn.Module], widths: Sequence[int]) -> None:
        super().__init__()
        self.names = [*torsos]
        self.torsos = nn.ModuleList(torsos.values())
        self.layers = Layers(sum(cast(int, torso.features) for torso in torsos.values()), widths)
        self.features = self.layers.features

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """Parts (B, ...) to features (B, F)."""
        side_by_side = [torso(observation[name]) for name, torso in zip(self.names, self.torsos, strict=True)]
        features: Tensor = self.layers(torch.cat(side_by_side, -1))
        return features


def torso_for(space: gymnasium.Space[Any], sizes: TorsoSizes | None = None) -> nn.Module:
    """The torso that suits an observation space; its `features` attribute says how wide it is.

    >>> type(torso_for(gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8))).__name__
    'NatureCNN'
    """
    sizes = TorsoSizes() if sizes is None else sizes
    spaces = gymnasium.spaces
    if has_parts(space):  # only images have layers of their own: what relates the parts is learned on top of all
        bare = replace(sizes, mlp=(), states=())
        return Parts({name: torso_for(part, bare) for name, part in parts_of(space).items()}, sizes.mlp)
    if isinstance(space, spaces.Discrete):
        return OneHot(int(space.n), int(space.start), sizes.states)
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = space.nvec.ravel().tolist(), np.asarray(space.start).ravel().tolist()
        return MultiOneHot(counts, starts, sizes.mlp)
    if isinstance(space, spaces.MultiBinary):
        return MLP(math.prod(space.shape), sizes.mlp)
    if isinstance(space, spaces.Box):
        return _image_torso(space, sizes) if is_image(space) else MLP(math.prod(space.shape), sizes.mlp)
    raise NfdrlError(f"no torso for observations of type {type(space).__name__}: pass one as `torso`")


def is_image(space: gymnasium.spaces.Box) -> bool:
    """Whether a box holds images.

    That is, three axes, the two longest of them at least 3; of bytes also several such images, (S, H, W, C), and an
    image without channels, (H, W).
    """
    shape = space.shape
    if len(shape) == 2:
        return space.dtype == np.uint8 and min(shape) >= 3
    return (len(shape) == 3 or (len(shape) == 4 and space.dtype == np.uint8)) and sorted(shape[-3:])[1] >= 3


def channels_come_first(shape: Sequence[int]) -> bool:
    """Whether (C, H, W): the shorter of the first and the last axis holds the channels; the last if they are equal.

    >>> channels_come_first((4, 84, 84)), channels_come_first((10, 10, 6))
    (True, False)
    """
    return shape[0] < shape[-1]


def _image_sizes(shape: Sequence[int], channels_first: bool) -> tuple[int, int, int]:
    """Channels, height and width."""
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    channels, height, width = shape[-3:] if channels_first else (shape[-1], *shape[-3:-1])
    return channels * math.prod(shape[:-3]), height, width


def _image_torso(space: gymnasium.spaces.Box, sizes: TorsoSizes) -> nn.Module:
    first, side = _first_and_side(space.shape)
    scale = space.dtype == np.uint8
    if side >= NATURE_LEAST_SIDE:
        return NatureCNN(space.shape, sizes.image, first, scale)
    if side >= 3:
        return SmallCNN(space.shape, sizes.small_image, first, scale)
    return MLP(math.prod(space.shape), sizes.mlp)


def _first_and_side(shape: Sequence[int]) -> tuple[bool, int]:
    """Whether channels come first, and the shorter side of the image."""
    first = len(shape) > 2 and channels_come_first(shape[-3:])
    return first, min(_image_sizes(shape, first)[1:])


def is_small_image(space: gymnasium.Space[Any]) -> bool:
    """Whether a network of one small convolution sees it, as MinAtar's games.

    >>> [is_small_image(gymnasium.spaces.Box(0, 255, (side, side, 4), np.uint8)) for side in (10, 84)]
    [True, False]
    """
    if not isinstance(space, gymnasium.spaces.Box) or not is_image(space):
        return False
    return 3 <= _first_and_side(space.shape)[1] < NATURE_LEAST_SIDE


def highest_rate(space: gymnasium.Space[Any]) -> float:
    """The largest learning rate that is taken where nobody gives one: at larger ones units of a convolution die.

    >>> highest_rate(gymnasium.spaces.Box(0, 1, (10, 10, 4), bool)), highest_rate(gymnasium.spaces.Discrete(16))
    (0.00025, inf)
    """
    if has_parts(space):
        return min(map(highest_rate, parts_of(space).values()), default=math.inf)
    if not isinstance(space, gymnasium.spaces.Box) or not is_image(space):
        return math.inf
    side = _first_and_side(space.shape)[1]
    return NATURE_RATE if side >= NATURE_LEAST_SIDE else SMALL_RATE if side >= 3 else math.inf
