"""Whole episodes of a fixed policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nfdrl.errors import check_at_least
from nfdrl.observations import stack

Array = NDArray[Any]
Policy = Callable[[Array], Array]  # observations (B, ...) → actions (B,), as the environments take them


@dataclass(frozen=True)
class Episodes:
    """Undiscounted returns and lengths of whole episodes, in the order of their seeds."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        return float(self.returns.std())

    def summary(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "episodes": len(self.returns),
            "mean": self.mean,
            "std": self.std,
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
        }


def rollout(policy: Policy, envs: Sequence[gymnasium.Env[Any, Any]], episodes: int, seed: int) -> Episodes:
    """Play `episodes` whole episodes, several at once, the k-th seeded with seed + k.

    An environment that finishes an episode takes the next. Every episode that begins is counted, so that short ones are
    not favoured and the result does not depend on the number of environments.
    """
    check_at_least(1, episodes=episodes)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    running: dict[int, int] = {}  # environment → episode
    observations: list[Any] = []
    for k, env in enumerate(envs[:episodes]):
        running[k] = k
        observations.append(env.reset(seed=seed + k)[0])
    following = len(running)
    while running:
        places = list(running)
        actions = policy(stack(envs[0].observation_space, [observations[k] for k in places]))
        for k, action in zip(places, actions.tolist(), strict=True):
            episode = running[k]
            observations[k], reward, terminated, truncated, _ = envs[k].step(action)
            returns[episode] += float(reward)
            lengths[episode] += 1
            if not (terminated or truncated):
                continue
            if following < episodes:
                running[k] = following
                observations[k] = envs[k].reset(seed=seed + following)[0]
                following += 1
            else:
                del running[k]
    return Episodes(returns, lengths)
