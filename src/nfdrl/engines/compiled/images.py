"""The convolution of small images: sums over what is set in planes of truth values, products of patches for others.

An image of truth values is mostly empty. MinAtar sets 10 to 40 of its 400 to 1,000 cells, each of which reaches at most
nine positions of the output, so adding a few rows of weights takes a fraction of the time of a product.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nfdrl.engines.compiled.jit import Array, compiled
from nfdrl.torsos import SmallCNN

FILTERS = SmallCNN.FILTERS  # a constant, so that a row of weights is one or two registers


class SmallImages:
    """A convolution of stride 1 without padding on images (H, W, C), as a linear layer."""

    def __init__(self, height: int, width: int, channels: int, kernel: int) -> None:
        whole = np.arange(height * width * channels).reshape(height, width, channels)
        windows = np.lib.stride_tricks.sliding_window_view(whole, (kernel, kernel), (0, 1))
        taps = np.moveaxis(windows, 2, -1)  # (H', W', kernel, kernel, C): each position in the order of the image
        self.cells, self.positions = whole.size, taps.shape[0] * taps.shape[1]
        self.patches = taps.reshape(self.positions, -1)

    @cached_property
    def reach(self) -> Array:
        """Where each cell is seen."""
        return _reach(self.patches, self.cells)

    def see(self, x: Array) -> Array:
        """Of truth values (B, cells) those that are set, counted through the batch; of others rows of taps."""
        if x.dtype == np.bool_:
            return np.flatnonzero(x)
        return x.take(self.patches.ravel(), axis=1).reshape(-1, self.patches.shape[1])

    def first(self, seen: Array, count: int) -> Array:
        """What is seen of the first `count` images."""
        if seen.ndim == 1:
            return seen[: np.searchsorted(seen, count * self.cells)]
        return seen[: count * self.positions]

    def forward(self, seen: Array, count: int, weight: Array, bias: Array) -> Array:
        """The output (B, positions · filters) for a weight (filters, taps)."""
        if seen.ndim == 1:
            out = np.empty((count, self.positions, FILTERS), np.float32)
            _add_rows(seen, self.reach, np.ascontiguousarray(weight.T), bias, out)
        else:
            out = seen @ weight.T
            out += bias
        return out.reshape(count, -1)

    def backward(self, seen: Array, grad: Array, into: Array) -> None:
        """Write the gradient of the weight from that of the output."""
        if seen.ndim == 1:
            sums = np.zeros(into.T.shape, np.float32)
            _sum_rows(seen, self.reach, grad.reshape(-1, self.positions, FILTERS), sums)
            into[:] = sums.T
        else:
            np.matmul(grad.reshape(len(seen), -1).T, seen, out=into)


def small_rows(torso: SmallCNN, observation: Tensor) -> Tensor:
    """Images to rows (B, H · W · C): truth values as they are, others as floats."""
    if observation.dtype == torch.bool and observation.ndim == 4:
        observation = observation.permute(0, 2, 3, 1) if torso.channels_first else observation
        return observation.flatten(1)
    return torso.channels_last(observation).flatten(1)


def _reach(patches: Array, cells: int) -> Array:
    """For each cell, the positions that see it and the tap by which each does; (cells, most, 2), −1 where no more."""
    by_cell = np.argsort(patches.ravel(), kind="stable")
    seen_by = np.bincount(patches.ravel(), minlength=cells)
    cell = np.repeat(np.arange(cells), seen_by)
    turn = np.arange(patches.size) - np.repeat(seen_by.cumsum() - seen_by, seen_by)
    reach = np.full((cells, seen_by.max(), 2), -1)
    reach[cell, turn] = np.stack(np.divmod(by_cell, patches.shape[1]), -1)
    return reach


@compiled
def _add_rows(found: Array, reach: Array, weights: Array, bias: Array, out: Array) -> None:
    """The bias, plus the row of weights of every tap that sees a cell that is set."""
    for image in range(out.shape[0]):
        for position in range(out.shape[1]):
            for k in range(FILTERS):
                out[image, position, k] = bias[k]
    image, start, cells = 0, 0, len(reach)
    for place in found:
        while place - start >= cells:
            image, start = image + 1, start + cells
        cell = place - start
        for n in range(reach.shape[1]):
            position, tap = reach[cell, n, 0], reach[cell, n, 1]
            if position < 0:
                break
            for k in range(FILTERS):
                out[image, position, k] += weights[tap, k]


@compiled
def _sum_rows(found: Array, reach: Array, grad: Array, sums: Array) -> None:
    """To the row of every tap, the gradients of the positions at which it sees a cell that is set."""
    image, start, cells = 0, 0, len(reach)
    for place in found:
        while place - start >= cells:
            image, start = image + 1, start + cells
        cell = place - start
        for n in range(reach.shape[1]):
            position, tap = reach[cell, n, 0], reach[cell, n, 1]
            if position < 0:
                break
            for k in range(FILTERS):
                sums[tap, k] += grad[image, position, k]
