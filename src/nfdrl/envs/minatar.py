"""MinAtar (Young and Tian 2019): five small games for a CPU, as Gymnasium environments.

Unlike the Gymnasium class of the package itself, this one forgets the last action on a seeded reset (otherwise sticky
actions make the first step depend on what was played before) and draws without further packages.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
MEANINGS = {"n": "NOOP", "l": "LEFT", "u": "UP", "r": "RIGHT", "d": "DOWN", "f": "FIRE"}
PIXEL = 16  # screen pixels per cell


class MinAtarGame(gymnasium.Env[Any, Any]):
    """One of the five games: 10 × 10 cells with one channel per kind of object."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        minimal_actions: bool = True,
        sticky_action_prob: float = 0.1,  # Young and Tian 2019, Section 3
        difficulty_ramping: bool = True,  # Young and Tian 2019, Section 2
        render_mode: str | None = None,
    ) -> None:
        from minatar import Environment

        self.render_mode = render_mode
        self.game = Environment(game, sticky_action_prob=sticky_action_prob, difficulty_ramping=difficulty_ramping)
        self._actions = self.game.minimal_action_set() if minimal_actions else list(range(self.game.num_actions()))
        self.action_space = gymnasium.spaces.Discrete(len(self._actions))
        self.observation_space = gymnasium.spaces.Box(0, 1, tuple(self.game.state_shape()), np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.game.seed(seed)
            self.game.last_action = 0
        self.game.reset()
        return self.game.state(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward, terminated = self.game.act(self._actions[action])
        return self.game.state(), float(reward), bool(terminated), False, {}

    def get_action_meanings(self) -> list[str]:
        """What each action does, in Atari's words."""
        return [MEANINGS[self.game.env.action_map[action]] for action in self._actions]

    def render(self) -> Any:
        """The cells, in one colour per channel; shape (160, 160, 3)."""
        from matplotlib import colormaps

        state = self.game.state()
        channels = state.shape[-1]
        shown = (state * np.arange(1, channels + 1)).max(-1)
        palette = (255 * colormaps["cubehelix"](np.linspace(0, 1, channels + 2))[:, :3]).astype(np.uint8)
        return palette[shown].repeat(PIXEL, 0).repeat(PIXEL, 1)


def register_minatar() -> None:
    """Make the games known to Gymnasium: v0 has all six actions, v1 those that do something."""
    for game in GAMES:
        title = game.title().replace("_", "")
        for version, minimal in (("v0", False), ("v1", True)):
            name = f"MinAtar/{title}-{version}"
            if name not in gymnasium.registry:
                settings = {"game": game, "minimal_actions": minimal}
                gymnasium.register(name, "nfdrl.envs.minatar:MinAtarGame", kwargs=settings)
