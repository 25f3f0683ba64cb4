"""Heads that are not linear, on the features before them: their values, their losses and the gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast, final

import numpy as np
import torch
from torch import Tensor, nn

from nfdrl.bellman import Valuation
from nfdrl.engines.compiled import monotone, quantile
from nfdrl.engines.compiled.alike import alone, rows_alike
from nfdrl.engines.compiled.jit import Array, F
from nfdrl.engines.compiled.kernels import Bellman, Registry, log_softmax
from nfdrl.laws.base import Head
from nfdrl.laws.fraction import FQF, FractionHead
from nfdrl.laws.implicit import IQN, ImplicitHead, QuantileNetwork
from nfdrl.laws.monotone import INTEGRATION_WIDTH, UMDQN, MonotoneHead
from nfdrl.risk import Mean


class HeadKernel(ABC):
    """A head on float32 features; its own weights are read at each call, and their gradients are overwritten."""

    def values(self, features: Array, risk: Valuation) -> Array | None:
        """The values by which actions are chosen, or None if only the law can tell; (B, F) → (B, A)."""
        return self.means(features) if isinstance(risk, Mean) else None

    @abstractmethod
    def means(self, features: Array) -> Array:
        """Expected returns of all actions; shape (B, F) → (B, A)."""

    @abstractmethod
    def target(self, features: Array, chosen: Array, bellman: Bellman) -> Array:
        """The Bellman target of the chosen actions' laws, as the loss wants it; (B, F), (B,) → (B, M)."""

    @abstractmethod
    def differentiate(
        self, features: Array, action: Array, target: Callable[[], Array], share: Array
    ) -> tuple[Array, Array]:
        """The loss per row, and the gradient of their sum, weighted by `share`, in the features.

        `target` is called once, after what is random on this side has been drawn. Shapes: (B, F), (B,) → (B,), (B, F)
        """


# The kernel of a method, a head of it and the generator of its random numbers. Register one for a method of your own.
head_kernel_of: Registry[HeadKernel] = Registry()


def _quantile_weights(network: QuantileNetwork) -> quantile.Weights:
    embedding, hidden, output = (_arrays(layer) for layer in (network.embedding, network.hidden, network.output))
    return *embedding, np.ascontiguousarray(hidden[0].T), hidden[1], *output


def _write_quantile_gradients(network: QuantileNetwork, into: quantile.Weights) -> None:
    _write(network.embedding, into[0], into[1])
    _write(network.hidden, into[2].T, into[3])
    _write(network.output, into[4], into[5])


@final
class ImplicitKernel(HeadKernel):
    """`IQN`: a quantile network at random levels."""

    def __init__(self, method: IQN, network: QuantileNetwork, generator: torch.Generator | None) -> None:
        self.method, self.network, self.generator = method, network, generator

    def means(self, features: Array) -> Array:
        n = self.method.acting_levels
        levels = _repeated((np.arange(n, dtype=np.float32) + F(0.5)) / F(n), len(features))
        every = _repeated(np.arange(self.network.output.out_features), len(features))
        members, weights = alone(len(features)), _quantile_weights(self.network)
        found: Array = quantile.quantiles(features, levels, members, every, weights).mean(-1)
        return found

    def target(self, features: Array, chosen: Array, bellman: Bellman) -> Array:
        levels = self._levels(len(features), self.method.target_samples)
        members, weights = alone(len(features)), _quantile_weights(self.network)
        return bellman(quantile.quantiles(features, levels, members, chosen[:, None], weights)[:, 0])

    def differentiate(
        self, features: Array, action: Array, target: Callable[[], Array], share: Array
    ) -> tuple[Array, Array]:
        """Dabney et al. 2018b, Eq. 3."""
        levels, threshold = self._levels(len(features), self.method.samples), F(self.method.huber_threshold)
        members, weights = alone(len(features)), _quantile_weights(self.network)
        losses, _, slope, into = quantile.descend(
            features, levels, members, action, target(), threshold, share, weights
        )
        _write_quantile_gradients(self.network, into)
        return losses, slope

    def _levels(self, rows: int, n: int) -> Array:
        """As `Law.sample` draws them."""
        eps = torch.finfo(torch.float32).eps
        drawn: Array = torch.rand(rows, n, generator=self.generator, dtype=torch.float32).clamp_(eps, 1 - eps).numpy()
        return drawn


@head_kernel_of.register(IQN)
def _implicit(method: IQN, head: Head, generator: torch.Generator | None) -> HeadKernel:
    return ImplicitKernel(method, cast(ImplicitHead, head).network, generator)


