"""FQF (Yang et al. 2019): a quantile network read at fractions that a second network proposes.

How a learner trains it. `FQF.loss` returns one number per row whose gradient has two parts that never meet: the
quantile part reaches the torso and the quantile network, the fraction part reaches the proposal network alone. So
one `backward()` serves both. `FQF.parameter_groups(head)` lists the parameters that need another optimiser than the
learner's: for each group, keep its "params" out of the main optimiser, clip their gradient to "max_grad_norm", and
step them with the optimiser named by "optimizer", built from the remaining keys (for "rmsprop": lr, alpha, eps).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from nfdrl.colours import SKY
from nfdrl.errors import NfdrlError, check_numbers
from nfdrl.laws.atomic import AtomicLaw
from nfdrl.laws.base import Head, Law, Method, select_rows
from nfdrl.laws.fitting import Fit, Track, Truths, quantiles_of
from nfdrl.laws.implicit import ImplicitLaw, QuantileNetwork
from nfdrl.laws.quantile import QuantileLaw
from nfdrl.losses.pinball import quantile_huber
from nfdrl.numerics.atoms import bootstrap_atoms, midpoints


@final
@dataclass(frozen=True, eq=False, repr=False)
class FractionLaw(AtomicLaw):
    """Σᵢ (τᵢ₊₁ − τᵢ) δ(F⁻¹(τ̂ᵢ)), τ̂ᵢ = (τᵢ + τᵢ₊₁)/2 (Yang et al. 2019, Eq. 2; its mean: Section 3.3).

    `fractions` of shape (..., N+1) run from 0 to 1 and carry the gradient of the proposal network; `atoms` of shape
    (..., N) carry that of the quantile network; `implicit` is the quantile function at every other level.
    """

    fractions: Tensor
    atoms: Tensor
    implicit: ImplicitLaw

    @property
    def masses(self) -> Tensor:
        """τᵢ₊₁ − τᵢ; shape (..., N)."""
        return self.fractions.diff(dim=-1)

    @property
    def levels(self) -> Tensor:
        """τ̂ᵢ, cut from the proposal network; shape (..., N)."""
        return middles(self.fractions.detach())

    @property
    def reference(self) -> Tensor:
        return self.atoms

    def weighted_atoms(self) -> tuple[Tensor, Tensor]:
        return self.masses, self.atoms

    def select(self, action: Tensor | int) -> FractionLaw:
        fractions, atoms = (select_rows(value, action, event_dims=1) for value in (self.fractions, self.atoms))
        return FractionLaw(fractions, atoms, self.implicit.select(action))

    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> FractionLaw:
        atoms = bootstrap_atoms(self.atoms, reward, discount)
        return FractionLaw(self.fractions, atoms, self.implicit.bootstrap(reward, discount))


def middles(fractions: Tensor) -> Tensor:
    """τ̂ᵢ = (τᵢ + τᵢ₊₁)/2; shape (..., N+1) → (..., N)."""
    return 0.5 * (fractions[..., 1:] + fractions[..., :-1])


@torch.no_grad()
def fraction_gradient(law: FractionLaw) -> Tensor:
    """∂W₁/∂τᵢ = 2F⁻¹(τᵢ) − F⁻¹(τ̂ᵢ) − F⁻¹(τ̂ᵢ₋₁) at the inner fractions (Yang et al. 2019, Proposition 1).

    Shape: (..., N−1)
    """
    at_fractions = law.implicit._quantile(law.fractions[..., 1:-1])
    return 2 * at_fractions - law.atoms[..., 1:] - law.atoms[..., :-1]


def fraction_loss(law: FractionLaw) -> Tensor:
    """A number that is 0 and whose gradient in the fractions is ∂W₁/∂τ; shape (...)."""
    surrogate = (fraction_gradient(law) * law.fractions[..., 1:-1]).sum(-1)
    return surrogate - surrogate.detach()


@final
class FractionHead(Head):
    """A quantile network and a linear proposal of N fractions, one set per state, shared by its actions."""

    def __init__(self, features: int, actions: int, fractions: int, cosines: int, hidden: int) -> None:
        super().__init__()
        self.network = QuantileNetwork(features, actions, cosines, hidden)
        self.proposal = nn.Linear(features, fractions)
        # Small weights: training starts from evenly spread fractions, which are those of QR-DQN.
        nn.init.xavier_uniform_(self.proposal.weight, gain=0.01)
        nn.init.zeros_(self.proposal.bias)

    def fraction_parameters(self) -> list[nn.Parameter]:
        """The parameters of the proposal network."""
        return list(self.proposal.parameters())

    def forward(self, features: Tensor) -> FractionLaw:
        implicit = ImplicitLaw(
            self.network, features, self.proposal.out_features, features.new_zeros(()), features.new_ones(())
        )
        masses = self.proposal(features.detach()).softmax(-1)
        fractions = nn.functional.pad(masses.cumsum(-1), (1, 0)).unsqueeze(-2)
        atoms = implicit._quantile(middles(fractions.detach()))
        return FractionLaw(fractions.expand(*atoms.shape[:-1], -1), atoms, implicit)


@final
@dataclass(frozen=True)
class FQF(Method):
    """Fully parameterised quantile Q-learning (Yang et al. 2019, Algorithm 1)."""

    name: ClassVar[str] = "fqf"
    label: ClassVar[str] = "FQF"
    colour: ClassVar[str] = SKY
    line: ClassVar[Literal["--"]] = "--"
    tabular_rate: ClassVar[float] = 3e-3  # best of 3e-4, 1e-3, 3e-3 on FrozenLake after 500 updates
    embeds_states: ClassVar[bool] = True

    # levels that are proposed for each law
    fractions: int = 32  # N of Yang et al. 2019, Section 4: 32
    # cosines that embed a level
    cosines: int = 64  # Yang et al. 2019, Section 3.3: the embedding of Dabney et al. 2018b
    # width of the layer after the embedding
    hidden: int = 512  # Mnih et al. 2015: the fully connected layer, which here follows the product with φ(τ)
    # error from which the loss grows linearly
    huber_threshold: float = 1.0  # κ of Yang et al. 2019, Section 3.2: 1
    # learning rate of the proposals
    fraction_lr: float = 2.5e-9  # Yang et al. 2019, Appendix: RMSprop for the proposal network
    # decay of their optimiser's mean square
    fraction_rmsprop_alpha: float = 0.95  # Yang et al. 2019, Appendix
    # what their optimiser adds to its denominator
    fraction_rmsprop_eps: float = 1e-5  # Yang et al. 2019, Appendix
    # norm to which their gradient is shortened
    fraction_max_grad_norm: float = 10.0  # ours: the gradient grows with the scale of the returns

    def __post_init__(self) -> None:
        check_numbers(self, FQF)
        for name in ("huber_threshold", "fraction_lr", "fraction_rmsprop_alpha", "fraction_rmsprop_eps"):
            if getattr(self, name) < 0:
                raise NfdrlError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not self.fraction_max_grad_norm > 0:
            raise NfdrlError(f"fraction_max_grad_norm must be positive, got {self.fraction_max_grad_norm}")

    def head(self, features: int, actions: int) -> FractionHead:
        return FractionHead(features, actions, self.fractions, self.cosines, self.hidden)

    def parameter_groups(self, head: Head) -> list[dict[str, Any]]:
        """The parameters that need their own optimiser, with its settings; see the module's first lines."""
        assert isinstance(head, FractionHead)
        return [
            {
                "params": head.fraction_parameters(),
                "optimizer": "rmsprop",
                "lr": self.fraction_lr,
                "alpha": self.fraction_rmsprop_alpha,
                "eps": self.fraction_rmsprop_eps,
                "max_grad_norm": self.fraction_max_grad_norm,
            }
        ]

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """Quantile Huber loss (Yang et al. 2019, Eq. 8) plus the fraction loss; shape (...).

        A target that is not a fraction law is taken at `fractions` midpoint quantiles.
        """
        assert isinstance(predicted, FractionLaw)
        if isinstance(target, FractionLaw):
            values = target.atoms  # averaged evenly, as in Eq. 8
        else:
            values = target.quantile(midpoints(self.fractions, predicted.atoms))
        quantile_part = quantile_huber(predicted.atoms, predicted.levels, values, self.huber_threshold)
        return quantile_part + fraction_loss(predicted)

    def without_huber(self) -> FQF:
        return replace(self, huber_threshold=0.0)

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law:  # noqa: ARG002
        """Even fractions, at which training starts and which the published rate of 2.5e-9 does not leave."""
        return QuantileLaw(quantiles_of(truths, self.fractions))
