"""What every claim of the appendix is measured with: its row, the distances D and ℓ₂, random masses and supports.

Everything is in float64. `w` and `v` are masses on a sorted support `y`; D is eq:loss, ℓ₂ the Cramér distance.
A verdict is computed from the measured number, never written down beforehand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nfdrl.losses.surrogate import cramer_surrogate
from nfdrl.reports import Row

ROUNDING = 1e-9  # relative; supports of two nearly equal points lose some digits
STANDARD_ERRORS = 3.0
OURS = "ours"  # the label of a statement that the paper does not make: it does not count for or against it


def claim(
    label: str,
    text: str,
    printed: Any,
    measured: float,
    threshold: str,
    note: str,
    standard_error: float | None = None,
) -> Row:
    """One row: a statement, where it stands in the paper, what was measured, and whether that passes the threshold.

    A threshold is written `<= 1`, `> 1.5`, `= 401` or `± 0.1`, and printed as it is compared.
    """
    sign, _, text_limit = threshold.partition(" ")
    limit = float(text_limit)
    holds = {
        "<=": measured <= limit, ">=": measured >= limit, ">": measured > limit, "=": measured == limit,
        "±": abs(measured) <= limit,
    }[sign]  # fmt: skip
    return {
        "method": next((name for name in ("exact Cramér", "KL", "W₁") if name in text), "surrogate D"),
        "label": label,
        "claim": text,
        "printed": printed,
        "measured": measured,
        "standard_error": standard_error,
        "threshold": threshold,
        "holds": bool(holds),
        "note": note,
    }


def mass_cramer(w: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """ℓ₂² = ∫(F − G)² dy of masses on one sorted support; shapes (..., N) → (...)."""
    height = (w - v).cumsum(-1)[..., :-1]
    return (height.square() * y.diff(dim=-1)).sum(-1)


def unnormalised(w: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """Σᵢⱼ (wᵢ − vᵢ)² |yᵢ − yⱼ| = N² D²: the surrogate as Appendix E derives it, without 1/N²."""
    return cramer_surrogate(w, v, y) * y.shape[-1] ** 2


def random_masses(rows: int, n: int, parts: int, generator: torch.Generator) -> list[Tensor]:
    """`parts` times `rows` mass vectors of every roughness, from nearly one-hot to nearly uniform."""
    sharpness = torch.empty(rows, 1, dtype=torch.float64).uniform_(0.1, 8.0, generator=generator)

    def draw() -> Tensor:
        return (sharpness * torch.randn(rows, n, generator=generator, dtype=torch.float64)).softmax(-1)

    return [draw() for _ in range(parts)]


def random_support(rows: int, n: int, generator: torch.Generator) -> Tensor:
    """Sorted supports with uneven gaps, on scales from 0.01 to 100."""
    scale = 10 ** torch.empty(rows, 1, dtype=torch.float64).uniform_(-2, 2, generator=generator)
    return (scale * torch.randn(rows, n, generator=generator, dtype=torch.float64)).sort(-1).values


def distance(w: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """D, the root of eq:loss."""
    return cramer_surrogate(w, v, y).clamp_min(0).sqrt()
