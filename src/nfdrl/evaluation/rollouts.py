"""Whole episodes of a fixed policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nfdrl.errors import NfdrlError

Array = NDArray[Any]
Policy = Callable[[Array], Array]  # observations (B, ...) → actions (B,), as the environments take them


@dataclass(frozen=True)
class Episodes:
    """Undiscounted returns and lengths of whole episodes, in the order of their seeds."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """The standard deviation of the return over episodes."""
        return float(self.returns.std())

    def summary(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "episodes": len(self.returns),
            "mean": self.mean,
            "std": self.std,
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
        }


def rollout(policy: Policy, envs: Sequence[gymnasium.Env[Any, Any]], episodes: int, seed: int) -> Episodes:
    """Play `episodes` whole episodes, the k-th seeded with seed + k, several at once.

    Environments take the next episode when they are done with one. Every episode that is begun is counted, so short
    ones are not favoured, and the result does not depend on how many environments share the work.
    """
    if episodes < 1:
        raise NfdrlError(f"episodes must be at least 1, got {episodes}")
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    running: dict[int, int] = {}  # environment → episode
    observations: list[Any] = []
    for k, env in enumerate(envs[:episodes]):
        running[k] = k
        observations.append(env.reset(seed=seed + k)[0])
    following = len(running)
    while running:
        places = list(running)
        actions = policy(np.stack([observations[k] for k in places]))
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
