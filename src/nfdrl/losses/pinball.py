"""Quantile regression losses."""

from __future__ import annotations

import torch
from torch import Tensor

from nfdrl.numerics.expectiles import asymmetric_weight


def quantile_huber(quantiles: Tensor, levels: Tensor, targets: Tensor, threshold: float = 1.0) -> Tensor:
    """Huber quantile regression: Σᵢ Eⱼ |τᵢ − 1{uᵢⱼ < 0}| L_κ(uᵢⱼ)/κ with uᵢⱼ = targetⱼ − quantileᵢ.

    Dabney et al. 2018, Eq. 10 and Algorithm 1, divided by κ as in Dabney et al. 2018b, Eq. 3. The sum runs over
    the N predicted quantiles, the mean over the N′ targets. κ = 0 gives the plain pinball loss, the limit of L_κ/κ.

    Shapes: (..., N), (N,) or (..., N), (..., N′) → (...)
    """
    error = targets.unsqueeze(-2) - quantiles.unsqueeze(-1)
    # L_κ(u)/κ = s(u − κs/2) with the slope s = clip(u, ±κ)/κ, and its derivative is s: the part through s itself
    # vanishes. So s needs no gradient, and the backward pass is one product instead of six.
    with torch.no_grad():
        slope = error.clamp(-threshold, threshold) / threshold if threshold > 0 else error.sign()
        share = slope * asymmetric_weight(error, levels.unsqueeze(-1)) / targets.shape[-1]
    return (share * (error - 0.5 * threshold * slope)).sum((-2, -1))
