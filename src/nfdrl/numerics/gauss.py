"""Kernel density estimates at arbitrary points: by a fast Gauss transform, and pair by pair where that fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdrl.numerics.kde import COMPONENTS, Kernel

# The kernel's Gaussian is a convolution of three: each sample is spread over a grid with the first, a filter in
# frequency applies the second, and each point reads the grid with the third (Greengard and Lee 2004). Between samples
# and grid only a truncation at `RADIUS` steps and the trapezoidal rule err: by exp(−13²/8) and exp(−4π²).
SPREAD = 2.0  # grid steps of the first and the third
RADIUS = 13
REACH = 2 * RADIUS + 1
MARGIN = 8.0  # bandwidths between two periodic copies of what a row holds: exp(−8²/2) is 1e-14
RESOLVED = 1e-5  # mean density, over a kernel's height, under which a row is summed pair by pair
LONGEST = 2**17  # grid points
STEPS_PER_PAIR = 4  # with more grid points than this for each pair, pairs are summed one by one in less time
NEGLIGIBLE = 45.0  # in logarithms: what lies so far under the largest share of a row does not change it
PAIRS = 1_000_000  # at a time: 8 MB per tensor; larger ones go back to the system, and every page is fetched anew

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
        self._step = narrowest * self._width / (1.5 * SPREAD)  # 2 · SPREAD² steps² are under the kernel's width²
        needed = float(((high - low + slack + MARGIN * self._width) / self._step).max()) + 2 * RADIUS
        count = max(y.shape[-1] for y in self._samples)
        pairs = count * (count if grid is None else grid[0].shape[-1])
        self._fast = needed < min(LONGEST, STEPS_PER_PAIR * pairs)  # and neither infinite nor NaN
        if self._fast:
            self._size = _smooth_size(math.ceil(needed))
            self._low = low - 0.5 * slack - RADIUS * self._step
            self._places = tuple(self._place(y) for y in self._samples)
            smoothed = tuple(self._smoothed(law) for law in (0, 1))
            own = None if grid is None else self._place(grid[0])
            self._grids = smoothed if own is None else tuple(own.read(values) for values in smoothed)

    def at(self, here: int, law: int) -> Tensor:
        """The masses of a law at the samples of law `here`: directly (Appendix F), or interpolated (Algorithm 1)."""
        points = self._samples[here]
        if self._between is None:
            return self._settled(
                self._places[here].read(self._grids[law]) if self._fast else None,
                lambda rows: self._log_pairs(points[rows], law, rows, torch.zeros_like(points[rows])).softmax(-1),
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
        return self._settled(values, lambda rows: self._mixed(both[rows], share[rows], law, rows))

    def _mixed(self, both: Tensor, share: Tensor, law: int, rows: Tensor) -> Tensor:
        """Masses interpolated between the grid points on both sides, summed pair by pair."""
        assert self._between is not None
        grid, shares = self._between[0][rows], torch.cat([1 - share, share], -1).detach().log()
        largest = torch.full_like(grid, -math.inf).scatter_reduce_(-1, both, shares, "amax")
        logs = self._log_pairs(grid, law, rows, largest).gather(-1, both)
        parts = shares + logs.detach()
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

    def _place(self, points: Tensor) -> _Places:
        position = (points - self._low) / self._step
        nearest = position.detach().round()
        # What is not finite stays on the grid, and spoils its row.
        first = nearest.long().sub_(RADIUS).clamp_(0, self._size - REACH)
        offset = position - nearest
        return _Places(first, offset, _window(offset.detach()))

    def _smoothed(self, law: int) -> Tensor:
        """The density of a law on the grid, still to be spread by the last Gaussian."""
        grid = self._places[law].spread(self._masses[law], self._size)
        frequency = 2 * math.pi * torch.fft.rfftfreq(self._size, dtype=torch.float64, device=grid.device)
        narrowest = min(fraction for _, fraction in self._components)
        response = torch.zeros_like(frequency)
        for share, fraction in self._components:
            rest = (1.5 * SPREAD * fraction / narrowest) ** 2 - 2 * SPREAD**2  # in steps, the same in every row
            response = response + share * torch.exp(-0.5 * rest * frequency.square())
        return cast(Tensor, torch.fft.irfft(torch.fft.rfft(grid) * response, n=self._size)) / self._step

    def _log_pairs(self, points: Tensor, law: int, rows: Tensor, shares: Tensor) -> Tensor:
        """log p̂ at points of some rows, up to a constant, a few rows at a time; −∞ where it is negligible.

        `shares` are logarithms of what points count. Shapes: (R, P), (R,), (R, P) → (R, P)
        """
        some = max(1, PAIRS // (points.shape[-1] * self._samples[law].shape[-1]))
        parts = zip(*(torch.split(part, some) for part in (points, rows, shares)), strict=True)
        return torch.cat([self._few_log_pairs(part, law, which, share) for part, which, share in parts])

    def _few_log_pairs(self, points: Tensor, law: int, rows: Tensor, shares: Tensor) -> Tensor:
        samples, weights = self._samples[law][rows], self._masses[law][rows]
        weights = weights.clamp_min(torch.finfo(torch.float64).tiny).log()
        with torch.no_grad():
            least, most = self._log_bounds(points, samples, weights, rows)
            counted = most + shares > (least + shares).amax(-1, keepdim=True) - NEGLIGIBLE
            chosen = (most + shares).topk(int(counted.sum(-1).max()), sorted=False).indices
        gaps = points.gather(-1, chosen).unsqueeze(-1) - samples.unsqueeze(-2)
        found = torch.logsumexp(weights.unsqueeze(-2) + self._log_kernel(gaps, rows), -1)
        return torch.full_like(points, -math.inf).scatter(-1, chosen, found)

    def _log_bounds(self, points: Tensor, samples: Tensor, weights: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of log p̂: no mass but that of a neighbour, and all mass at the nearer neighbour."""
        samples, order = samples.sort(-1)
        right = torch.searchsorted(samples, points).clamp_(max=samples.shape[-1] - 1)
        sides = torch.stack([(right - 1).clamp_min_(0), right], -1)
        near = self._log_kernel(points.unsqueeze(-1) - samples.gather(-1, sides.flatten(1)).view_as(sides), rows)
        alone = near + weights.gather(-1, order).gather(-1, sides.flatten(1)).view_as(sides)
        return alone.amax(-1), near.amax(-1) + weights.logsumexp(-1, keepdim=True)

    def _log_kernel(self, gaps: Tensor, rows: Tensor) -> Tensor:
        """log K_h, up to a constant. Shapes: (R, P, N), (R,) → (R, P, N)"""
        square = (gaps / self._width[rows].unsqueeze(-1)).square()
        found = [math.log(share / fraction) - square * (0.5 / fraction**2) for share, fraction in self._components]
        return found[0] if len(found) == 1 else torch.logsumexp(torch.stack(found), 0)


