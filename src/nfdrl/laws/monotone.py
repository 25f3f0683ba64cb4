"""UMDQN-C (Théate et al. 2023): the CDF is the integral of a positive network, compared by the Cramér distance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn

from nfdrl.colours import GREEN
from nfdrl.errors import NfdrlError, check_numbers
from nfdrl.laws.base import DensityLaw, Head, Law, Method, select_rows
from nfdrl.laws.fitting import Fit, Track, Truths
from nfdrl.numerics.atoms import bellman_coefficients, common_shape, midpoints

# The integrand is about 1 in an untrained network, so over a width of 20 the sigmoid covers all of (0, 1).
INTEGRATION_WIDTH = 20.0


@final
@dataclass(frozen=True, eq=False, repr=False)
class MonotoneLaw(DensityLaw):
    """The law of shift + scale · X, where X has a CDF tabulated on a grid and straight between its points.

    `cumulative` of shape (..., G) rises from 0 to 1 on the evenly spaced `grid` of shape (G,): X has mass
    cumulativeₖ₊₁ − cumulativeₖ spread evenly over cell k. Everything below is exact for this law.
    """

    cumulative: Tensor
    grid: Tensor
    shift: Tensor
    scale: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        return common_shape(self.cumulative.shape[:-1], self.shift.shape, self.scale.shape)

    @property
    def reference(self) -> Tensor:
        return self.cumulative

    @property
    def masses(self) -> Tensor:
        """The probability of each cell; shape (..., G−1)."""
        return self.cumulative.diff(dim=-1)

    @property
    def _width(self) -> Tensor:
        return self.grid[1] - self.grid[0]

    @property
    def _centres(self) -> Tensor:
        return 0.5 * (self.grid[1:] + self.grid[:-1])

    def mean(self) -> Tensor:
        """Σ mass · centre, moved."""
        return self.shift + self.scale * (self.masses * self._centres).sum(-1)

    def variance(self) -> Tensor:
        """The variance between cells plus that within one, width²/12, scaled."""
        centre = (self.masses * self._centres).sum(-1, keepdim=True)
        between = (self.masses * (self._centres - centre).square()).sum(-1)
        return self.scale.square() * (between + self._width.square() / 12)

    def _quantile(self, tau: Tensor) -> Tensor:
        cumulative, tau = self._aligned(tau)
        cell, part = _locate(cumulative, tau)
        x = self.grid[cell] + part * self._width
        return self.shift.unsqueeze(-1) + self.scale.unsqueeze(-1) * x

    def _cvar(self, alpha: Tensor) -> Tensor:
        cumulative, alpha = self._aligned(alpha)
        cell, part = _locate(cumulative, alpha)
        moments = nn.functional.pad((cumulative.diff(dim=-1) * self._centres).cumsum(-1), (1, 0))
        missing = alpha - cumulative.gather(-1, cell)
        x = self.grid[cell] + 0.5 * part * self._width
        worst = (moments.gather(-1, cell) + missing * x) / alpha
        return self.shift.unsqueeze(-1) + self.scale.unsqueeze(-1) * worst

    def _cdf(self, y: Tensor) -> Tensor:
        """F((y − shift)/scale); a step at the shift where the scale is 0."""
        position = self._position(y)
        cumulative, position = self._aligned(position)
        cell = position.detach().floor().clamp(0, self.grid.shape[0] - 2).long()
        low, high = cumulative.gather(-1, cell), cumulative.gather(-1, cell + 1)
        inner = low + (position - cell).clamp(0, 1) * (high - low)
        step = (y >= self.shift.unsqueeze(-1)).to(inner.dtype)
        return torch.where(self.scale.unsqueeze(-1) > 0, inner, step)

    def _log_prob(self, y: Tensor) -> Tensor:
        """Log of mass over width; −inf outside the support, and everywhere where the scale is 0 (no density)."""
        position = self._position(y)
        masses, position = self._aligned(position, self.masses)
        last = self.grid.shape[0] - 1
        cell = position.detach().floor().clamp(0, last - 1).long()
        scale = self.scale.unsqueeze(-1)
        density = masses.gather(-1, cell).clamp_min(torch.finfo(masses.dtype).tiny)
        log_density = density.log() - (self._width * torch.where(scale > 0, scale, 1.0)).log()
        inside = (position >= 0) & (position <= last) & (scale > 0)
        return torch.where(inside, log_density, -torch.inf)

    def _position(self, y: Tensor) -> Tensor:
        """Where y falls on the grid, counted in cells."""
        scale = self.scale.unsqueeze(-1)
        x = (y - self.shift.unsqueeze(-1)) / torch.where(scale > 0, scale, 1.0)
        return (x - self.grid[0]) / self._width

    def _aligned(self, points: Tensor, table: Tensor | None = None) -> tuple[Tensor, Tensor]:
        table = self.cumulative if table is None else table
        batch = common_shape(self.batch_shape, points.shape[:-1])
        return table.expand(*batch, -1).contiguous(), points.expand(*batch, -1).contiguous()

    def select(self, action: Tensor | int) -> MonotoneLaw:
        shift, scale = (
            value if value.ndim == 0 else select_rows(value.expand(self.batch_shape), action, event_dims=0)
            for value in (self.shift, self.scale)
        )
        return MonotoneLaw(select_rows(self.cumulative, action, event_dims=1), self.grid, shift, scale)

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> MonotoneLaw:
        r, gamma = bellman_coefficients(reward, discount, self.cumulative)
        return replace(self, shift=r + gamma * self.shift, scale=gamma * self.scale)


def _locate(cumulative: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """The cell in which the CDF reaches `level`, and the part of the cell that lies below."""
    upper = torch.searchsorted(cumulative.detach(), level.detach()).clamp(1, cumulative.shape[-1] - 1)
    low, high = cumulative.gather(-1, upper - 1), cumulative.gather(-1, upper)
    tiny = torch.finfo(cumulative.dtype).tiny
    return upper - 1, ((level - low) / (high - low).clamp_min(tiny)).clamp(0, 1)


def cumulative_trapezoid(values: Tensor, width: float) -> Tensor:
    """∫ of the values from the first grid point to each; shape (..., G) → (..., G)."""
    cells = 0.5 * width * (values[..., 1:] + values[..., :-1])
    return nn.functional.pad(cells.cumsum(-1), (1, 0))


@final
class MonotoneHead(Head):
    """F(y) = σ(offset + exp(log_slope) ∫ g(t) dt), g = elu + 1 > 0 (Théate et al. 2023, Section 4; Wehenkel 2019).

    The integral runs from the middle of the range to y, in units in which the range has a width of 20.
    """

    def __init__(self, features: int, actions: int, hidden: int, points: int, v_min: float, v_max: float) -> None:
        super().__init__()
        self.grid = (v_min, v_max, points)
        self.from_features = nn.Linear(features, hidden)
        self.from_return = nn.Linear(1, hidden, bias=False)
        self.hidden = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, actions)
        self.affine = nn.Linear(features, 2 * actions)

    def integrand(self, features: Tensor, position: Tensor) -> Tensor:
        """g at positions in [−1, 1] across the range; shapes (..., F), (P,) → (..., A, P)."""
        first = self.from_features(features).unsqueeze(-2) + self.from_return(position.unsqueeze(-1))
        values: Tensor = nn.functional.elu(self.output(self.hidden(first.relu()).relu())) + 1
        return values.transpose(-1, -2)

    def forward(self, features: Tensor) -> MonotoneLaw:
        points = self.grid[2]
        position = torch.linspace(-1, 1, points, dtype=features.dtype, device=features.device)
        integral = cumulative_trapezoid(self.integrand(features, position), INTEGRATION_WIDTH / (points - 1))
        middle = 0.5 * (integral[..., (points - 1) // 2] + integral[..., points // 2])
        offset, log_slope = self.affine(features).unsqueeze(-1).chunk(2, -2)
        cumulative = (offset + log_slope.exp() * (integral - middle.unsqueeze(-1))).sigmoid()
        # Mass beyond the range joins the outermost cells, as C51 clips it to its outermost atoms.
        cumulative = nn.functional.pad(cumulative[..., 1:-1], (1, 0))
        cumulative = nn.functional.pad(cumulative, (0, 1), value=1.0)
        grid = torch.linspace(*self.grid, dtype=features.dtype, device=features.device)
        return MonotoneLaw(cumulative, grid, features.new_zeros(()), features.new_ones(()))


@final
@dataclass(frozen=True)
class UMDQN(Method):
    """Q-learning with an unconstrained monotone CDF, Cramér form (Théate et al. 2023, UMDQN-C)."""

    name: ClassVar[str] = "umdqn"
    label: ClassVar[str] = "UMDQN"
    colour: ClassVar[str] = GREEN
    line: ClassVar[Literal["--"]] = "--"
    tabular_rate: ClassVar[float] = 1e-3  # best of 1e-3, 3e-3 on FrozenLake after 200 updates

    # points at which CDFs are compared
    points: int = 200  # Théate et al. 2023, Appendix: 200 points on the range
    # the lowest return that a law can have
    v_min: float = -10.0  # Bellemare et al. 2017, Section 5, as for C51
    # the highest return that a law can have
    v_max: float = 10.0  # Bellemare et al. 2017, Section 5, as for C51
    # width of the monotone network
    hidden: int = 128  # Théate et al. 2023, Appendix: width of the monotone network

    def __post_init__(self) -> None:
        if self.points < 4 or not self.v_min < self.v_max:
            raise NfdrlError(f"umdqn needs points ≥ 4 and v_min < v_max, got {self}")
        check_numbers(self)

    def head(self, features: int, actions: int) -> MonotoneHead:
        return MonotoneHead(features, actions, self.hidden, self.points, self.v_min, self.v_max)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """∫ (F − G)² dy on the predicted grid (Théate et al. 2023, Cramér loss); shape (...)."""
        assert isinstance(predicted, MonotoneLaw)
        difference = predicted.cdf(predicted.grid) - target.cdf(predicted.grid)
        return difference.square().sum(-1) * (predicted.grid[1] - predicted.grid[0])

    def within(self, low: float, high: float) -> UMDQN:
        return replace(self, v_min=low, v_max=high)

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law:  # noqa: ARG002
        """Straight lines between grid points, each at the mean of the exact CDF over the cell around the point."""
        grid = torch.linspace(self.v_min, self.v_max, self.points, dtype=torch.float64)
        around = (grid[1] - grid[0]) * (midpoints(64, grid) - 0.5)
        points = (grid.unsqueeze(-1) + around).flatten()
        cumulative = torch.stack([truth.cdf(points).double().reshape(-1, 64).mean(-1) for truth in truths])
        cumulative[:, 0], cumulative[:, -1] = 0.0, 1.0
        return MonotoneLaw(cumulative, grid, grid.new_zeros(()), grid.new_ones(()))
