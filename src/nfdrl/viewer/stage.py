"""An agent on stage: one environment, one step at a time, for recordings and for the live page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from threading import Lock
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from nfdrl.agent import Agent
from nfdrl.envs.finite import FiniteMDP
from nfdrl.envs.solo import Solo
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.episode import action_names, as_learned, rendering_env
from nfdrl.risk import Risk
from nfdrl.viewer.maps import finite_mdp_of, map_of
from nfdrl.viewer.schema import AgentCard, End, RunCard

Env = gymnasium.Env[Any, Any]
Array = NDArray[Any]
WIDTH = 320  # of a picture, in pixels
QUALITY = 60  # of WebP, out of 100
FPS = 30.0
_FIRST_PICTURE = Lock()  # it imports what environments draw with, and pygame's lazy parts break if two threads do so


@dataclass(frozen=True)
class Moment:
    """One step: what the agent saw and did, and what came of it, also as learning counts it."""

    observation: Array
    state: int | None
    picture: str | None
    action: int
    reward: float
    learned_reward: float
    ends: bool
    end: End


class Stage:
    """Plays episodes of an agent; the state is shown on a map if the environment has one, else by its picture."""

    def __init__(self, agent: Agent, *, pictures: bool = True, width: int = WIDTH) -> None:
        if not agent.source.known:
            raise NfdrlError("the saved agent has no environment: name one with --env")
        self.agent, self.width = agent, width
        plain = agent.source.fresh()
        self.mdp: FiniteMDP | None = finite_mdp_of(plain)
        self.map = None if self.mdp is None else map_of(plain, self.mdp)
        self.drawn = pictures and self.map is None and "rgb_array" in (plain.metadata.get("render_modes") or ())
        self.env: Env = plain
        if self.drawn:
            plain.close()
            with _FIRST_PICTURE:
                self.env = rendering_env(agent.source, agent.config.limits())
        self._solo = Solo(self.env, agent.config.limits())
        self.first_action = int(agent.action_space.start)
        self._observation: Array = np.zeros(0)
        self._lives, self._over = 0, True

    def card(self, run: RunCard, dormant: float | None) -> AgentCard:
        """What the page says about the agent."""
        risk, fps = self.agent.risk, float(self.env.metadata.get("render_fps") or FPS)
        word = str(risk) if isinstance(risk, Risk) else None
        discount, names = self.agent.config.discount, self.action_names()
        return AgentCard(run, self.agent.step, word, discount, names, self.map, fps, dormant)

    def action_names(self) -> list[str]:
        """A name for every action."""
        known = self.mdp.action_names if self.mdp is not None else None
        count = int(self.agent.action_space.n)
        return list(known or action_names(self.env) or (f"action {k}" for k in range(count)))

    def reset(self, seed: int) -> Array:
        """Begin an episode."""
        observation, info = self._solo.reset(seed)
        self._observation, self._lives, self._over = np.asarray(observation), info.get("lives", 0), False
        return self._observation

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self._over

    def step(self, risk: Risk | None = None, *, draw: bool = True) -> Moment:
        """Take the agent's action, or the one that `risk` prefers."""
        seen = self._observation
        picture = self._picture() if self.drawn and draw else None
        action = self._choose(seen, risk)
        observation, reward, terminated, truncated, info = self._solo.step(action + self.first_action)
        lost, self._lives = info.get("lives", 0) < self._lives, info.get("lives", 0)
        rewards, ends = as_learned(self.env, np.array([reward]), np.array([lost]))
        self._observation, self._over = np.asarray(observation), terminated or truncated
        end: End = "terminated" if terminated else "truncated" if truncated else "running"
        state = int(seen) if self.mdp is not None else None
        return Moment(seen, state, picture, action, reward, float(rewards[0]), bool(ends[0] or terminated), end)

    def _choose(self, observation: Array, risk: Risk | None) -> int:
        if risk is None:
            return int(self.agent.predict(observation)[0]) - self.first_action
        with torch.no_grad():
            return int(risk(self.agent.returns(observation)).argmax())

    def _picture(self) -> str:
        return encoded(self._solo.render(), self.width)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def encoded(pixels: Array, width: int = WIDTH) -> str:
    """A picture as a data URI: WebP, at most `width` pixels wide."""
    image = Image.fromarray(np.asarray(pixels, np.uint8)).convert("RGB")
    if image.width > width:
        image = image.resize((width, max(1, round(image.height * width / image.width))), Image.Resampling.BILINEAR)
    file = io.BytesIO()
    image.save(file, "WEBP", quality=QUALITY, method=2)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
