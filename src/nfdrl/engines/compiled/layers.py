"""The linear layers of a network in NumPy, forward and backward, on views of its parameters and gradients.

For batches of a hundred rows most of PyTorch's time goes into its own calls and its graph. NumPy's calls take a
quarter of that, and a chain of linear layers needs no graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nfdrl.engines.compiled.images import SmallImages, small_rows
from nfdrl.errors import NfdrlError
from nfdrl.laws.base import Law, LinearHead
from nfdrl.networks import Network
from nfdrl.observations import Observation
from nfdrl.torsos import SmallCNN, Torso

Array = NDArray[Any]
Layer = nn.Linear | nn.Conv2d


class Dense:
    """Linear layers, the first `rectified` of them followed by ReLU; float32 on the CPU.

    The first may be a convolution of small `images`. The arrays are views: they see every change that PyTorch makes to
    the weights in place.
    """

    def __init__(self, layers: Sequence[Layer], rectified: int, images: SmallImages | None = None) -> None:
        self.rectified, self.images = rectified, images
        self._weights = [_view(layer.weight.detach()) for layer in layers]
        self._transposed = [weight.T for weight in self._weights]
        self._biases = [_view(cast(Tensor, layer.bias).detach()) for layer in layers]
        gradients = [(layer.weight.grad, cast(Tensor, layer.bias).grad) for layer in layers]
        self._into = [(None if w is None or b is None else (_view(w), _view(b))) for w, b in gradients]

    def forward(self, x: Array) -> list[Array]:
        """The input (B, F), or what the convolution sees of it, and the output of every layer."""
        outputs = [x if self.images is None else self.images.see(x)]
        for k, (weight, bias) in enumerate(zip(self._transposed, self._biases, strict=True)):
            if k == 0 and self.images is not None:
                y = self.images.forward(outputs[0], len(x), self._weights[0], bias)
            else:
                y = outputs[-1] @ weight
                y += bias
            if k < self.rectified:
                np.maximum(y, 0, out=y)
            outputs.append(y)
        return outputs

    def first(self, outputs: Sequence[Array], count: int) -> list[Array]:
        """What `forward` would have returned for the first `count` rows of its input alone."""
        seen = outputs[0][:count] if self.images is None else self.images.first(outputs[0], count)
        return [seen, *(output[:count] for output in outputs[1:])]

    def backward(self, outputs: Sequence[Array], grad: Array, to_input: bool) -> Array | None:
        """Set the parameters' gradients from that of the last output; return the input's if asked."""
        for k in reversed(range(len(self._weights))):
            if k < self.rectified:
                grad = grad * (outputs[k + 1] > 0)
            into = self._into[k]
            assert into is not None, "the parameters had no gradients when the views were made"
            if k == 0 and self.images is not None:
                self.images.backward(outputs[0], grad, into[0])
                grad = grad.reshape(-1, len(into[1]))  # positions of all images, each with its filters
            else:
                np.matmul(grad.T, outputs[k], out=into[0])
            np.matmul(np.ones(len(grad), np.float32), grad, out=into[1])  # the fastest way to a column sum
            if k or to_input:
                grad = grad @ self._weights[k]
        return grad if to_input else None


class Trunk:
    """A network up to the outputs of its linear layers; the stem before them stays in PyTorch."""

    def __init__(self, network: Network) -> None:
        self.head, torso = network.head, cast(Torso, network.torso)
        self.layers = linear_layers(network)
        self._stem: Callable[[Any], Tensor] = torso.stem
        self._images = None
        normaliser = network.normaliser
        if normaliser is not None:
            self._stem = lambda observation: torso.stem(cast(Tensor, normaliser(observation)))
        parameters = [p for name, p in torso.named_parameters() if not name.startswith("layers.")]
        if isinstance(torso, SmallCNN):  # whose convolution is small enough to be the first of the linear layers
            image, parameters = torso, []
            self._stem = lambda observation: small_rows(image, observation)
            self._images = SmallImages(*torso.image, torso.KERNEL)
        self.learned = any(p.requires_grad for p in parameters)  # whether the stem is
        self.plain = not parameters  # no gradients to turn off, which would take time
        self._first = next(part.weight for part in (*self.layers, *self.head.modules()) if isinstance(part, Layer))
        self._find()

    def _find(self) -> None:
        """Find weights and gradients, which may have moved in memory."""
        weight = self._first
        if weight.device.type != "cpu" or weight.dtype != torch.float32:
            raise NfdrlError(
                f"the compiled engine needs torch.float32 weights on the CPU, got {weight.dtype} on {weight.device}: "
                "set engine='graph'"
            )
        self._address = weight.data_ptr()
        rectified = len(self.layers) - isinstance(self.head, LinearHead)
        self._dense = Dense(self.layers, rectified, self._images)

    @property
    def dense(self) -> Dense:
        """The linear layers, on the current weights."""
        if self._first.data_ptr() != self._address:
            self._find()
        return self._dense

    def stem(self, observation: Observation) -> Tensor:
        """The input of the linear layers; shape (B, ...) → (B, F)."""
        return self._stem(observation)

    def outputs(self, observation: Observation) -> Array:
        """The output of the linear layers, without gradients; shape (B, ...) → (B, outputs)."""
        if self.plain:
            return self.dense.forward(self.stem(observation).numpy())[-1]
        with torch.no_grad():
            return self.dense.forward(self.stem(observation).numpy())[-1]

    def law(self, outputs: Tensor) -> Law:
        """The laws that such outputs stand for."""
        return self.head.read(outputs) if isinstance(self.head, LinearHead) else self.head(outputs)

    @torch.no_grad()
    def laws(self, observation: Observation) -> Law:
        """The laws of all actions, without gradients."""
        return self.law(torch.from_numpy(self.outputs(observation)))


def linear_layers(network: Network) -> list[Layer]:
    """The layers that a trunk runs in NumPy; none if the torso is not one of ours."""
    torso = network.torso
    if not isinstance(torso, Torso):
        return []
    first = [cast(Any, torso.convolutions)[0]] if isinstance(torso, SmallCNN) else []
    last = [network.head.linear] if isinstance(network.head, LinearHead) else []
    return cast(list[Layer], [*first, *torso.layers, *last])


def _view(tensor: Tensor) -> Array:
    """Its memory as an array; the kernels of a convolution, stored channels-last, as rows."""
    array: Array = (tensor if tensor.ndim < 4 else tensor.permute(0, 2, 3, 1)).numpy()
    rows = array if tensor.ndim < 4 else array.reshape(len(array), -1)
    assert np.may_share_memory(rows, array)
    return rows
