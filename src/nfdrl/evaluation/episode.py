"""An episode with its pictures and laws: what a video and the page show of an agent that plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nfdrl.bellman import Valuation
from nfdrl.envs.make import Source
from nfdrl.envs.solo import Solo
from nfdrl.envs.watching import EnvironmentFailure, Limits
from nfdrl.errors import NfdrlError
from nfdrl.laws import Law, Method
from nfdrl.style import to_numpy

Array = NDArray[Any]
Pixels = NDArray[np.uint8]
Env = gymnasium.Env[Any, Any]
End = Literal["terminated", "truncated", "cut off"]  # by the environment, by its time limit, by the recording's

# What the actions do in those of Gymnasium's own environments that do not say it themselves.
ACTIONS = {
    "CartPole": ("← push", "push →"),
    "MountainCar": ("←", "·", "→"),
    "Acrobot": ("−", "0", "+"),
    "FrozenLake": ("←", "↓", "→", "↑"),
    "CliffWalking": ("↑", "→", "↓", "←"),
    "Taxi": ("↓", "↑", "→", "←", "pick up", "drop off"),
    "LunarLander": ("coast", "left", "main", "right"),
    "Blackjack": ("stick", "hit"),
}


class Player(Protocol):
    """What a video needs of an agent."""

    risk: Valuation

    @property
    def method(self) -> Method:
        """How it learns."""

    def predict(self, observation: ArrayLike) -> tuple[Array, None]:
        """The action for an observation."""

    def returns(self, observation: ArrayLike) -> Law:
        """The return law of every action."""


@dataclass(frozen=True)
class Moment:
    """One step of an episode: the picture, each action's law and value, the action taken, and its reward."""

    picture: Pixels
    law: Law
    value: NDArray[np.float64]
    action: int
    reward: float
    life_lost: bool


def rendering_env(source: Source, limits: Limits | None = None) -> Env:
    """A new environment that draws itself."""
    plain = source.fresh()
    modes = plain.metadata.get("render_modes") or ()
    plain.close()
    if "rgb_array" not in modes:
        raise NfdrlError(f"environment {source.name!r} draws no pictures: it has no render mode rgb_array")
    env = source.fresh("rgb_array")
    solo = Solo(env, limits)
    try:
        solo.reset(seed=0)
        solo.render()
    except EnvironmentFailure as error:
        if isinstance(error.__cause__, gymnasium.error.DependencyNotInstalled):
            raise NfdrlError(f'pictures of {source.name!r} need an extra: pip install "nfdrl[video]"') from None
        raise
    return env


def play(
    agent: Player, solo: Solo, seed: int, max_steps: int, fit: Callable[[Array], Pixels]
) -> tuple[list[Moment], End]:
    """The moments of an episode, their pictures as `fit` makes them, and how it ended."""
    start = getattr(solo.env.action_space, "start", 0)
    observation, info = solo.reset(seed)
    moments: list[Moment] = []
    for _ in range(max_steps):
        picture, law = fit(solo.render()), agent.returns(observation)
        action = int(agent.predict(observation)[0])
        lives = info.get("lives", 0)
        observation, reward, terminated, truncated, info = solo.step(action)
        life_lost = info.get("lives", 0) < lives
        value = to_numpy(agent.risk(law))
        moments.append(Moment(picture, law, value, action - int(start), reward, life_lost))
        if terminated or truncated:
            return moments, "terminated" if terminated else "truncated"
    return moments, "cut off"


def learned_returns(moments: Sequence[Moment], env: Env, discount: float) -> NDArray[np.float64]:
    """The return that followed each moment as learning sees it: Atari's protocols clip rewards and end at lives."""
    rewards, lives = (np.array([getattr(moment, name) for moment in moments]) for name in ("reward", "life_lost"))
    return discounted(*as_learned(env, rewards, lives), discount)


def as_learned(
    env: Env, rewards: NDArray[np.float64], life_lost: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rewards, and the steps at which returns end, as learning counts them."""
    protocol = env.spec.kwargs.get("protocol") if env.spec is not None else None
    ends = life_lost & getattr(protocol, "life_loss", False)
    return np.sign(rewards) if getattr(protocol, "clip", False) else rewards, ends


def discounted(rewards: NDArray[np.float64], ends: NDArray[np.bool_], discount: float) -> NDArray[np.float64]:
    """Σ γᵏ r from each step up to the next end.

    >>> discounted(np.array([1.0, 0.0, 4.0]), np.array([False, False, True]), 0.5)
    array([2., 2., 4.])
    """
    following = np.zeros(len(rewards) + 1)
    for t in reversed(range(len(rewards))):
        following[t] = rewards[t] + (0.0 if ends[t] else discount * following[t + 1])
    return following[:-1]


def action_names(env: Env) -> tuple[str, ...]:
    """What the actions do, where that is known; otherwise nothing."""
    meanings = getattr(env.unwrapped, "get_action_meanings", None)
    if meanings is not None:
        return tuple(str(name).lower() for name in meanings())
    return ACTIONS.get(env.spec.name, ()) if env.spec is not None else ()
