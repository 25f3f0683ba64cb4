"""Whole episodes of a fixed policy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdrl.envs.watching import Blaming, at_step
from nfdrl.errors import check_at_least
from nfdrl.evaluation.arenas import Arena
from nfdrl.progress import Progress

Array = NDArray[Any]
Policy = Callable[[Array], Array]  # observations (B, ...) → actions (B,), as the environments take them

MAX_STEPS = (
    108_000  # of an episode: Atari's thirty minutes with every frame a step, far beyond Gymnasium's other limits
)
SHOW_EVERY = 1_000  # steps between two updates of the bar


@dataclass(frozen=True)
class Episodes:
    """Undiscounted returns and lengths of whole episodes, in the order of their seeds; `cut` of them had not ended."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    cut: int = 0

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        return float(self.returns.std())

    def summary(self) -> dict[str, Any]:
        """The same as JSON."""
        cut = {"cut": self.cut} if self.cut else {}
        return {
            "episodes": len(self.returns),
            "mean": self.mean,
            "std": self.std,
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
            **cut,
        }


def rollout(
    policy: Policy,
    arena: Arena,
    episodes: int,
    seed: int,
    *,
    max_steps: int | None = None,
    progress: bool | None = False,
) -> Episodes:
    """Play `episodes` whole episodes, several at once, the k-th seeded with seed + k.

    A place that finishes an episode takes the next. Every episode that begins is counted, so that short ones are not
    favoured and the result does not depend on the number of places. One that reaches `max_steps` is cut off there.
    """
    limit = MAX_STEPS if max_steps is None else max_steps
    check_at_least(1, episodes=episodes, max_steps=limit)
    played = Play(np.zeros(episodes), np.zeros(episodes, np.int64), limit)
    with Progress(progress) as bars:
        bar = bars.bar("evaluating", episodes)
        for done, steps in played.play(policy, arena, seed):
            bar(done, f"evaluating, {steps:,} steps")
    if played.cut:
        warnings.warn(
            f"{played.cut} of {episodes} episodes had not ended after {limit:,} steps and count with the return up to "
            "there: pass max_steps for another limit",
            stacklevel=3,
        )
    return Episodes(played.returns, played.lengths, played.cut)


@dataclass
class Play:
    """The episodes so far, and how they are played."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    limit: int
    show_every: int = SHOW_EVERY
    cut: int = 0

    def play(self, policy: Policy, arena: Arena, seed: int) -> Iterator[tuple[int, int]]:
        """Play all episodes; yields how many are over and the steps so far, every `show_every` steps."""
        episodes, steps = len(self.returns), 0
        running: dict[int, int] = {}  # place → episode
        blaming = Blaming(lambda _: self._where(running, arena.current, seed))
        free, following = list(range(min(arena.width, episodes))), 0
        while running or following < episodes:
            if following < episodes and free and not (arena.together and running):
                places, free = free[: episodes - following], []
                running |= {place: following + k for k, place in enumerate(places)}
                following += len(places)
                with blaming:
                    arena.begin(places, [seed + running[place] for place in places])
            places = list(running)
            action = policy(arena.observations(places))
            with blaming:
                reward, over = arena.step(places, action)
            chosen = [running[place] for place in places]
            self.returns[chosen] += reward
            self.lengths[chosen] += 1
            late = self.lengths[chosen] >= self.limit
            self.cut += int(np.count_nonzero(late & ~over))
            for k in np.flatnonzero(over | late).tolist():
                del running[places[k]]
                free.append(places[k])
            free.sort()
            before, steps = steps, steps + len(places)
            if steps // self.show_every > before // self.show_every or not running:
                yield following - len(running), steps

    def _where(self, running: dict[int, int], place: int | None, seed: int) -> str:
        """Which episode is being played, or which ones are if they are stepped together."""
        chosen = sorted(running.values()) if place is None else [running[place]]
        step = at_step(int(self.lengths[chosen].max()))
        if len(chosen) == 1:
            return f"in episode {chosen[0]} (seed {seed + chosen[0]}), {step}"
        return f"in one of the episodes {chosen[0]} to {chosen[-1]} (the first has seed {seed + chosen[0]}), {step}"
