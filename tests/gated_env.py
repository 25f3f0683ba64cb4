"""CartPole that can be stopped from outside, and one that breaks: for sweeps that are disturbed at a known step."""

import os
import time
from pathlib import Path

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Gated(CartPoleEnv):
    """From its `at`-th step on, it waits while the file in NFDRL_GATE exists; or it raises an error."""

    def __init__(self, at=700, fails=False, render_mode=None):
        super().__init__(render_mode=render_mode)
        self.left, self.fails = at, fails

    def step(self, action):
        self.left -= 1
        if self.left <= 0 and self.fails:
            raise RuntimeError("this environment breaks")
        gate = Path(os.environ.get("NFDRL_GATE", "/nonexistent"))
        while self.left <= 0 and gate.exists():
            time.sleep(0.02)
        return super().step(action)


gymnasium.register("Gated-v0", Gated, max_episode_steps=500)
