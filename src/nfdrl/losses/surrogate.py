"""The paper's geometry-aware Cramér surrogate (eq:loss): NFDRL-S's loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.losses.distance import root
from nfdrl.losses.grid import GridDistance, joint_extent, joint_range
from nfdrl.numerics.constants import constant
from nfdrl.numerics.gauss import KernelEstimates
from nfdrl.numerics.spread import pairwise_gap_sum, uniform_gap_sum

Support = Literal["shared", "interpolated", "samples"]
SUPPORTS: tuple[Support, ...] = ("shared", "interpolated", "samples")
Masses = Literal["kernel", "weighted", "density"]
MASSES: tuple[Masses, ...] = ("kernel", "weighted", "density")


@final
@dataclass(frozen=True)
class Surrogate(GridDistance):
    """D² = N⁻² Σᵢ Ωᵢ (wᵢ − vᵢ)², Ωᵢ = Σⱼ |yᵢ − yⱼ| (eq:loss), on masses w, v of two laws.

    The default reads both laws on one grid. The paper reads them at the predicted and at the target returns and adds
    the two distances (eq:loss_full): off a grid of as many points on ±max|y| by interpolation (Algorithm 1), or
    directly (Appendix F).
    """

    kind: ClassVar[str] = "surrogate"
    power: ClassVar[int] = 1  # Ω grows with the step

    # where both laws are read: shared, interpolated or samples
    support: Support = "shared"  # paper: "interpolated" (Algorithm 1) or "samples" (Appendix F); docs/deviations.md
    # At the returns, masses come from the kernel estimate (Appendix F), from one whose samples are weighted by their
    # density (Algorithm 1), or, at a law's own returns, from its own density (eq:loss_full). All are normalised there.
    masses: Masses = "kernel"  # paper: "weighted" in Algorithm 1, "density" in eq:loss_full
    # whether gradients flow through the kernel estimate
    kernel_gradients: bool = True  # paper, Limitations: none flow through the kernel estimate
    # whether the sum is divided by the square of the number of points
    averaged: bool = False  # eq:loss divides by N²; ours: Σ Ω (w − v)² (Appendix E), see `gain`

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        if self.support not in SUPPORTS:
            raise unknown_name("support", self.support, SUPPORTS)
        if self.masses not in MASSES:
            raise unknown_name("masses", self.masses, MASSES)
        if self.support == "shared" and (self.masses != "kernel" or not self.kernel_gradients):
            raise NfdrlError(
                f"the shared grid has no masses and gradients but the kernel's, got masses={self.masses!r} and "
                f"kernel_gradients={self.kernel_gradients}: set support to 'interpolated' or 'samples'"
            )
        super().__post_init__()

    @property
    def needs_density(self) -> bool:
        """Whether the densities of the returns are part of the comparison."""
        return self.masses != "kernel"

    def weight(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """N⁻² Ω."""
        return _unit_weight(size, dtype, device)

    def gain(self, samples: int) -> float:
        """The number of points squared, which makes the distance independent of it, unless the loss is `averaged`.

        D² falls with the square of the number of points. Σ Ω (w − v)² (Appendix E) has the same minimum and a size
        that does not depend on them, so that Adam's ε and gradient clipping see the same numbers.
        """
        if self.averaged:
            return 1.0
        size = self.points(samples) if self.support == "shared" else samples
        return float(size if self.rooted else size**2)

    def __call__(self, predicted: Tensor, target: Tensor, log_densities: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The distance of each row; at the returns, the sum over both sets of them (eq:practical_loss_app)."""
        if self.support == "shared":
            return super().__call__(predicted, target)
        if self.needs_density and log_densities is None:
            raise NfdrlError(f"masses={self.masses!r} need the log-densities of the returns: pass both")
        found = self._masses((predicted, target), log_densities)
        parts = (
            cramer_surrogate(w.to(points.dtype), v.to(points.dtype), points)
            for points, (w, v) in zip((predicted, target), found, strict=True)
        )
        return sum((root(part, self.rooted) for part in parts), torch.zeros_like(predicted[..., 0]))

    def _masses(
        self, returns: tuple[Tensor, Tensor], log_densities: tuple[Tensor, Tensor] | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The masses of both laws at the predicted returns, and at those of the target."""
        uniform = tuple(torch.full_like(y, 1 / y.shape[-1]) for y in returns)
        own = uniform if log_densities is None else tuple(part.softmax(-1) for part in log_densities)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.kernel_gradients):
            estimates = self._estimates(returns, own if self.masses == "weighted" else uniform)
        for here in (0, 1):
            found = []
            for law in (0, 1):
                if self.masses == "density" and law == here:
                    found.append(own[law])
                else:
                    with torch.set_grad_enabled(torch.is_grad_enabled() and self.kernel_gradients):
                        found.append(estimates.at(here, law))
            yield found[0], found[1]

    def _estimates(self, returns: tuple[Tensor, Tensor], weights: tuple[Tensor, ...]) -> KernelEstimates:
        low, high = joint_range(*returns)
        width = (self.relative_bandwidth * joint_extent(low, high)).clamp_min(self.bandwidth)
        if self.support == "samples":
            return KernelEstimates(returns, (weights[0], weights[1]), width, self.kernel)
        size = self.grid_size or max(4, *(part.shape[-1] for part in returns))  # Algorithm 1: N
        reach = torch.maximum(high, -low).clamp_min(torch.finfo(low.dtype).eps).double().unsqueeze(-1)
        grid = reach * torch.linspace(-1, 1, size, dtype=torch.float64, device=reach.device)
        return KernelEstimates(returns, (weights[0], weights[1]), width, self.kernel, (grid, 2 * reach / (size - 1)))


@constant
def _unit_weight(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return uniform_gap_sum(size, torch.ones((), dtype=dtype, device=device)) / size**2


def cramer_surrogate(predicted: Tensor, target: Tensor, support: Tensor) -> Tensor:
    """Squared geometry-aware distance between masses w, v on one sorted support y.

    D² = N⁻² Σᵢ Ωᵢ (wᵢ − vᵢ)²,  Ωᵢ = Σⱼ |yᵢ − yⱼ|   (eq:loss; Appendix E)

    Shapes: (B, N), (B, N), (B, N) → (B,)
    """
    n = support.shape[-1]
    omega = pairwise_gap_sum(support)
    return (omega * (predicted - target).square()).sum(-1) / n**2
