"""MinAtar's five games."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from nfdrl.agent import Agent
from nfdrl.envs.make import source_of
from nfdrl.envs.minatar import GAMES, MinAtarGame, register_minatar
from nfdrl.torsos import SmallCNN
from nfdrl.training.config import TrainConfig


def played(game: MinAtarGame, seed: int, steps: int = 300) -> list[tuple[bytes, float, bool]]:
    state, _ = game.reset(seed=seed)
    found = [(state.tobytes(), 0.0, False)]
    for k in range(steps):
        state, reward, terminated, _, _ = game.step(k % int(game.action_space.n))
        found.append((state.tobytes(), reward, terminated))
        if terminated:
            game.reset()
    return found


@pytest.mark.parametrize("game", GAMES)
def test_a_seeded_reset_forgets_the_past(game: str) -> None:
    used = MinAtarGame(game)
    played(used, seed=1)
    assert played(used, seed=2) == played(MinAtarGame(game), seed=2)
    assert played(used, seed=2) != played(used, seed=3)


@pytest.mark.parametrize("game", GAMES)
def test_every_game_is_a_gymnasium_environment(game: str) -> None:
    title = game.title().replace("_", "")
    full, minimal = (source_of(f"MinAtar/{title}-{version}") for version in ("v0", "v1"))
    assert int(full.action_space.n) == 6
    assert int(minimal.action_space.n) <= 6
    env = gymnasium.make(f"MinAtar/{title}-v1", render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert env.render().shape == (160, 160, 3)


def test_the_minimal_actions_are_the_games_own() -> None:
    game = MinAtarGame("breakout", sticky_action_prob=0.0)
    game.reset(seed=0)
    left = int(np.argmax(game.game.state()[9, :, 0]))
    game.step(2)  # the third of no-op, left and right
    assert int(np.argmax(game.game.state()[9, :, 0])) == left + 1


def test_an_agent_takes_the_small_network() -> None:
    config = TrainConfig(learning_starts=100, buffer_size=500, batch_size=8)
    agent = Agent("nfdrl-s", "MinAtar/Breakout-v1[sticky_action_prob=0.0]", config=config).learn(150, progress=False)
    assert isinstance(agent.learner.online.torso, SmallCNN)
    assert agent.evaluate(2).returns.min() >= 0


def test_actions_have_names() -> None:
    register_minatar()
    assert gymnasium.make("MinAtar/Breakout-v1").unwrapped.get_action_meanings() == ["NOOP", "LEFT", "RIGHT"]
    every = gymnasium.make("MinAtar/Breakout-v1", minimal_actions=False)
    assert every.unwrapped.get_action_meanings() == ["NOOP", "LEFT", "UP", "RIGHT", "DOWN", "FIRE"]
