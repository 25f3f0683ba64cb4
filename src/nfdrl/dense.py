"""Fully connected layers in NumPy, forward and backward, on views of a network's parameters and gradients.

For batches of a hundred rows most of PyTorch's time goes into its own calls and its graph. NumPy's calls take a
quarter of that, and a chain of linear layers needs no graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]


class Dense:
    """Linear layers with ReLU behind the first `rectified` of them; float32 on the CPU.

    The arrays are views: they follow the weights wherever PyTorch moves them in place.
    """

    def __init__(self, layers: Sequence[nn.Linear], rectified: int) -> None:
        self.rectified = rectified
        self.address = layers[0].weight.data_ptr()  # elsewhere, the views are stale
        self.size = sum(p.numel() for layer in layers for p in layer.parameters())
        self._weights = [_view(layer.weight.detach()) for layer in layers]
        self._transposed = [weight.T for weight in self._weights]
        self._biases = [_view(layer.bias.detach()) for layer in layers]
        self._gradients = [(layer.weight.grad, layer.bias.grad) for layer in layers]
        self._into = [(None if w is None or b is None else (_view(w), _view(b))) for w, b in self._gradients]

    @staticmethod
    def suits(layers: Sequence[nn.Linear]) -> bool:
        """Whether there are layers, all in float32 on the CPU."""
        parameters = [p for layer in layers for p in layer.parameters()]
        return bool(parameters) and all(p.device.type == "cpu" and p.dtype == torch.float32 for p in parameters)

    def forward(self, x: Array) -> list[Array]:
        """The input (B, F) and the output of every layer."""
        outputs = [x]
        for k, (weight, bias) in enumerate(zip(self._transposed, self._biases, strict=True)):
            y = outputs[-1] @ weight
            y += bias
            if k < self.rectified:
                np.maximum(y, 0, out=y)
            outputs.append(y)
        return outputs

    def backward(self, outputs: Sequence[Array], grad: Array, to_input: bool) -> Array | None:
        """Set the parameters' gradients from that of the last output; the input's, where it is asked for."""
        ones = np.ones(len(grad), np.float32)
        for k in reversed(range(len(self._weights))):
            if k < self.rectified:
                grad = grad * (outputs[k + 1] > 0)
            into = self._into[k]
            assert into is not None, "the parameters had no gradients when the views were made"
            np.matmul(grad.T, outputs[k], out=into[0])
            np.matmul(ones, grad, out=into[1])  # a column sum, by the library that is fastest at it
            if k or to_input:
                grad = grad @ self._weights[k]
        return grad if to_input else None


def _view(tensor: Tensor) -> Array:
    array: Array = tensor.numpy()
    return array
