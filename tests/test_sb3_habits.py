"""What a user of Stable-Baselines3 does in the first week, with the released package beside ours where it can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from nfdrl.agent import Agent
from nfdrl.errors import NfdrlError
from nfdrl.networks import TorsoSizes
from nfdrl.training.config import TrainConfig

SMALL = TrainConfig(
    learning_starts=40, batch_size=8, report_every=50, buffer_size=300, target_every=7, torso=TorsoSizes(mlp=(8, 8))
)


def new(env: Any = "CartPole-v1", method: str = "nfdrl-s", config: TrainConfig = SMALL, **settings: Any) -> Agent:
    return Agent(method, env, seed=3, config=config, device="cpu", **settings)


def everything(agent: Agent) -> dict[str, Tensor]:
    """Weights, optimiser, generators, and the replay."""
    replay = agent.trainer.replay
    arrays = (replay.action, replay.reward, replay.kept, replay.ended, replay.live, replay.position)
    draws = np.array(agent.trainer.rng.integers(2**62))
    return agent.trainer.tensors() | {str(k): torch.from_numpy(a) for k, a in enumerate([*arrays, draws])}


def assert_same(first: Agent, second: Agent) -> None:
    ours, theirs = everything(first), everything(second)
    ours.pop("trainer.loss", None)  # the mean since the last report, and every call ends with one
    theirs.pop("trainer.loss", None)
    assert first.step == second.step
    assert ours.keys() == theirs.keys()
    assert [name for name, value in ours.items() if not torch.equal(value, theirs[name])] == []


# Several calls of `learn`.

ENVS: dict[str, tuple[Callable[[], Any], TrainConfig]] = {
    "an id": (lambda: "CartPole-v1", SMALL),
    "three environments": (lambda: "CartPole-v1", replace(SMALL, num_envs=3)),
    "an environment": (lambda: gymnasium.make("FrozenLake-v1"), SMALL),
    "statistics": (lambda: gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1")), SMALL),
    "next step": (lambda: gymnasium.make_vec("CartPole-v1", 3), SMALL),
    "same step": (
        lambda: SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3, autoreset_mode=AutoresetMode.SAME_STEP),
        SMALL,
    ),
}


@pytest.mark.parametrize("name", ENVS)
def test_calls_within_a_plan_are_one_call_bit_for_bit(name: str) -> None:
    make, config = ENVS[name]
    once = new(make(), config=config).learn(200, progress=False)
    several = new(make(), config=config).learn(30, total_steps=200, progress=False)
    for steps in (65, 55, 50):
        several.learn(steps, progress=False)
    assert_same(once, several)


def test_a_plan_survives_saving(tmp_path: Path) -> None:
    agent = new().learn(100, total_steps=200, progress=False)
    agent.save(tmp_path, replay=True)
    assert_same(agent.learn(100, progress=False), Agent.load(tmp_path, device="cpu").learn(100, progress=False))


def test_acting_sampling_and_evaluating_between_two_calls_change_nothing() -> None:
    quiet = new(method="iqn").learn(200, progress=False)
    watched = new(method="iqn").learn(120, total_steps=200, progress=False)
    watched.predict(np.zeros((50, 4)), deterministic=False)
    watched.returns(np.zeros((5, 4))).sample(10)
    watched.evaluate(2)
    assert_same(quiet, watched.learn(80, progress=False))


def test_a_plan_that_is_exceeded_says_so_and_is_stretched() -> None:
    agent = new().learn(100, progress=False)
    assert agent.learner.learning_rate < SMALL.learning_rate * 0.03
    with pytest.warns(UserWarning, match=r"planned for 100 steps .* to 150: .* learning rate 0, .* pass total_steps"):
        agent.learn(50, progress=False)
    assert agent.trainer.plan == 150
    steady = replace(SMALL, learning_rate_decay="constant", epsilon_start=0.04)
    new(config=steady).learn(60, progress=False).learn(60, progress=False)  # nothing to warn of
    with pytest.raises(NfdrlError, match="total_steps must be at least 250, the steps so far and these, got 200"):
        agent.learn(100, total_steps=200, progress=False)


def test_an_environment_that_was_used_in_between_is_reset() -> None:
    env = gymnasium.make("CartPole-v1")
    agent = new(env).learn(100, total_steps=200, progress=False)
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        observation = env.step(int(agent.predict(observation)[0]))[0]
    agent.learn(1, progress=False)
    replay = agent.trainer.replay
    batch = replay.transitions_at(np.flatnonzero(replay.live)[-1:])
    (place, speed, *_), (reached, *_) = batch.observation[0].tolist(), batch.next_observation[0].tolist()
    # One step of CartPole moves the cart by 0.02 times its speed: the transition begins where the environment was.
    assert reached == pytest.approx(place + 0.02 * speed)


@pytest.mark.parametrize("steps", [1e2, np.int64(100), np.float64(100)])
def test_steps_may_be_any_whole_number(steps: Any) -> None:
    assert new().learn(steps, progress=False).step == 100
    with pytest.raises(NfdrlError, match=r"steps must be a whole number, got 0\.5"):
        new().learn(0.5, progress=False)  # type: ignore[arg-type]
