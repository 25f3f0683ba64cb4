"""What every return law, head and method promises."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Self

from nfdrl.colours import BLACK
from nfdrl.errors import NfdrlError, check_at_least, check_open_unit, whole

if TYPE_CHECKING:
    from nfdrl.laws.fitting import Fit, Track, Truths

QUADRATURE_POINTS = 2048
HALVES = (torch.float16, torch.bfloat16)
SHOWN = 6  # laws in a repr
TabularDecay = Literal["linear", "cosine"]


class Law(ABC):
    """A batch of one-dimensional return laws, one for each index of `batch_shape`.

    Points (probability levels, returns) are a number, which gives a result of shape `batch_shape`, or a tensor whose
    last axis runs over K points and whose leading axes broadcast with `batch_shape`, which gives `batch_shape + (K,)`.
    """

    @property
    @abstractmethod
    def batch_shape(self) -> torch.Size:
        """The shape of `mean()`."""

    @property
    @abstractmethod
    def reference(self) -> Tensor:
        """One of the law's tensors, for its dtype and device."""

    @abstractmethod
    def mean(self) -> Tensor:
        """The expected return; shape `batch_shape`."""

    @abstractmethod
    def variance(self) -> Tensor:
        """The variance of the return; shape `batch_shape`."""

    @abstractmethod
    def _quantile(self, tau: Tensor) -> Tensor:
        """Quantiles at levels `tau` of shape (..., K)."""

    @abstractmethod
    def _cdf(self, y: Tensor) -> Tensor:
        """P(Z ≤ y) at returns `y` of shape (..., K)."""

    def _cvar(self, alpha: Tensor) -> Tensor:
        """Mean of the worst fraction `alpha`, by the midpoint rule on the quantile function."""
        steps = (torch.arange(QUADRATURE_POINTS, dtype=alpha.dtype, device=alpha.device) + 0.5) / QUADRATURE_POINTS
        columns = [self._quantile(alpha[..., k : k + 1] * steps).mean(-1) for k in range(alpha.shape[-1])]
        return torch.stack(columns, -1)

    @abstractmethod
    def select(self, action: Tensor | int) -> Self:
        """The laws of the chosen actions: the last batch axis is indexed by `action`."""

    @abstractmethod
    def bootstrap(self, reward: Tensor | float, discount: Tensor | float) -> Self:
        """The law of reward + discount · Z (eq:bootstrap_Bellman); discount 0 gives a Dirac."""

    def __len__(self) -> int:
        """How many laws there are, of one observation: one per action."""
        if len(self.batch_shape) != 1:
            shape = tuple(self.batch_shape)
            raise TypeError(f"only laws along one axis are counted and indexed, got shape {shape}: use select(action)")
        return int(self.batch_shape[0])

    def __getitem__(self, action: int) -> Self:
        """The law of one action, of laws along one axis; so they can be iterated over."""
        return self.select(range(len(self))[action])

    def __bool__(self) -> bool:
        return True  # whatever its length

    @torch.no_grad()
    def __repr__(self) -> str:
        """Mean, standard deviation, and the quantiles at 5 % and 95 %, of the first laws if there are many."""
        columns = {"mean": self.mean(), "std": self.std(), "5 %": self.quantile(0.05), "95 %": self.quantile(0.95)}
        shape = "" if not self.batch_shape else f" of shape {tuple(self.batch_shape)}"
        return f"{type(self).__name__}{shape}: " + ", ".join(f"{name} {_few(col)}" for name, col in columns.items())

    def std(self) -> Tensor:
        """The standard deviation of the return; shape `batch_shape`."""
        variance = self.variance()
        return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()

    def quantile(self, tau: Tensor | float) -> Tensor:
        """The return that is not exceeded with probability `tau` in (0, 1): the VaR at `tau`."""
        return self._at_points(self._quantile, tau, "tau")

    def cdf(self, y: Tensor | float) -> Tensor:
        """P(Z ≤ y); NaN at NaN."""
        return self._at_returns(self._cdf, y)

    def cvar(self, alpha: Tensor | float) -> Tensor:
        """The mean of the worst fraction `alpha` in (0, 1) of the returns (lower CVaR)."""
        return self._at_points(self._cvar, alpha, "alpha")

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`n` independent returns of each law; shape `batch_shape + (n,)`."""
        n = whole("n", n)
        check_at_least(0, n=n)
        return self._quantile(self._random_levels(n, generator))

    def _random_levels(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`n` independent levels in (0, 1) for each law; shape `batch_shape + (n,)`."""
        like = checked_dtype(self.reference)
        uniform = torch.rand(*self.batch_shape, n, generator=generator, dtype=like.dtype, device=like.device)
        eps = torch.finfo(like.dtype).eps
        return uniform.clamp(eps, 1 - eps)

    def _at_points(self, function: Callable[[Tensor], Tensor], at: Tensor | float, level: str | None = None) -> Tensor:
        like = checked_dtype(self.reference)
        points = torch.as_tensor(at, dtype=like.dtype, device=like.device)
        if level is not None and not torch.compiler.is_compiling():  # a trace has no values to check
            check_open_unit(level, points)
        if points.ndim == 0:
            return function(points.unsqueeze(0)).squeeze(-1)
        return function(points)

    def _at_returns(self, function: Callable[[Tensor], Tensor], y: Tensor | float) -> Tensor:
        """A function of returns, which is NaN at NaN and sends no gradient there."""

        def known(points: Tensor) -> Tensor:
            unknown = points.isnan()
            return torch.where(unknown, torch.nan, function(torch.where(unknown, 0.0, points)))

        return self._at_points(known, y)


