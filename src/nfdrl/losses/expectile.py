"""Expectile regression loss."""

from __future__ import annotations

from torch import Tensor

from nfdrl.numerics.expectiles import asymmetric_weight


def expectile_regression(expectiles: Tensor, levels: Tensor, masses: Tensor, atoms: Tensor) -> Tensor:
    """Asymmetric squares: Σᵢ Σⱼ massⱼ |τᵢ − 1{uᵢⱼ < 0}| uᵢⱼ² with uᵢⱼ = atomⱼ − expectileᵢ.

    Rowland et al. 2019, expectile regression loss ER and Algorithm 2. The sum over i runs over the K predicted
    expectiles, the one over j is the expectation under the target law of N atoms.

    Shapes: (..., K), (K,), (..., N) or (N,), (..., N) → (...)
    """
    error = atoms.unsqueeze(-2) - expectiles.unsqueeze(-1)
    loss = asymmetric_weight(error, levels.unsqueeze(-1)) * error.square()
    return (loss * masses.unsqueeze(-2)).sum((-2, -1))
