"""States of greedy episodes, each with the discounted return that followed it, as training defines that return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdrl.envs.stepping import Step, Stream, check_observation, check_step
from nfdrl.envs.watching import Blaming, Limits, at_step, limited
from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.progress import Progress

Array = NDArray[Any]
Floats = NDArray[np.float64]
Greedy = Callable[[Array], Array]  # observations (B, ...) → actions (B,), counted from 0
Value = Callable[[Array], Floats]  # observations (B, ...) → predicted mean returns (B,)

UNSEEN = 0.01  # the largest weight in a return of what would have followed after an episode was cut off
STORED = 1_000  # observations kept of a running episode; beyond that, every second is dropped


@dataclass(frozen=True)
class Sampling:
    """What is played and kept: at most `states` random states of each episode, 1 for independent ones."""

    episodes: int
    discount: float
    seed: int = 10_000
    states: int = 20
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_at_least(2, episodes=self.episodes)
        check_at_least(1, states=self.states)
        check_at_least(0, seed=self.seed)


@dataclass
class Episode:
    """One episode while it runs; observations are kept at every `stride`-th step."""

    number: int
    observations: list[Array] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)  # the learned return ends here, though the episode may not
    stride: int = 1
    final: Array | None = None  # the last observation, if the episode was cut off

    def act(self, observation: Array, action: int) -> None:
        """Take note of an action before it is taken."""
        if len(self.actions) % self.stride == 0:
            self.observations.append(np.copy(observation))
        self.actions.append(action)
        if len(self.observations) > STORED:
            del self.observations[1::2]
            self.stride *= 2

    def take(self, step: Step, k: int) -> bool:
        """Take note of what environment `k` did; returns whether the episode is over."""
        reward = step.reward if step.learned_reward is None else step.learned_reward
        terminated, truncated = bool(step.terminated[k]), bool(step.truncated[k])
        self.rewards.append(float(reward[k]))
        self.ends.append(terminated or (step.life_lost is not None and bool(step.life_lost[k])))
        if truncated and not terminated:
            self.final = np.copy(step.reached[k])
        return terminated or truncated

    def returns(self, discount: float, tail: float) -> tuple[Floats, Floats]:
        """The discounted return from each step on, `tail` following the last one, and the weight of `tail` in it."""
        returns, weights = np.zeros((2, len(self.rewards)))
        following, weight = tail, 0.0 if self.final is None else 1.0
        for t in reversed(range(len(self.rewards))):
            kept = 0.0 if self.ends[t] else discount
            following, weight = self.rewards[t] + kept * following, kept * weight
            returns[t], weights[t] = following, weight
        return returns, weights


@dataclass(frozen=True)
class Observed:
    """States with the action taken in each, the return that followed, and the number of their episode."""

    observation: Array
    action: NDArray[np.int64]
    returns: Floats
    episode: NDArray[np.int64]
    counts: dict[str, int]


def observe(stream: Stream, greedy: Greedy, value: Value, sampling: Sampling, progress: bool | None = None) -> Observed:
    """Play episodes and keep states of them.

    What would have followed after an episode was cut off is unknown. States in whose return it weighs more than UNSEEN
    are discarded and counted; in the others, the predicted mean stands for it.
    """
    with Progress(progress) as bars:
        played = list(bars.track(_play(stream, greedy, sampling), "episodes", sampling.episodes))
    played.sort(key=lambda episode: episode.number)
    kept = [_choose(episode, value, sampling) for episode in played]
    counts = {
        "episodes": len(played),
        "steps": sum(len(episode.rewards) for episode in played),
        "cut_off": sum(episode.final is not None for episode in played),
        "discarded": sum(discarded for *_, discarded in kept),
    }
    if sum(len(actions) > 0 for _, actions, *_ in kept) < 2:
        raise NfdrlError(
            f"{counts['cut_off']} of {len(played)} episodes were cut off before enough of their returns was known: "
            "name an environment with a longer time limit, or train with a smaller discount"
        )
    observations, actions, returns = (np.concatenate(part) for part in list(zip(*kept, strict=True))[:3])
    numbers = np.repeat([episode.number for episode in played], [len(actions) for _, actions, *_ in kept])
    return Observed(observations, actions, returns, numbers, counts)


def _play(stream: Stream, greedy: Greedy, sampling: Sampling) -> Iterator[Episode]:
    """Whole episodes in the order in which they end; every one that begins in time is played to its end."""
    running = [Episode(k) for k in range(stream.num_envs)]
    blaming, stream.reset_limit = Blaming(lambda _: _where(running, stream.current)), sampling.limits.reset
    with blaming:
        observation = stream.reset(sampling.seed)
        check_observation(observation)
    begun, waiting = len(running), min(len(running), sampling.episodes)
    while waiting:
        action = greedy(observation)
        for k, episode in enumerate(running):
            episode.act(observation[k], int(action[k]))
        with blaming, limited(sampling.limits.step, "a step", "step_limit"):
            step = stream.step(action)
            check_step(step)
        for k, episode in enumerate(running):
            if not episode.take(step, k):
                continue
            running[k] = Episode(begun)
            waiting += (begun < sampling.episodes) - (episode.number < sampling.episodes)
            begun += 1
            if episode.number < sampling.episodes:
                yield episode
        observation = step.observation


def _where(running: list[Episode], env: int | None) -> str:
    """Which episode is being played, or which ones are if they are stepped together."""
    if env is not None:
        return f"in episode {running[env].number}, {at_step(len(running[env].rewards))}"
    numbers = [episode.number for episode in running]
    return f"in one of the episodes {min(numbers)} to {max(numbers)}, {at_step(max(len(e.rewards) for e in running))}"


def _choose(episode: Episode, value: Value, sampling: Sampling) -> tuple[Array, NDArray[np.int64], Floats, int]:
    """Observations, actions and returns of random states whose return is known, and how many steps are not."""
    tail = 0.0 if episode.final is None else float(value(episode.final[None])[0])
    returns, weights = episode.returns(sampling.discount, tail)
    known = weights <= UNSEEN
    stored = np.flatnonzero(known[:: episode.stride])
    rng = np.random.default_rng([sampling.seed, episode.number])
    chosen = np.sort(rng.permutation(stored)[: sampling.states])
    steps = chosen * episode.stride
    observations = np.stack(episode.observations)[chosen]
    return observations, np.asarray(episode.actions, np.int64)[steps], returns[steps], int((~known).sum())