def _few(values: Tensor) -> str:
    """The first numbers of a tensor.

    >>> _few(torch.arange(9.0)), _few(torch.tensor(0.5))
    ('[0, 1, 2, 3, 4, 5, …]', '0.5')
    """
    if values.ndim == 0:
        return f"{values.item():.4g}"
    numbers = [f"{value:.4g}" for value in values.flatten()[:SHOWN].tolist()]
    return f"[{', '.join([*numbers, '…'] if values.numel() > SHOWN else numbers)}]"


class DensityLaw(Law):
    """A law that has a density."""

    @abstractmethod
    def _log_prob(self, y: Tensor) -> Tensor:
        """Log-density at returns `y` of shape (..., K)."""

    def log_prob(self, y: Tensor | float) -> Tensor:
        """The log-density at `y`; -inf outside the support, NaN at NaN."""
        return self._at_returns(self._log_prob, y)

    def pdf(self, y: Tensor | float) -> Tensor:
        """The density at `y`, capped at the square root of the largest float so that gradients stay finite."""
        return capped_exp(self.log_prob(y))


def capped_exp(log_density: Tensor) -> Tensor:
    """The exponential, at most the square root of the largest float, so that gradients stay finite."""
    return log_density.clamp(max=0.5 * math.log(torch.finfo(log_density.dtype).max)).exp()


def checked_dtype(value: Tensor) -> Tensor:
    """Refuse floats of 16 bits: a CDF or a quantile would have two or three digits, where PyTorch has them at all."""
    if value.dtype in HALVES:
        raise NfdrlError(
            f"laws need float32 or float64, got {value.dtype}: convert with .float()".replace("torch.", "")
        )
    return value


class Head(nn.Module, ABC):
    """A network's last part: features of shape (..., F) to a law of batch shape (..., A)."""

    @abstractmethod
    def forward(self, features: Tensor) -> Law:
        """The return law of every action."""

    def __call__(self, features: Tensor) -> Law:
        law = super().__call__(features)
        assert isinstance(law, Law)
        checked_dtype(law.reference)
        return law


class LinearHead(Head):
    """One linear layer, whose outputs are read as the laws of all actions."""

    def __init__(self, features: int, actions: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, actions * outputs)
        self.actions = actions

    def start_small(self) -> None:
        """Draw weights that give outputs near 0, whatever the features."""
        nn.init.zeros_(self.linear.bias)
        # A layer on the meta device is only counted, and PyTorch would import its whole compiler for its weights.
        if not self.linear.weight.is_meta:
            nn.init.normal_(self.linear.weight, std=0.01 / math.sqrt(self.linear.in_features))

    def by_action(self, raw: Tensor) -> Tensor:
        """Raw outputs with an axis for the actions; shape (..., A · outputs) → (..., A, outputs)."""
        return raw.view(*raw.shape[:-1], self.actions, -1)

    @abstractmethod
    def read(self, raw: Tensor) -> Law:
        """The laws of raw outputs; shape (..., A · outputs) → batch shape (..., A)."""

    def forward(self, features: Tensor) -> Law:
        raw: Tensor = self.linear(features)
        return self.read(raw.float() if raw.dtype in HALVES else raw)


