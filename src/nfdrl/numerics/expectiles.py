"""A law with given expectiles: the imputation of expectile regression (Rowland et al. 2019, Section 4.2)."""

from __future__ import annotations

import torch
from torch import Tensor


def asymmetric_weight(error: Tensor, level: Tensor) -> Tensor:
    """|τ − 1{u < 0}|: τ where the error u is positive, 1 − τ where it is negative; shapes broadcast."""
    return torch.where(error < 0, 1 - level, level)


def impute_atoms(expectiles: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """Masses and atoms of a law whose expectiles at `levels` (odd in number, ½ in the middle) are the given ones.

    In closed form: with m = e(½), the first-order condition τ E(Z−e)₊ = (1−τ) E(e−Z)₊ of Newey and Powell (1987) and
    E(e−Z)₊ = G(e) + e − m say that the convex function G(e) = E(Z−e)₊ takes at every other expectile the value
    (1−τ)(e−m)/(2τ−1). Straight lines through these points make a law: a slope is F − 1, a kink is an atom, and
    the two outer lines continue until they meet G(e) = m − e (all mass above) and G(e) = 0 (all mass below).

    Values that are not the expectiles of any law (an untrained head's) bend the lines the wrong way. Their slopes are
    then made monotone and the atoms moved to the mean m; for the expectiles of a law both steps change nothing.

    Shapes: (..., K), (K,) → (..., K−1), (..., K−1)
    """
    middle = levels.shape[0] // 2
    mean = expectiles[..., middle, None]
    spread = expectiles.amax(-1, keepdim=True) - expectiles.amin(-1, keepdim=True)
    scale = spread.clamp_min(torch.finfo(expectiles.dtype).tiny)
    x = _without(((expectiles - mean) / scale).sort(-1).values, middle)
    tau = _without(levels, middle)
    g = (1 - tau) * x / (2 * tau - 1)
    gaps = x.diff(dim=-1).clamp_min(torch.finfo(x.dtype).eps)
    # A tail atom lighter than a tenth of the outermost level would lie far out: only invalid values ask for one.
    floor = 0.1 * torch.minimum(levels[0], 1 - levels[-1])
    cdf = _monotone((1 + g.diff(dim=-1) / gaps).clamp(floor, 1 - floor))
    first, last = cdf[..., :1], cdf[..., -1:]
    lowest = x[..., :1] - (g[..., :1] + x[..., :1]) / first
    highest = x[..., -1:] + g[..., -1:] / (1 - last)
    atoms = torch.cat([lowest, x[..., 1:-1], highest], -1)
    masses = torch.cat([first, cdf.diff(dim=-1), 1 - last], -1)
    centred = atoms - (masses * atoms).sum(-1, keepdim=True)
    return masses, mean + spread * centred


def _without(values: Tensor, index: int) -> Tensor:
    return torch.cat([values[..., :index], values[..., index + 1 :]], -1)


def _monotone(values: Tensor) -> Tensor:
    """The mean of the smallest increasing sequence above and the largest one below; symmetric in both directions."""
    above = values.cummax(-1).values
    below = values.flip(-1).cummin(-1).values.flip(-1)
    return 0.5 * (above + below)
