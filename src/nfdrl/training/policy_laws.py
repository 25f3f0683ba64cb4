"""Temporal-difference learning of a fixed policy's return laws in a finite MDP, from sampled transitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from nfdrl.envs.finite import FiniteMDP
from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.laws.base import Law, Method
from nfdrl.learner import Learner, Optimisation
from nfdrl.networks import EMBEDDING, Network, table
from nfdrl.replay import Batch
from nfdrl.threads import threads
from nfdrl.torsos import OneHot
from nfdrl.training.schedules import Decay, decay, forgetting

CHUNK = 256  # batches drawn at once, because each call of the vectorised sampler has a cost


@dataclass(frozen=True)
class PolicyLearning:
    """How long and how fast to learn."""

    updates: int = 6_000
    batch_size: int = 64
    learning_rate: float = 1e-2
    schedule: Decay = "linear"  # sampled targets never stop moving; the rate has to fall for the law to settle
    target_every: int = 1
    usual_rate: float | None = None  # with one, the rate forgets where it began (see `schedules.forgetting`)

    def __post_init__(self) -> None:
        check_at_least(1, updates=self.updates, batch_size=self.batch_size, target_every=self.target_every)
        if not self.learning_rate > 0:
            raise NfdrlError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.usual_rate is not None and not self.usual_rate > 0:
            raise NfdrlError(f"usual_rate must be positive, got {self.usual_rate}")

    @classmethod
    def of(cls, method: Method, updates: int, batch_size: int, rate: float | None = None) -> PolicyLearning:
        """As the method learns a table of laws, at its own rate or another."""
        usual = method.tabular_rate if method.tabular_forgets else None
        rate = method.tabular_rate if rate is None else rate
        return cls(updates, batch_size, rate, method.tabular_decay, usual_rate=usual)

    def rate(self, fraction: float) -> float:
        """Adam's rate after `fraction` of the updates."""
        start = self.learning_rate
        if self.usual_rate is not None:
            start = forgetting(start, self.usual_rate, fraction)
        return start * decay(self.schedule, fraction)


@dataclass(frozen=True)
class LearnedLaws:
    """What policy evaluation has learned, and the loss of every update."""

    network: Network
    losses: torch.Tensor

    @torch.no_grad()
    def laws(self, pairs: ArrayLike) -> Law:
        """The laws of state-action pairs (P, 2); batch shape (P,)."""
        state, action = torch.as_tensor(np.asarray(pairs), dtype=torch.long).unbind(-1)
        return self.network(state).select(action)


def learn_policy_laws(
    mdp: FiniteMDP,
    policy: ArrayLike,
    method: Method,
    settings: PolicyLearning,
    *,
    discount: float | None = None,
    seed: int = 0,
    network: Callable[[Method, int, int], Network] | None = None,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> LearnedLaws:
    """Learn laws by TD: each row of a batch is a live pair and one sampled outcome of it.

    The next action is drawn from the policy, so that nothing but transitions is ever seen. `network` is called with the
    method and the numbers of states and actions; the default is `tabular_network`.
    """
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # modules draw their first weights from the global generator
        online = (network or tabular_network)(method, mdp.n_states, mdp.n_actions)
    optimisation = Optimisation(settings.learning_rate, target_every=settings.target_every)
    learner = Learner(method, online, optimisation, generator=generator)
    batches = _sampled_batches(mdp, policy, settings.batch_size, mdp.resolve_discount(discount), rng)
    losses = []
    with threads(1):  # laws are too small to share: where another process has a core, two threads wait for each other
        for step in track(range(settings.updates)):
            learner.set_learning_rate(settings.rate(step / settings.updates))
            losses.append(learner.update(*next(batches)))
    return LearnedLaws(online, torch.tensor(losses))


def tabular_network(method: Method, states: int, actions: int) -> Network:
    """A table of raw outputs, or `EMBEDDING` learned non-negative features per state under the method's head.

    IQN and FQF multiply features by an embedding of the level: a one-hot row would leave them one number per level.
    """
    if not method.embeds_states:
        return table(method, states, actions)
    torso = OneHot(states, widths=(EMBEDDING,))
    return Network(torso, method.head(EMBEDDING, actions))


def _sampled_batches(
    mdp: FiniteMDP, policy: ArrayLike, size: int, discount: float, rng: np.random.Generator
) -> Iterator[tuple[Batch, torch.Tensor]]:
    pairs = mdp.live_pairs()
    cumulated = mdp.policy_matrix(policy).cumsum(-1)
    while True:
        state, action = pairs[rng.integers(len(pairs), size=(CHUNK, size))].transpose(2, 0, 1)
        following, reward, terminated = mdp.sample(state.ravel(), action.ravel(), rng)
        level = rng.random(following.size) * cumulated[following, -1]
        next_action = (cumulated[following] <= level[:, None]).sum(-1).clip(max=mdp.n_actions - 1)
        columns = (state, action, reward, discount * ~terminated, following, next_action)
        tensors = [torch.from_numpy(np.ascontiguousarray(column).reshape(CHUNK, size)) for column in columns]
        observation, acted, paid, kept, next_observation, chosen = tensors
        dtype = torch.get_default_dtype()
        paid, kept = paid.to(dtype), kept.to(dtype)
        for k in range(CHUNK):
            yield Batch(observation[k], acted[k], paid[k], kept[k], next_observation[k]), chosen[k]
