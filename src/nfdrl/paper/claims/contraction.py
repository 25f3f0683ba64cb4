"""Claims about the Bellman operator (Q2): what contracts, by how much, and where to."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nfdrl.losses.categorical import project
from nfdrl.losses.surrogate import cramer_surrogate
from nfdrl.paper.claims.base import OURS, ROUNDING, claim, distance, mass_cramer, random_masses, random_support
from nfdrl.reports import Row


def contraction(rows: int, generator: torch.Generator) -> tuple[list[Row], dict[str, Tensor]]:
    """Section Q2: D(T·, T·)/D for one transition b_{r,γ}, and the same for ℓ₂, against √γ."""
    gammas = torch.linspace(0.05, 0.99, 12, dtype=torch.float64)
    y = random_support(rows, 30, generator)
    w, v = random_masses(rows, 30, 2, generator)
    reward = 5 * torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    ratios: dict[str, Tensor] = {}
    for name, squared in (("D", cramer_surrogate), ("exact", mass_cramer)):
        base = squared(w, v, y)
        ratios[name] = torch.stack([(squared(w, v, reward + g * y) / base).sqrt() for g in gammas])
    error = {name: float((value / gammas.sqrt().unsqueeze(-1) - 1).abs().max()) for name, value in ratios.items()}
    note = "largest relative distance of the ratio from √γ, over rewards and 12 discounts"
    text = {"D": "one transition contracts D by √γ", "exact": "one transition contracts exact Cramér by √γ"}
    table = [claim("Q2", text[name], 0, value, f"<= {ROUNDING:g}", note) for name, value in error.items()]
    return table, {"gamma": gammas} | {name: value.mean(-1) for name, value in ratios.items()}


def two_reward_step(gamma: float = 0.9, points: int = 21) -> tuple[list[Row], dict[str, Any]]:
    """Scope of Q2: a transition that pays 0 or R with chance ½ leaves masses on two moved copies of the support.

    Then Ωᵢ holds the gap R between the copies, which no discount shrinks, so that D can grow. ℓ₂ cannot.
    """
    y = torch.linspace(-1, 1, points, dtype=torch.float64)
    w = torch.softmax(-8 * (y + 0.3).square(), -1)
    v = torch.softmax(-8 * (y - 0.3).square(), -1)
    gaps = torch.linspace(0, 20, 81, dtype=torch.float64)
    ratios: dict[str, list[float]] = {"D": [], "exact": []}
    for gap in gaps:
        moved, order = torch.cat([gamma * y, gap + gamma * y]).sort()
        p, q = (torch.cat([part, part])[order] / 2 for part in (w, v))
        ratios["D"].append(float((cramer_surrogate(p, q, moved) / cramer_surrogate(w, v, y)).sqrt()))
        ratios["exact"].append(float((mass_cramer(p, q, moved) / mass_cramer(w, v, y)).sqrt()))
    worst, limit = max(ratios["D"]), math.sqrt(gamma)
    first = next((float(g) for g, r in zip(gaps, ratios["D"], strict=True) if r > limit), None)
    note = (
        f"factor of one Bellman step that pays 0 or 20 with chance ½, γ = {gamma}; above √γ from R = {first}: "
        "the proof moves one support by one reward, a mixture over rewards has several"
    )
    exact = max(ratios["exact"])
    table = [
        claim("Q2", "the Bellman operator contracts D (two rewards)", limit, worst, f"<= {limit + ROUNDING:.9f}", note),
        claim("Q2", "the Bellman operator contracts exact Cramér (two rewards)", limit, exact,
              f"<= {limit + ROUNDING:.9f}", "the same step, exact Cramér distance"),
    ]  # fmt: skip
    return table, {"gap": gaps, "limit": limit} | ratios


def fixed_grid_step(gamma: float = 0.99) -> Row:
    """Scope of Q2 again: on a grid that stays (with C51's projection) a reward moves mass to where Ω is larger."""
    y = torch.arange(-10.0, 11.0, dtype=torch.float64)
    w, v = torch.eye(21, dtype=torch.float64)[[10, 11]]
    before = cramer_surrogate(w, v, y)
    ratios = []
    for reward in torch.arange(0, 9.5, 0.5, dtype=torch.float64):
        p, q = (project(part, reward + gamma * y, y) for part in (w, v))
        ratios.append(float((cramer_surrogate(p, q, y) / before).sqrt()))
    worst, limit = max(ratios), math.sqrt(gamma)
    note = f"largest factor over rewards 0 to 9 for δ(0), δ(1) on the grid −10..10 kept fixed, γ = {gamma}"
    text = "the Bellman operator contracts D (fixed grid, projected as in C51)"
    return claim(OURS, text, limit, worst, f"<= {limit + ROUNDING:.9f}", note)


def fixed_point(gamma: float = 0.9, steps: int = 100) -> list[Row]:
    """Q2's conclusion by Banach: two laws on one support are one after many transitions, at r / (1 − γ)."""
    y = torch.linspace(-3, 3, 31, dtype=torch.float64)
    w, v = ((-0.5 * (y - m).square()).softmax(-1) for m in (-1, 1))
    start, moved = float(distance(w, v, y)), y
    for _ in range(steps):
        moved = 1 + gamma * moved
    ratio = float(distance(w, v, moved)) / start
    limit = gamma ** (steps / 2)
    error = float((w @ moved - 1 / (1 - gamma)).abs())
    return [
        claim("Q2", "repeated transitions bring two laws together", limit, ratio, f"<= {limit * (1 + 1e-6):.6g}",
              f"D after {steps} steps over D before; γ = {gamma}"),
        claim("Q2", "… at the fixed point r / (1 − γ)", 0, error, "<= 0.001", "error of the mean after these steps"),
    ]  # fmt: skip