@final
class FractionKernel(HeadKernel):
    """`FQF`: a quantile network in the middles of proposed fractions."""

    def __init__(self, method: FQF, head: FractionHead) -> None:
        self.method, self.head, self.network = method, head, head.network

    def _masses(self, features: Array) -> Array:
        weight, bias = _arrays(self.head.proposal)
        masses: Array = np.exp(log_softmax(features @ weight.T + bias))
        return masses

    def means(self, features: Array) -> Array:
        masses, members = self._masses(features), alone(len(features))
        every = _repeated(np.arange(self.network.output.out_features), len(features))
        atoms = quantile.quantiles(features, _middles(masses), members, every, _quantile_weights(self.network))
        found: Array = (atoms @ masses[:, :, None])[..., 0]
        return found

    def target(self, features: Array, chosen: Array, bellman: Bellman) -> Array:
        alike = rows_alike(features)
        states, members, weights = features[alike.first], alike.members(), _quantile_weights(self.network)
        levels = _middles(self._masses(states))
        return bellman(quantile.quantiles(states, levels, members, chosen[:, None], weights)[:, 0])

    def differentiate(
        self, features: Array, action: Array, target: Callable[[], Array], share: Array
    ) -> tuple[Array, Array]:
        """Yang et al. 2019, Eq. 8 for the quantiles and Proposition 1 for the fractions.

        Fractions depend on the state alone, so rows of one state share all units. The first of them takes the gradient
        in the features for all.
        """
        alike = rows_alike(features)
        states, members, weights = features[alike.first], alike.members(), _quantile_weights(self.network)
        masses, threshold = self._masses(states), F(self.method.huber_threshold)
        fractions = masses[:, :-1].cumsum(-1, dtype=np.float32)
        losses, atoms, of_states, into = quantile.descend(
            states, _middles(masses), members, action, target(), threshold, share, weights
        )
        _write_quantile_gradients(self.network, into)
        slope = np.zeros_like(features)
        slope[alike.first] = of_states
        at_fractions = quantile.quantiles(states, fractions, members, action[:, None], weights)[:, 0]
        pull = (2 * at_fractions - atoms[:, 1:] - atoms[:, :-1]) * share[:, None]
        # The mass of each cell moves all fractions after it, of which the last is always 1.
        of_masses, masses = np.pad(pull[:, ::-1].cumsum(-1)[:, ::-1], ((0, 0), (0, 1))), masses[alike.group]
        of_logits = (masses * (of_masses - (masses * of_masses).sum(-1, keepdims=True))).astype(np.float32)
        _write(self.head.proposal, of_logits.T @ features, of_logits.sum(0))
        return losses, slope


def _middles(masses: Array) -> Array:
    """The middle of each cell; shape (B, N) → (B, N)."""
    middles: Array = masses.cumsum(-1, dtype=np.float32) - F(0.5) * masses
    return middles


@head_kernel_of.register(FQF)
def _fraction(method: FQF, head: Head, _: torch.Generator | None) -> HeadKernel:
    return FractionKernel(method, cast(FractionHead, head))


@final
class MonotoneKernel(HeadKernel):
    """`UMDQN`: CDFs on a grid."""

    def __init__(self, head: MonotoneHead) -> None:
        self.head = head
        low, high, points = head.grid
        self.low, self.step = F(low), F((high - low) / (points - 1))
        self._grid = np.linspace(-1, 1, points, dtype=np.float32), F(INTEGRATION_WIDTH / (points - 1))
        self._centres = (low + (np.arange(points - 1) + 0.5) * (high - low) / (points - 1)).astype(np.float32)

    def _weights(self) -> monotone.Weights:
        hidden, output = _arrays(self.head.hidden), _arrays(self.head.output)
        slopes = np.ascontiguousarray(_array(self.head.from_return.weight)[:, 0])
        return slopes, np.ascontiguousarray(hidden[0].T), hidden[1], *output

    def _layers(self, features: Array) -> tuple[Array, Array]:
        """The first layer without returns, and offsets and slopes; (B, F) → (B, H), (B, 2A)."""
        (weight, bias), (affine, offset) = _arrays(self.head.from_features), _arrays(self.head.affine)
        return features @ weight.T + bias, features @ affine.T + offset

    def _cumulative(self, features: Array, chosen: Array) -> Array:
        found: Array = monotone.cumulatives(*self._layers(features), chosen, self._weights(), self._grid)
        return found

    def means(self, features: Array) -> Array:
        every = _repeated(np.arange(self.head.output.out_features), len(features))
        found: Array = np.diff(self._cumulative(features, every), axis=-1) @ self._centres
        return found

    def target(self, features: Array, chosen: Array, bellman: Bellman) -> Array:
        cumulative = self._cumulative(features, chosen[:, None])[:, 0]
        found: Array = monotone.moved(cumulative, self.low, self.step, bellman.reward, bellman.discount)
        return found

    def differentiate(
        self, features: Array, action: Array, target: Callable[[], Array], share: Array
    ) -> tuple[Array, Array]:
        """Théate et al. 2023, Cramér loss."""
        first, affine = self._layers(features)
        losses, of_first, of_affine, into = monotone.descend(
            first, affine, action, target(), self.step, share, self._weights(), self._grid
        )
        head = self.head
        _write(head.from_features, of_first.T @ features, of_first.sum(0))
        _write(head.affine, of_affine.T @ features, of_affine.sum(0))
        _gradient(head.from_return.weight)[:, 0] = into[0]
        _write(head.hidden, into[1].T, into[2])
        _write(head.output, into[3], into[4])
        return losses, of_first @ _array(head.from_features.weight) + of_affine @ _array(head.affine.weight)


@head_kernel_of.register(UMDQN)
def _monotone(method: UMDQN, head: Head, _: torch.Generator | None) -> HeadKernel:  # noqa: ARG001
    return MonotoneKernel(cast(MonotoneHead, head))


def _repeated(row: Array, rows: int) -> Array:
    """The same in every row; contiguous, as everything that a compiled function gets, or it is compiled once more."""
    return np.tile(row, (rows, 1))


def _array(parameter: Tensor) -> Array:
    return parameter.detach().numpy()


def _arrays(layer: nn.Linear) -> tuple[Array, Array]:
    return _array(layer.weight), _array(layer.bias)


def _gradient(parameter: Tensor) -> Array:
    assert parameter.grad is not None, "a learner gives every parameter a gradient"
    gradient: Array = parameter.grad.numpy()
    return gradient


def _write(layer: nn.Linear, weight: Array, bias: Array) -> None:
    _gradient(layer.weight)[...] = weight
    _gradient(layer.bias)[...] = bias
