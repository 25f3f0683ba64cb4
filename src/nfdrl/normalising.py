"""Observations brought to mean 0 and variance 1 by what training has seen."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nfdrl.errors import NfdrlError
from nfdrl.observations import WHOLE, Observation, parts_of

LIMIT = 10.0  # Stable-Baselines3's VecNormalize: clip_obs
LEAST_VARIANCE = 1e-8  # Stable-Baselines3's VecNormalize: epsilon


class Normaliser(nn.Module):
    """(x − mean)/std, clipped, for each part that holds numbers; other parts pass through.

    Mean and sum of squares are those of all observations that `update` has seen, in float64. They are buffers, so a
    checkpoint and an exported policy have them; only training updates them.
    """

    def __init__(self, space: gymnasium.Space[Any], numbers: list[str]) -> None:
        super().__init__()
        parts = parts_of(space)
        self.places = {name: k for k, name in enumerate(numbers)}  # a buffer's name must not have dots
        for k, name in enumerate(numbers):
            shape = parts[name].shape
            assert shape is not None
            for kind in ("mean", "square"):
                self.register_buffer(f"{kind}_{k}", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        if not numbers:
            raise NfdrlError(f"normalise_observations needs a Box of numbers, but observations are {space}")

    def forward(self, observation: Observation) -> Observation:
        """Observations with every part of numbers normalised, in the default dtype."""
        if isinstance(observation, Tensor):
            return self._normalised(observation, self.places[WHOLE])
        places = self.places
        return {n: self._normalised(x, places[n]) if n in places else x for n, x in observation.items()}

    def _normalised(self, x: Tensor, k: int) -> Tensor:
        dtype = torch.get_default_dtype()
        mean, square = self.get_buffer(f"mean_{k}"), self.get_buffer(f"square_{k}")
        count = self.get_buffer("count")
        variance = torch.where(count > 0, square / count.clamp_min(1), torch.ones_like(square))
        rate = (variance + LEAST_VARIANCE).rsqrt()
        return ((x.to(dtype) - mean.to(dtype)) * rate.to(dtype)).clamp(-LIMIT, LIMIT)

    @torch.no_grad()
    def update(self, rows: NDArray[Any]) -> None:
        """Take a batch of observations into account (Chan, Golub and LeVeque 1983, eq. 2.1)."""
        count = self.get_buffer("count")
        new = float(len(rows))
        total = count + new
        for name, k in self.places.items():
            values = np.asarray(rows[name] if rows.dtype.names else rows, dtype=np.float64)
            centre = values.mean(0)
            spread = np.square(values - centre).sum(0)
            mean, square = self.get_buffer(f"mean_{k}"), self.get_buffer(f"square_{k}")
            gap = torch.as_tensor(centre, device=mean.device) - mean
            mean += gap * (new / total)
            square += torch.as_tensor(spread, device=mean.device) + gap.square() * (count * new / total)
        count += new