@dataclass(frozen=True)
class _Places:
    """Points on a grid: the first of the `REACH` grid points around each, its offset from their middle, in steps, and
    the window of a Gaussian's values on them.

    One window is applied at a time: all at once, every page of a large tensor would be fetched anew for each operation.

    Shapes: (B, P), (B, P), (REACH, B, P)
    """

    first: Tensor
    offset: Tensor
    window: Tensor

    def read(self, grid: Tensor) -> Tensor:
        """Values of a grid (B, S) between its points, spread by the Gaussian of each."""
        return cast(Tensor, _Read.apply(grid, self.offset, self))  # type: ignore[no-untyped-call]

    def spread(self, masses: Tensor, size: int) -> Tensor:
        """The masses of all points on a grid, each spread by a Gaussian."""
        return cast(Tensor, _Spread.apply(masses, self.offset, self, size))  # type: ignore[no-untyped-call]

    def gathered(self, grid: Tensor) -> Tensor:
        """Σₖ wₖ gₖ over the grid points around each point."""
        total = torch.zeros_like(self.window[0])
        for k, values in enumerate(self.window):
            total.addcmul_(self._from(grid, k).gather(-1, self.first), values)
        return total

    def slope(self, grid: Tensor) -> Tensor:
        """The derivative of `gathered` in the offset d: wₖ falls by (d − k)/s² of itself."""
        total, offset = torch.zeros_like(self.window[0]), self.offset.detach()
        for k, values in enumerate(self.window):
            total.addcmul_(self._from(grid, k).gather(-1, self.first), values * (k - RADIUS - offset))
        return total.div_(SPREAD**2)

    def scattered(self, masses: Tensor, size: int) -> Tensor:
        """What `gathered` reads, given back: its adjoint."""
        grid = masses.new_zeros(len(masses), size)
        for k, values in enumerate(self.window):
            self._from(grid, k).scatter_add_(-1, self.first, values * masses)
        return grid

    def _from(self, grid: Tensor, k: int) -> Tensor:
        return grid.narrow(-1, k, grid.shape[-1] - REACH + 1)


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grid: Tensor, offset: Tensor, places: _Places) -> Tensor:  # noqa: ARG004
        ctx.save_for_backward(grid)
        ctx.places = places
        return places.gathered(grid)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        (grid,), (pull,) = ctx.saved_tensors, grad_outputs
        back = ctx.places.scattered(pull, grid.shape[-1]) if ctx.needs_input_grad[0] else None
        return back, pull * ctx.places.slope(grid) if ctx.needs_input_grad[1] else None, None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, masses: Tensor, offset: Tensor, places: _Places, size: int) -> Tensor:  # noqa: ARG004
        ctx.save_for_backward(masses)
        ctx.places = places
        return places.scattered(masses, size)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        (masses,), (pull,) = ctx.saved_tensors, grad_outputs
        back = ctx.places.gathered(pull) if ctx.needs_input_grad[0] else None
        return back, masses * ctx.places.slope(pull) if ctx.needs_input_grad[1] else None, None, None


def _window(offset: Tensor) -> Tensor:
    """N(k; d, s) at k = −RADIUS … RADIUS: exp(−d²/2s²) · exp(d/s²)ᵏ · exp(−k²/2s²), by products of two exponentials.

    Shapes: (B, P) → (REACH, B, P)
    """
    values = offset.new_empty(REACH, *offset.shape)
    torch.exp(offset.square() * (-0.5 / SPREAD**2), out=values[RADIUS]).div_(SPREAD * math.sqrt(2 * math.pi))
    ratio = torch.exp(offset / SPREAD**2)
    for direction in (1, -1):
        for k in range(1, RADIUS + 1):
            falls = math.exp((1 - 2 * k) / (2 * SPREAD**2))  # exp(−k²/2s²) over the one before
            before, after = (values[RADIUS + direction * step] for step in (k - 1, k))
            torch.mul(before, ratio, out=after).mul_(falls)
        ratio = ratio.reciprocal_()
    return values


def _smooth_size(size: int) -> int:
    """The next size that is a power of two times 8 to 16: a transform of a large prime takes many times as long."""
    unit = 1 << max(0, size.bit_length() - 4)
    return -(-size // unit) * unit
