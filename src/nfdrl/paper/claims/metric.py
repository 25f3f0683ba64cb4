"""Claims about D as a distance: its axioms (Q1), the Cramér bound, (S) and (I), and Propositions 1 and 2."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nfdrl.losses.surrogate import cramer_surrogate
from nfdrl.numerics.spread import pairwise_gap_sum
from nfdrl.paper.claims.base import (
    OURS,
    ROUNDING,
    claim,
    distance,
    mass_cramer,
    random_masses,
    random_support,
    unnormalised,
)
from nfdrl.reports import Row


def metric_axioms(rows: int, generator: torch.Generator) -> list[Row]:
    """Section Q1: the worst violation of each axiom over random triples, relative to the distances at hand."""
    worst = {"non-negativity": 0.0, "symmetry": 0.0, "identity": 0.0, "triangle": 0.0}
    apart = math.inf
    for n in (2, 5, 20, 100):
        y = random_support(rows, n, generator)
        w, v, u = random_masses(rows, n, 3, generator)
        there, back, same = distance(w, v, y), distance(v, w, y), distance(w, w, y)
        around = there + distance(v, u, y)
        scale = there.clamp_min(1e-300)
        slack = (distance(w, u, y) - around) / around
        found = (-cramer_surrogate(w, v, y) / scale**2, (there - back).abs() / scale, same / scale, slack)
        for name, values in zip(worst, found, strict=True):
            worst[name] = max(worst[name], float(values.max()))
        spread = (pairwise_gap_sum(y).amin(-1)).sqrt() * (w - v).norm(dim=-1) / n
        apart = min(apart, float((there / spread).min()))
    text = {
        "non-negativity": "D ≥ 0",
        "symmetry": "D(w, v) = D(v, w)",
        "identity": "D(w, w) = 0",
        "triangle": "D(w, u) ≤ D(w, v) + D(v, u)",
    }
    note = f"largest relative violation over {4 * rows} random triples on 2 to 100 points"
    table = [claim("Q1", text[name], 0, value, f"<= {ROUNDING:g}", note) for name, value in worst.items()]
    least = "least D over its own lower bound √(min Ω)·‖w − v‖/N: at least 1 means that D = 0 forces w = v"
    return [*table, claim("Q1", "w ≠ v gives D > 0", 1, apart, f">= {1 - ROUNDING}", least)]


def upper_bound(rows: int, generator: torch.Generator) -> tuple[list[Row], dict[str, Any]]:
    """sec:cramer: is ℓ₂² ≤ Σᵢⱼ(w−v)²|yᵢ−yⱼ|? Yes, and twice over, by the energy form rather than by the printed steps.

    ℓ₂² = −½ Σᵢⱼ δᵢδⱼ|yᵢ−yⱼ| for Σδ = 0, and −δᵢδⱼ ≤ ½(δᵢ² + δⱼ²): hence ℓ₂² ≤ ½ Σᵢⱼ δᵢ²|yᵢ−yⱼ|.
    """
    ratios, per_point = {}, 0.0
    for n in (2, 5, 20, 100):
        y = random_support(rows, n, generator)
        w, v = random_masses(rows, n, 2, generator)
        exact = mass_cramer(w, v, y)
        ratios[n] = exact / unnormalised(w, v, y)
        per_point = max(per_point, float((exact / cramer_surrogate(w, v, y)).max()))
    worst = max(float(value.max()) for value in ratios.values())
    bound = "largest ℓ₂²/(N²D²) over random masses; ½ is the sharp constant, reached by two points"
    normalised = "largest ℓ₂²/D² over the same masses: with the 1/N² of eq:loss the loss is no upper bound"
    return [
        claim("sec:cramer", "Σ(w−v)²|y−y′| bounds ℓ₂² from above", 1, worst, "<= 1", bound),
        claim(OURS, "… with half of it to spare", 0.5, worst, "<= 0.5005", bound),
        claim("eq:loss", "D² itself bounds ℓ₂² from above", 1, per_point, "<= 1", normalised),
        _printed_step(),
    ], {"ratios": ratios}


def _printed_step() -> Row:
    """The printed step (F−G)²(x) ≤ |x−y| ∫_{−∞}^x δ² for arbitrary y, on two Gaussians."""
    x = torch.linspace(-5, 5, 201, dtype=torch.float64)
    delta = sum(s * torch.exp(-0.5 * (x - m).square()) / math.sqrt(2 * math.pi) for s, m in ((1, -0.5), (-1, 0.5)))
    assert isinstance(delta, Tensor)
    left = (delta.cumsum(-1) * 0.05).square()
    right = (x[:, None] - x).abs() * (delta.square().cumsum(-1) * 0.05)[:, None]
    share = float((left[:, None] > right + ROUNDING).double().mean())
    note = (
        "share of pairs (x, y) in [−5, 5]² on which it fails; it needs F(y) = G(y), as at the lower end of the support"
    )
    return claim("sec:cramer", "(F−G)²(x) ≤ |x−y| ∫δ² for every y", 0, share, "= 0", note)


def scale_and_sum(rows: int, generator: torch.Generator) -> list[Row]:
    """Properties (S) and (I): cX against √c, and X + A against X for an independent A."""
    y = random_support(rows, 20, generator)
    w, v = random_masses(rows, 20, 2, generator)
    factor = 10 ** torch.empty(rows, 1, dtype=torch.float64).uniform_(-2, 2, generator=generator)
    scaled = distance(w, v, factor * y) / distance(w, v, y) / factor.squeeze(-1).sqrt()
    shifted = distance(w, v, y + factor) / distance(w, v, y)
    scale_error, shift_error = float((scaled - 1).abs().max()), float((shifted - 1).abs().max())
    surrogate, exact = _independent_sum()
    note = "largest relative error over random masses and c from 0.01 to 100"
    summed = "distance after over before for δ(0), δ(1) on −10..10 and A = 0 or 1000 with chances 0.99 and 0.01"
    return [
        claim("S", "D(cX, cY) = √c D(X, Y)", 0, scale_error, "<= 1e-9", note),
        claim("I", "D(A+X, A+Y) ≤ D(X, Y), A a constant", 0, shift_error, "<= 1e-6", note),
        claim(OURS, "D(A+X, A+Y) ≤ D(X, Y), A random", 1, surrogate, f"<= {1 + ROUNDING}", summed),
        claim("I", "exact Cramér of (A+X, A+Y) ≤ of (X, Y), A random", 1, exact, f"<= {1 + ROUNDING}", summed),
    ]


def _independent_sum() -> tuple[float, float]:
    y = torch.arange(-10.0, 11.0, dtype=torch.float64)
    w, v = torch.eye(21, dtype=torch.float64)[[10, 11]]
    sums, order = torch.cat([y, 1000 + y]).sort()
    p, q = (torch.cat([0.99 * part, 0.01 * part])[order] for part in (w, v))
    surrogate = cramer_surrogate(p, q, sums) / cramer_surrogate(w, v, y)
    exact = mass_cramer(p, q, sums) / mass_cramer(w, v, y)
    return float(surrogate.sqrt()), float(exact.sqrt())


def support_dependence() -> list[Row]:
    """D is a distance on one support: the same two Gaussians on a finer one are closer, and there is no limit."""
    values = []
    for n in (101, 201, 401):
        y = torch.linspace(-5, 5, n, dtype=torch.float64)
        w, v = ((-0.5 * (y - m).square()).softmax(-1) for m in (-0.5, 0.5))
        values.append((float(distance(w, v, y)), float(mass_cramer(w, v, y).sqrt())))
    ratio, exact = values[2][0] / values[0][0], values[2][1] / values[0][1]
    note = "D of N(−½, 1) and N(½, 1) with 401 points over D with 101 points on the same interval; about N⁻¹"
    text = "is independent of the resolution of the support"
    return [
        claim(OURS, f"D {text}", 1, ratio, ">= 0.99", note),
        claim(OURS, f"the exact Cramér distance {text}", 1, exact, ">= 0.99", note),
    ]


def propositions() -> list[Row]:
    """Appendix D: what KL and the Wasserstein distance have and lack; gradients are in `sample_gradients`."""
    y = torch.arange(6, dtype=torch.float64)
    w, v = (torch.softmax(scale * (y - 2).abs(), -1) for scale in (-1.0, -0.3))

    def kl(p: Tensor, q: Tensor) -> float:
        return float((torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum())

    def w1(p: Tensor, q: Tensor, at: Tensor) -> float:
        return float(((p - q).cumsum(-1)[:-1].abs() * at.diff()).sum())

    scaled = w1(w, v, 0.5 * y) / w1(w, v, y)
    sums, order = torch.cat([y, 10 + y]).sort()
    p, q = (torch.cat([0.5 * part, 0.5 * part])[order] for part in (w, v))
    apart = torch.tensor([0.5, 0.5, 0, 0], dtype=torch.float64)
    finite = math.isfinite(kl(apart, apart.flip(-1)))
    return [
        claim("Proposition 1", "KL is not scale sensitive", 1, _scaled_kl(0.5) / _scaled_kl(1), ">= 0.999999",
              "KL(X/2, Y/2) over KL(X, Y), X ~ N(0, 1) and Y ~ N(1, 1)"),
        claim("Proposition 2", "W₁(cX, cY) = c W₁(X, Y)", 0.5, scaled, "<= 0.500000001", "c = ½"),
        claim("Proposition 2", "W₁(A+X, A+Y) ≤ W₁(X, Y)", 1, w1(p, q, sums) / w1(w, v, y), f"<= {1 + ROUNDING}",
              "A = 0 or 10 with chance ½"),
        claim("sec:cramer", "KL fails on disjoint supports", 0, float(finite), "= 0", "1 if it is finite there"),
    ]  # fmt: skip


def _scaled_kl(factor: float) -> float:
    """KL of cX and cY by quadrature over their densities."""
    y = torch.linspace(-8, 9, 4001, dtype=torch.float64) * factor
    p, q = ((-0.5 * (y / factor - m).square()).exp() / (factor * math.sqrt(2 * math.pi)) for m in (0, 1))
    return float((p * (p / q).log()).sum() * (y[1] - y[0]))
