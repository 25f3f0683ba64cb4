"""How far a learned law is from the truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from nfdrl.errors import NfdrlError
from nfdrl.laws.base import Law
from nfdrl.laws.mixture import MixtureLaw

Floats = NDArray[np.float64]

LEVELS = 16_384  # quantiles that represent a law: a step is smeared over 1/16,384 of probability
TAIL_LEVELS = (1e-6, 1e-5)  # in addition, at both ends
SMOOTH_POINTS = 65_536  # grid points for all Gaussian components of one truth together
QUANTILES_AT_ONCE = 4_000_000


def cramer(law: Law, truth: MixtureLaw) -> float:
    """ℓ₂ = (∫ (F − G)² dy)^½."""
    return float(_cdf_distances(law, [truth])[0][0])


def wasserstein1(law: Law, truth: MixtureLaw) -> float:
    """W₁ = ∫ |F − G| dy."""
    return float(_cdf_distances(law, [truth])[1][0])


def distances(law: Law, truth: MixtureLaw, alpha: float = 0.1) -> dict[str, float]:
    """All four distances between one law, without a batch axis, and its truth."""
    return {name: float(value[0]) for name, value in batch_distances(law, [truth], alpha).items()}


def batch_distances(law: Law, truths: Sequence[MixtureLaw], alpha: float = 0.1) -> dict[str, Floats]:
    """The distances of a law of batch shape (P,) to its P truths; each array has shape (P,).

    Cramér, W₁, and the absolute differences of the means and of the means of the worst fraction `alpha`.
    """
    roots, areas = _cdf_distances(law, truths)
    with torch.no_grad():
        return {
            "cramer": roots,
            "w1": areas,
            "mean_error": _absolute_difference(law.mean(), [truth.mean() for truth in truths]),
            "cvar_error": _absolute_difference(law.cvar(alpha), [truth.cvar(alpha) for truth in truths]),
        }


def _cdf_distances(law: Law, truths: Sequence[MixtureLaw]) -> tuple[Floats, Floats]:
    """Cramér and W1 of each law of the batch to its truth."""
    if law.batch_shape.numel() != len(truths) or len(law.batch_shape) > 1:
        raise NfdrlError(f"a law of batch shape {tuple(law.batch_shape)} cannot be compared with {len(truths)} truths")
    if any(truth.batch_shape for truth in truths):
        raise NfdrlError("each truth must be one law, without a batch axis")
    levels = _levels()
    rows = zip(_quantiles(law, levels), truths, strict=True)
    results = np.array([_integrate(levels, quantiles, truth) for quantiles, truth in rows]).reshape(-1, 2)
    return results[:, 0], results[:, 1]


def _levels() -> Floats:
    """Midpoints of LEVELS equal cells of probability, and a few levels in each tail."""
    tail = np.array(TAIL_LEVELS)
    return np.concatenate([tail, (np.arange(LEVELS) + 0.5) / LEVELS, 1 - tail[::-1]])


def _quantiles(law: Law, levels: Floats) -> Floats:
    """Sorted quantiles of each law; sorting crossing ones does not change the law of Q(U)."""
    like = law.reference
    tau = torch.as_tensor(levels, dtype=like.dtype, device=like.device)
    chunk = max(1, QUANTILES_AT_ONCE // max(law.batch_shape.numel(), 1))
    with torch.no_grad():
        pieces = [law.quantile(part).double().cpu() for part in torch.split(tau, chunk)]
    return np.sort(torch.cat(pieces, -1).reshape(-1, len(levels)).numpy(), axis=-1)


def _integrate(levels: Floats, quantiles: Floats, truth: MixtureLaw) -> tuple[float, float]:
    """(∫ (F − G)² dy)^½ and ∫ |F − G| dy.

    F is linear between the law's quantiles. The knots are these quantiles, the truth's atoms and a grid on its
    Gaussians. Between two knots F − G is taken as linear from the right limit at one to the left limit at the other,
    which is exact for a truth of atoms and smears no jump at a knot.
    """
    knots = np.unique(np.concatenate([quantiles, _truth_knots(truth)]))
    at = torch.from_numpy(knots)
    from_right = _interpolated_cdf(levels, quantiles, knots, "right") - truth.cdf(at).double().numpy()
    from_left = _interpolated_cdf(levels, quantiles, knots, "left") - truth.cdf_left(at).double().numpy()
    width, left, right = np.diff(knots), from_right[:-1], from_left[1:]
    square = width * (left * left + left * right + right * right) / 3
    size = np.abs(left) + np.abs(right)
    crossing = (left * left + right * right) / np.where(size > 0, size, 1.0)  # two triangles where the sign changes
    area = 0.5 * width * np.where(left * right < 0, crossing, size)
    return float(np.sqrt(square.sum())), float(area.sum())


def _interpolated_cdf(levels: Floats, quantiles: Floats, at: Floats, side: str) -> Floats:
    """The right or left limit at each point of the CDF that is linear between the quantiles."""
    index = np.searchsorted(quantiles, at, side="right" if side == "right" else "left")
    inner = np.clip(index, 1, len(levels) - 1)
    low, high = quantiles[inner - 1], quantiles[inner]
    share = (at - low) / np.where(high > low, high - low, 1.0)
    value = levels[inner - 1] + np.clip(share, 0, 1) * (levels[inner] - levels[inner - 1])
    return np.where(index == 0, 0.0, np.where(index == len(levels), 1.0, value))


def _truth_knots(truth: MixtureLaw) -> Floats:
    """The truth's atoms, and a grid of ± eight deviations on each of its Gaussians."""
    means, stds = truth.means.double().numpy(), truth.stds.double().numpy()
    wide = stds > 0
    if not wide.any():
        return np.asarray(means, dtype=np.float64)
    count = int(np.clip(SMOOTH_POINTS // wide.sum(), 33, 4096))
    grid = means[wide, None] + stds[wide, None] * np.linspace(-8, 8, count)
    return np.asarray(np.concatenate([means[~wide], grid.ravel()]), dtype=np.float64)


def _absolute_difference(values: torch.Tensor, truths: Sequence[torch.Tensor]) -> Floats:
    found = values.detach().double().cpu().reshape(-1).numpy()
    return np.asarray(np.abs(found - [float(truth) for truth in truths]), dtype=np.float64)
