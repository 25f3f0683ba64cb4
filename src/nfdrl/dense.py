"""Fully connected layers in NumPy, forward and backward, on views of a network's parameters and gradients.

For batches of a hundred rows most of PyTorch's time goes into its own calls and its graph. NumPy's calls take a
quarter of that, and a chain of linear layers needs no graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]


Layer = nn.Linear | nn.Conv2d


class Patches:
    """The patches of an image that a convolution of stride 1 without padding sees, as rows: it is linear in them."""

    def __init__(self, height: int, width: int, channels: int, kernel: int) -> None:
        whole = np.arange(height * width * channels).reshape(height, width, channels)
        windows = np.lib.stride_tricks.sliding_window_view(whole, (kernel, kernel), (0, 1))
        self.size = kernel * kernel * channels
        self.index = np.moveaxis(windows, 2, -1).ravel()  # position by position, each in the order of the image

    def __call__(self, x: Array) -> Array:
        """Images (B, H · W · C) to rows (B · positions, kernel² · C)."""
        return x.take(self.index, axis=1).reshape(-1, self.size)


class Dense:
    """Linear layers with ReLU behind the first `rectified` of them; float32 on the CPU.

    The first may be a convolution, with its `patches`. The arrays are views: they follow the weights wherever PyTorch
    moves them in place.
    """

    def __init__(self, layers: Sequence[Layer], rectified: int, patches: Patches | None = None) -> None:
        self.rectified, self.patches = rectified, patches
        self.address = layers[0].weight.data_ptr()  # elsewhere, the views are stale
        self._weights = [_view(layer.weight.detach()) for layer in layers]
        self._transposed = [weight.T for weight in self._weights]
        self._biases = [_view(cast(Tensor, layer.bias).detach()) for layer in layers]
        gradients = [(layer.weight.grad, cast(Tensor, layer.bias).grad) for layer in layers]
        self._into = [(None if w is None or b is None else (_view(w), _view(b))) for w, b in gradients]

    @staticmethod
    def suits(layers: Sequence[Layer]) -> bool:
        """Whether there are layers, all in float32 on the CPU."""
        parameters = [p for layer in layers for p in layer.parameters()]
        return bool(parameters) and all(p.device.type == "cpu" and p.dtype == torch.float32 for p in parameters)

    def forward(self, x: Array) -> list[Array]:
        """The input (B, F), or its patches, and the output of every layer."""
        outputs = [x if self.patches is None else self.patches(x)]
        for k, (weight, bias) in enumerate(zip(self._transposed, self._biases, strict=True)):
            y = outputs[-1] @ weight
            y += bias
            if k < self.rectified:
                np.maximum(y, 0, out=y)
            outputs.append(y if k or self.patches is None else y.reshape(len(x), -1))
        return outputs

    def backward(self, outputs: Sequence[Array], grad: Array, to_input: bool) -> Array | None:
        """Set the parameters' gradients from that of the last output; the input's, where it is asked for."""
        for k in reversed(range(len(self._weights))):
            if k < self.rectified:
                grad = grad * (outputs[k + 1] > 0)
            if k == 0 and self.patches is not None:
                grad = grad.reshape(len(outputs[0]), -1)
            into = self._into[k]
            assert into is not None, "the parameters had no gradients when the views were made"
            np.matmul(grad.T, outputs[k], out=into[0])
            np.matmul(np.ones(len(grad), np.float32), grad, out=into[1])  # a column sum, as it is fastest
            if k or to_input:
                grad = grad @ self._weights[k]
        return grad if to_input else None


def _view(tensor: Tensor) -> Array:
    """Its memory; the kernels of a convolution, which lie channels-last, as rows."""
    array: Array = (tensor if tensor.ndim < 4 else tensor.permute(0, 2, 3, 1)).numpy()
    rows = array if tensor.ndim < 4 else array.reshape(len(array), -1)
    assert np.may_share_memory(rows, array)
    return rows
