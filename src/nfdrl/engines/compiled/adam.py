"""Adam in one compiled pass over the weights."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from nfdrl.engines.base import Adam
from nfdrl.engines.compiled.jit import ZERO, Array, F, compiled

BETA_1, BETA_2 = 0.9, 0.999  # Kingma and Ba 2015, Algorithm 1
KEPT_1, KEPT_2 = F(1 - BETA_1), F(1 - BETA_2)
TINY = np.finfo(F).tiny  # the least normal number


class NumbaAdam(Adam):
    """Adam on a flat float32 tensor on the CPU."""

    def __init__(self, weights: Tensor, gradient: Tensor, learning_rate: float, eps: float) -> None:
        self.learning_rate, self.eps = learning_rate, eps
        self.state = {"mean": torch.zeros_like(weights), "square": torch.zeros_like(weights), "step": torch.zeros(())}
        mean, square = self.state["mean"].numpy(), self.state["square"].numpy()
        self._arrays = weights.numpy(), gradient.numpy(), mean, square
        self._step = self.state["step"].numpy()

    def step(self, scale: float) -> None:
        self._step += 1
        done = float(self._step)
        rate = self.learning_rate / (1 - BETA_1**done)
        root = 1 / math.sqrt(1 - BETA_2**done)
        _move(*self._arrays, F(rate), F(root), F(self.eps), F(scale))


@compiled
def _move(weights: Array, gradient: Array, mean: Array, square: Array, rate: F, root: F, eps: F, scale: F) -> None:
    """One step: means of the gradient and of its square, both rid of their bias by `rate` and `root`."""
    for i in range(len(weights)):
        g = gradient[i] * scale
        m = mean[i] + KEPT_1 * (g - mean[i])
        v = square[i] + KEPT_2 * (g * g - square[i])
        # Without a gradient for a thousand updates the mean would become subnormal, and rounding would keep it there:
        # it moves no weight, but every operation on it takes a hundred times as long.
        m = m if abs(m) >= TINY else ZERO
        v = v if v >= TINY else ZERO
        mean[i], square[i] = m, v
        weights[i] -= rate * m / (F(math.sqrt(v)) * root + eps)
