"""ER-DQN (Rowland et al. 2019): expectiles, turned into a law by imputation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from nfdrl.colours import PURPLE
from nfdrl.errors import NfdrlError, check_numbers
from nfdrl.laws.atomic import AtomicLaw
from nfdrl.laws.base import Law, LinearHead, Method, select_rows
from nfdrl.laws.fitting import LEVELS, Fit, Track, Truths, quantiles_of
from nfdrl.losses.expectile import expectile_regression
from nfdrl.numerics.atoms import bootstrap_atoms, equal_masses, midpoints
from nfdrl.numerics.expectiles import impute_atoms

BISECTIONS = 60


@final
@dataclass(frozen=True, eq=False, repr=False)
class ExpectileLaw(AtomicLaw):
    """A law known by its expectiles: `values` of shape (..., K) at `levels` of shape (K,), ½ in the middle.

    The mean is the ½-expectile. Every other question is answered by the imputed atoms (`impute_atoms`). Expectiles
    are equivariant under y ↦ a + by, b ≥ 0, so a bootstrap moves the values alone.
    """

    values: Tensor
    levels: Tensor

    @property
    def reference(self) -> Tensor:
        return self.values

    def weighted_atoms(self) -> tuple[Tensor, Tensor]:
        """Masses and atoms of a law that has these expectiles; shapes (..., K−1)."""
        return impute_atoms(self.values, self.levels)

    def mean(self) -> Tensor:
        return self.values[..., self.levels.shape[0] // 2]

    def select(self, action: Tensor | int) -> ExpectileLaw:
        return ExpectileLaw(select_rows(self.values, action, event_dims=1), self.levels)

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> ExpectileLaw:
        return ExpectileLaw(bootstrap_atoms(self.values, reward, discount), self.levels)


@final
class ExpectileHead(LinearHead):
    """K linear outputs per action."""

    def __init__(self, features: int, actions: int, expectiles: int, outermost_level: float) -> None:
        super().__init__(features, actions, expectiles)
        self.levels = (outermost_level, 1 - outermost_level, expectiles)

    def read(self, raw: Tensor) -> ExpectileLaw:
        values = self.by_action(raw)
        return ExpectileLaw(values, torch.linspace(*self.levels, dtype=values.dtype, device=values.device))


@final
@dataclass(frozen=True)
class ERDQN(Method):
    """Expectile-regression Q-learning with imputation (Rowland et al. 2019, Algorithm 2)."""

    name: ClassVar[str] = "er-dqn"
    label: ClassVar[str] = "ER-DQN"
    colour: ClassVar[str] = PURPLE
    line: ClassVar[Literal["--"]] = "--"
    tabular_rate: ClassVar[float] = 5e-3  # best of 5e-3, 2e-2, 5e-2 on FrozenLake after 2,500 to 4,000 updates

    # expectiles of a law
    expectiles: int = 11  # Rowland et al. 2019, Section 5.2 (Atari): 11 expectiles
    # level of the lowest; the highest mirrors it
    outermost_level: float = 0.01  # Rowland et al. 2019, Appendix: levels evenly spaced on [0.01, 0.99]

    def __post_init__(self) -> None:
        if self.expectiles < 3 or self.expectiles % 2 == 0:
            raise NfdrlError(f"expectiles must be odd and at least 3, got {self.expectiles}")
        if not 0 < self.outermost_level < 0.5:
            raise NfdrlError(f"outermost_level must lie strictly between 0 and 0.5, got {self.outermost_level}")
        check_numbers(self)

    def head(self, features: int, actions: int) -> ExpectileHead:
        return ExpectileHead(features, actions, self.expectiles, self.outermost_level)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """Expectile regression onto the imputed target; shape (...).

        A target that is not an expectile law is taken at as many midpoint quantiles.
        """
        assert isinstance(predicted, ExpectileLaw)
        if isinstance(target, ExpectileLaw):
            masses, atoms = target.weighted_atoms()
        else:
            atoms = target.quantile(midpoints(self.expectiles, predicted.values))
            masses = equal_masses(atoms)
        return expectile_regression(predicted.values, predicted.levels, masses, atoms)

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law:  # noqa: ARG002
        """The true expectiles, imputed; e solves τ E(Z−e)₊ = (1−τ) E(e−Z)₊."""
        values = quantiles_of(truths, LEVELS)
        outer = self.outermost_level
        levels = torch.linspace(outer, 1 - outer, self.expectiles, dtype=values.dtype)
        low, high = (edge.unsqueeze(-1).expand(-1, self.expectiles) for edge in (values[:, 0], values[:, -1]))
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            gap = values.unsqueeze(-2) - middle.unsqueeze(-1)
            above = levels * gap.clamp_min(0).mean(-1) > (1 - levels) * (-gap).clamp_min(0).mean(-1)
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return ExpectileLaw(0.5 * (low + high), levels)
