"""C51 (Bellemare et al. 2017): masses on a fixed, evenly spaced support."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from nfdrl.colours import ORANGE
from nfdrl.errors import NfdrlError, check_numbers
from nfdrl.laws.atomic import AtomicLaw
from nfdrl.laws.base import Law, LinearHead, Method, select_rows
from nfdrl.laws.fitting import LEVELS, Fit, Track, Truths, quantiles_of
from nfdrl.losses.categorical import categorical_kl, project
from nfdrl.numerics.atoms import bootstrap_atoms, common_shape, equal_masses, midpoints


@final
@dataclass(frozen=True, eq=False, repr=False)
class CategoricalLaw(AtomicLaw):
    """Masses exp(log_masses) of shape (..., K) on atoms of shape (K,), or (..., K) after a bootstrap."""

    log_masses: Tensor
    atoms: Tensor

    @property
    def masses(self) -> Tensor:
        """The probability of each atom; shape (..., K)."""
        return self.log_masses.exp()

    @property
    def batch_shape(self) -> torch.Size:
        return common_shape(self.log_masses.shape, self.atoms.shape)[:-1]

    @property
    def reference(self) -> Tensor:
        return self.log_masses

    def weighted_atoms(self) -> tuple[Tensor, Tensor]:
        return self.masses, self.atoms

    def select(self, action: Tensor | int) -> CategoricalLaw:
        atoms = self.atoms if self.atoms.ndim == 1 else select_rows(self.atoms, action, event_dims=1)
        return CategoricalLaw(select_rows(self.log_masses, action, event_dims=1), atoms)

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> CategoricalLaw:
        atoms = bootstrap_atoms(self.atoms, reward, discount)
        return CategoricalLaw(self.log_masses, atoms.expand(*self.batch_shape, -1))


@final
class CategoricalHead(LinearHead):
    """K logits per action; their softmax gives the masses."""

    def __init__(self, features: int, actions: int, atoms: int, v_min: float, v_max: float) -> None:
        super().__init__(features, actions, atoms)
        self.support = (v_min, v_max, atoms)

    def read(self, raw: Tensor) -> CategoricalLaw:
        logits = self.by_action(raw)
        # Made in the dtype of the logits: a buffer in float32 would stay rounded after `.double()`.
        support = torch.linspace(*self.support, dtype=logits.dtype, device=logits.device)
        return CategoricalLaw(logits.log_softmax(-1), support)


@final
@dataclass(frozen=True)
class C51(Method):
    """Categorical distributional Q-learning (Bellemare et al. 2017, Algorithm 1)."""

    name: ClassVar[str] = "c51"
    label: ClassVar[str] = "C51"
    colour: ClassVar[str] = ORANGE
    tabular_rate: ClassVar[float] = 5e-3  # best of 5e-3, 2e-2, 5e-2 on FrozenLake after 2,500 to 4,000 updates

    # atoms of a law
    atoms: int = 51  # Bellemare et al. 2017, Section 5.1
    # the lowest return that a law can have
    v_min: float = -10.0  # Bellemare et al. 2017, Section 5
    # the highest return that a law can have
    v_max: float = 10.0  # Bellemare et al. 2017, Section 5

    def __post_init__(self) -> None:
        if self.atoms < 2 or not self.v_min < self.v_max:
            raise NfdrlError(f"c51 needs atoms ≥ 2 and v_min < v_max, got {self}")
        check_numbers(self)

    def head(self, features: int, actions: int) -> CategoricalHead:
        return CategoricalHead(features, actions, self.atoms, self.v_min, self.v_max)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """KL(projected target ‖ predicted), which is 0 at equality; shape (...).

        A target that is not categorical is taken at `atoms` midpoint quantiles of equal mass.
        """
        assert isinstance(predicted, CategoricalLaw)
        if predicted.atoms.ndim != 1:
            raise NfdrlError("c51 predicts on its fixed support, but the predicted law was bootstrapped off it")
        if isinstance(target, CategoricalLaw):
            masses, atoms = target.masses, target.atoms
        else:
            atoms = target.quantile(midpoints(self.atoms, predicted.reference))
            masses = equal_masses(atoms)
        return categorical_kl(predicted.log_masses, project(masses, atoms, predicted.atoms))

    def within(self, low: float, high: float) -> C51:
        return replace(self, v_min=low, v_max=high)

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law:  # noqa: ARG002
        """The projection: the nearest law on the support in Cramér distance (Rowland et al. 2018, Section 3.2)."""
        values = quantiles_of(truths, LEVELS)
        support = torch.linspace(self.v_min, self.v_max, self.atoms, dtype=values.dtype)
        masses = project(equal_masses(values), values, support)
        return CategoricalLaw(masses.clamp_min(torch.finfo(masses.dtype).tiny).log(), support)
