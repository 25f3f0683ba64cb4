"""The update of a flow law through compiled functions; needs Numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from nfdrl.laws.direct import Direct
from nfdrl.losses.cramer import grid_of, smooth_twice
from nfdrl.numerics import fused
from nfdrl.numerics.base_points import base_points

if TYPE_CHECKING:
    from nfdrl.laws.flow import FlowMethod

Array = NDArray[Any]
F = np.float32


class FlowDirect(Direct):
    """`FlowMethod` on raw outputs, for its exact and its grid distances with a relative bandwidth."""

    def __init__(self, method: FlowMethod, shift: Array, least_scale: float, generator: torch.Generator | None) -> None:
        self.method, self.generator = method, generator
        least = method.held * method.initial_bound
        self._law = shift, F(least_scale), F(least), F(method.initial_bound - least)
        self._how, self._gain = method.comparison, F(method.gain())

    def means(self, raw: Array) -> Array:
        """The closed form of every law."""
        found: Array = fused.means(raw.reshape(-1, raw.shape[-1]), self._law)
        return found.reshape(raw.shape[:-1])

    def differentiate(
        self, raw: Array, action: Array, following: Array, chosen: Array, reward: Array, discount: Array
    ) -> tuple[Array, Array]:
        """Both laws at the same base points, their distance, and its way back."""
        method, how = self.method, self._how
        z = base_points(method.samples, method.points, like=torch.empty(0), generator=self.generator).numpy()
        transition = raw, action, following, chosen, reward, discount, F(method.terminal_std), z, self._law
        found: tuple[Array, Array]
        if how.distance == "exact":
            found = fused.exactly(transition)
            return found
        size, weighs = how.points(method.samples), (how.distance == "surrogate", self._gain)
        (steps, margins, offset, inner), form = grid_of(size, how)
        masses, rest = fused.on_grid(transition, (F(steps), F(margins), F(offset), inner))
        pull = smooth_twice(torch.from_numpy(masses), how).numpy() if form is None else masses @ form
        found = fused.back(masses, pull, rest, action, raw.shape[1], z, self._law, *weighs)
        return found
