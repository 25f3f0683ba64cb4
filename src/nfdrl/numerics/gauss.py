"""Kernel density estimates at arbitrary points: by a fast Gauss transform, and pair by pair where that fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from nfdrl.numerics.kde import COMPONENTS, Kernel

# The kernel's Gaussian is a convolution of three: each sample is spread over a grid with the first, a filter in
# frequency applies the second, and each point reads the grid with the third (Greengard and Lee 2004). Between samples
# and grid only a truncation at `RADIUS` steps and the trapezoidal rule err: by exp(−13²/8) and exp(−4π²).
SPREAD = 2.0  # grid steps of the first and the third
RADIUS = 13
MARGIN = 8.0  # bandwidths between two periodic copies of what a row holds: exp(−8²/2) is 1e-14
RESOLVED = 1e-5  # mean density, over a kernel's height, under which a row is summed pair by pair
LONGEST = 2**17  # grid points
PAIRS = 4_000_000  # at a time: 32 MB per tensor

Pair = tuple[Tensor, Tensor]


class KernelEstimates:
    """p̂(y) = Σₖ mₖ K_h(y − yₖ) of two laws, as masses: normalised over the points where they are asked for.

    The transform is good to 1e-9 of the kernel's height, in time linear in the number of samples. Rows that are nearly
    zero at all of their points keep too few digits of that: they are summed pair by pair, in logarithms, to full
    relative accuracy however far away the law is. Everything is in float64.

    Shapes: samples and their masses (B, N) and (B, M), width (B,)
    """

    def __init__(self, samples: Pair, masses: Pair, width: Tensor, kernel: Kernel, grid: Pair | None = None) -> None:
        self._samples = tuple(y.double() for y in samples)
        self._masses = tuple(m.double() for m in masses)
        self._width, self._components = width.double().unsqueeze(-1), COMPONENTS[kernel]
        self._between = grid  # points (B, S) and their step (B, 1), where estimates are interpolated between them
        slack = 0 if grid is None else 2 * grid[1]
        low, high = torch.cat(self._samples, -1).detach().aminmax(dim=-1, keepdim=True)
        narrowest = min(fraction for _, fraction in self._components)
        self._step = (
            narrowest * self._width / (1.5 * SPREAD)
        )  # so that 2 · SPREAD² steps² are under the kernel's width²
        needed = float(((high - low + slack + MARGIN * self._width) / self._step).max()) + 2 * RADIUS
        self._fast = needed < LONGEST  # and neither infinite nor NaN
        if self._fast:
            self._size = math.ceil(needed)
            self._low = low - 0.5 * slack - RADIUS * self._step
            self._places = tuple(self._place(y) for y in self._samples)
            smoothed = tuple(self._smoothed(law) for law in (0, 1))
            own = None if grid is None else self._place(grid[0])
            self._grids = smoothed if own is None else tuple(_read(values, own) for values in smoothed)

    def at(self, here: int, law: int) -> Tensor:
        """The masses of a law at the samples of law `here`: directly (Appendix F), or interpolated (Algorithm 1)."""
        points = self._samples[here]
        if self._between is None:
            return self._settled(
                _read(self._grids[law], self._places[here]) if self._fast else None,
                lambda rows: self._log_pairs(points[rows], law, rows).softmax(-1),
            )
        grid, step = self._between
        position = (points - grid[:, :1]) / step
        left = position.detach().long().clamp_(0, grid.shape[-1] - 2)
        share = (position - left).clamp(0, 1)  # the outermost sample is the last grid point, up to rounding
        both = torch.cat([left, left + 1], -1)
        values = None
        if self._fast:
            first, second = self._grids[law].gather(-1, both).chunk(2, -1)
            values = (1 - share) * first + share * second
        return self._settled(
            values, lambda rows: self._mixed(grid[rows].gather(-1, both[rows]), share[rows], law, rows)
        )

    def _mixed(self, nodes: Tensor, share: Tensor, law: int, rows: Tensor) -> Tensor:
        """Masses interpolated between the nodes on both sides, summed pair by pair."""
        logs = self._log_pairs(nodes, law, rows)
        parts = torch.cat([1 - share, share], -1).detach().log() + logs.detach()
        # A neighbour without a share may outweigh all others by any factor: times zero it must stay zero.
        first, second = (logs - parts.amax(-1, keepdim=True)).clamp_max(60).exp().chunk(2, -1)
        mixed = (1 - share) * first + share * second
        return mixed / mixed.sum(-1, keepdim=True)

    def _settled(self, values: Tensor | None, by_pairs: Callable[[Tensor], Tensor]) -> Tensor:
        """Values as masses; rows that the transform does not resolve are found pair by pair."""
        if values is None:
            return by_pairs(torch.arange(len(self._width), device=self._width.device))
        height = 1 / (math.sqrt(2 * math.pi) * self._width.squeeze(-1))
        far = (values.detach().mean(-1) < RESOLVED * height).nonzero().squeeze(-1)
        values = values.clamp_min(0)
        masses = values / values.sum(-1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)
        return masses.index_copy(0, far, by_pairs(far)) if len(far) else masses

    def _place(self, points: Tensor) -> Pair:
        """The grid points around each point, and a Gaussian's values there; shapes (B, P · (2 · RADIUS + 1))."""
        position = (points - self._low) / self._step
        nearest = position.detach().round()
        around = torch.arange(-RADIUS, RADIUS + 1, device=points.device)
        gap = (position - nearest).unsqueeze(-1) - around
        values = torch.exp(gap.square() * (-0.5 / SPREAD**2)) / (SPREAD * math.sqrt(2 * math.pi))
        index = (nearest.long().unsqueeze(-1) + around).clamp_(0, self._size - 1)
        return index.flatten(-2), values.flatten(-2)

    def _smoothed(self, law: int) -> Tensor:
        """The density of a law on the grid, still to be spread by the last Gaussian."""
        index, values = self._places[law]
        spread = values * self._masses[law].repeat_interleave(2 * RADIUS + 1, -1)
        grid = spread.new_zeros(len(spread), self._size).scatter_add(-1, index, spread)
        frequency = 2 * math.pi * torch.fft.rfftfreq(self._size, dtype=torch.float64, device=spread.device)
        response = torch.zeros_like(frequency).expand(len(spread), -1)
        for share, fraction in self._components:
            rest = (fraction * self._width / self._step).square() - 2 * SPREAD**2
            response = response + share * torch.exp(-0.5 * rest * frequency.square())
        return cast(Tensor, torch.fft.irfft(torch.fft.rfft(grid) * response, n=self._size)) / self._step

    def _log_pairs(self, points: Tensor, law: int, rows: Tensor) -> Tensor:
        """log p̂ at points of some rows, up to a constant, a few rows at a time."""
        some = max(1, PAIRS // (points.shape[-1] * self._samples[law].shape[-1]))
        parts = zip(torch.split(points, some), torch.split(rows, some), strict=True)
        return torch.cat([self._few_log_pairs(part, law, which) for part, which in parts])

    def _few_log_pairs(self, points: Tensor, law: int, rows: Tensor) -> Tensor:
        width, samples = self._width[rows].unsqueeze(-1), self._samples[law][rows]
        weight = self._masses[law][rows].clamp_min(torch.finfo(torch.float64).tiny).log().unsqueeze(-2)
        square = ((points.unsqueeze(-1) - samples.unsqueeze(-2)) / width).square()
        found = [
            torch.logsumexp(weight - square * (0.5 / fraction**2), -1) + math.log(share / fraction)
            for share, fraction in self._components
        ]
        return found[0] if len(found) == 1 else torch.logsumexp(torch.stack(found), 0)


def _read(grid: Tensor, place: Pair) -> Tensor:
    """Values between grid points, spread by the Gaussian of each point."""
    index, values = place
    return (grid.gather(-1, index) * values).view(len(grid), -1, 2 * RADIUS + 1).sum(-1)
