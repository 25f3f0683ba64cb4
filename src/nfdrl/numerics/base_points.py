"""Points of the base noise N(0, 1) at which a flow is evaluated."""

from __future__ import annotations

import torch
from torch import Tensor

from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.numerics.atoms import midpoints
from nfdrl.numerics.constants import constant
from nfdrl.numerics.normal import normal_quantile

RULES = ("midpoint", "shifted", "random")
SHIFTS = 32


def base_points(n: int, rule: str = "midpoint", *, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """`n` sorted base points: zₖ = Φ⁻¹((k + ½)/n), free of noise; shifted, the same with one random share for ½, so
    that no level is missed by all calls (systematic sampling); or sorted random draws as in the paper.

    Sorted base points give sorted returns, because a flow is increasing.
    """
    if n < 1:
        raise NfdrlError(f"the number of base points must be at least 1, got {n}")
    if rule == "midpoint":
        return _midpoints(n, like.dtype, like.device)
    if rule == "shifted":
        device = like.device if generator is None else generator.device
        shift = torch.randint(SHIFTS, (), generator=generator, device=device)
        return shifted_points(n, like.dtype, like.device)[shift]  # a table: Φ⁻¹ would take four times as long
    if rule == "random":
        return torch.randn(n, generator=generator, dtype=like.dtype, device=like.device).sort().values
    raise unknown_name("base-point rule", rule, RULES)


@constant
def _midpoints(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return normal_quantile(midpoints(n, torch.empty((), dtype=torch.float64))).to(dtype=dtype, device=device)


@constant
def shifted_points(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """All that the rule "shifted" may draw; shape (SHIFTS, n)."""
    fine = normal_quantile(midpoints(n * SHIFTS, torch.empty((), dtype=torch.float64)))
    return fine.view(n, SHIFTS).T.contiguous().to(dtype=dtype, device=device)