class Method(ABC):
    """An algorithm: a frozen dataclass of hyper-parameters that builds a head and compares two laws.

    Everything else about it has a default: its name and looks, and how it is compared with exact laws.
    """

    @property
    def name(self) -> str:
        """Its name in commands and files."""
        return type(self).__name__.lower()

    @property
    def label(self) -> str:
        """Its name in legends."""
        return self.name

    @property
    def colour(self) -> str:
        """Its colour, the same in every figure."""
        return BLACK

    @property
    def line(self) -> Literal["-", "--"]:
        """Solid, or dashed to tell it from another method of the same colour."""
        return "-"

    @property
    def learning_rate(self) -> float:
        """Adam's rate in control, at first; ours: between the 6.3e-4 and 2.3e-3 of RL Zoo and the 2.5e-4 of CleanRL."""
        return 5e-4

    @property
    def finite_rate(self) -> float:
        """The same where states are finite, and what is learned of one disturbs the others less."""
        return self.learning_rate

    @property
    def tabular_rate(self) -> float:
        """Adam's initial rate on a table of laws with 128 transitions per update."""
        return 1e-2

    @property
    def tabular_decay(self) -> TabularDecay:
        """How that rate falls to 0."""
        return "linear"

    @property
    def tabular_forgets(self) -> bool:
        """Whether a rate that is not the usual one comes down to it in time."""
        return False

    @property
    def embeds_states(self) -> bool:
        """Whether its head multiplies features, for which the one-hot rows of a table are too poor."""
        return False

    @abstractmethod
    def head(self, features: int, actions: int) -> Head:
        """A head for `actions` actions on a torso with `features` outputs."""

    @abstractmethod
    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:
        """One number per batch row; gradients flow into `predicted` only."""

    def value(self, law: Law, risk: Callable[[Law], Tensor]) -> Tensor:
        """What actions are chosen by: the risk functional of a law, unless the method has a reading of its own."""
        return risk(law)

    def within(self, low: float, high: float) -> Method:  # noqa: ARG002
        """The method adapted to returns in [low, high], where it has settings for that."""
        return self

    def of_rewards(self, size: float) -> Method:  # noqa: ARG002
        """The method for rewards of that size, where it has settings for that."""
        return self

    def on_small_images(self) -> Method:
        """The method for a network of one small convolution, where it has settings for that."""
        return self

    def without_huber(self) -> Method:
        """The method without a quadratic part around zero error, where its loss has one."""
        return self

    def representation(self) -> str:
        """What its laws can hold: equal for methods that have the same best law."""
        return repr(self)

    def best_law(self, truths: Truths, fit: Fit, track: Track) -> Law | None:  # noqa: ARG002
        """The nearest laws of its family to the truths; batch shape (P,). None where nothing limits it."""
        return None

    def parameter_groups(self, head: Head) -> list[dict[str, Any]]:  # noqa: ARG002
        """Parameters that need an optimiser of their own; each group has "params" and its settings."""
        return []


def select_rows(value: Tensor, action: Tensor | int, event_dims: int) -> Tensor:
    """Index the last batch axis of `value`, which is followed by `event_dims` axes.

    Shapes: (..., A, *event), (...) → (..., *event)
    """
    axis = value.ndim - 1 - event_dims
    if axis < 0:
        raise NfdrlError("select needs a law with a batch axis for the actions, and this one has none")
    if isinstance(action, int):
        return value.select(axis, action)
    index = action if action.dtype == torch.int64 and action.device == value.device else action.to(value.device).long()
    index = index.unsqueeze(-1)
    if event_dims:
        index = index[(..., *[None] * event_dims)].expand(*value.shape[:axis], 1, *value.shape[axis + 1 :])
    return value.gather(axis, index).squeeze(axis)
