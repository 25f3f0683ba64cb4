"""Every autoreset mode gives the same transitions: those that were really played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from nfdrl.agent import Agent
from nfdrl.envs.make import source_of
from nfdrl.envs.stepping import DirectStream, Stream, VectorStream, check_step
from nfdrl.errors import NfdrlError
from nfdrl.replay import Replay
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import EpisodeEnd

ENVS, STEPS, DISCOUNT = 3, 40, 0.9


class Counter(gymnasium.Env[Any, Any]):
    """Shows (number, episode, time) and pays the time; terminates and truncates by turns after `period` steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, number: int, period: int, poison_at: int | None = None) -> None:
        self.number, self.period, self.poison_at = number, period, poison_at
        self.episode, self.time, self.taken = -1, 0, 0

    def _observation(self) -> np.ndarray:
        return np.array([self.number, self.episode, self.time], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        assert self.time < self.period, "stepped after the end of an episode"
        self.time, self.taken = self.time + 1, self.taken + 1
        over, by_termination = self.time == self.period, self.episode % 2 == 0
        reward = np.nan if self.taken == self.poison_at else float(self.time)
        return self._observation(), reward, over and by_termination, over and not by_termination, {}


def counters() -> list[Callable[[], Counter]]:
    return [lambda k=k: Counter(k, 3 + k) for k in range(ENVS)]


def vector(mode: AutoresetMode) -> VectorStream:
    return VectorStream(SyncVectorEnv(counters(), autoreset_mode=mode))


STREAMS: dict[str, Callable[[], Stream]] = {
    "direct": lambda: DirectStream([make() for make in counters()]),
    **{mode.name: (lambda mode=mode: vector(mode)) for mode in AutoresetMode},
}


def fill(stream: Stream) -> tuple[Replay, int]:
    replay = Replay(10_000, stream.observation_space, num_envs=ENVS, discount=DISCOUNT, rng=np.random.default_rng(0))
    replay.start(stream.reset(seed=0))
    added = 0
    for k in range(STEPS):
        action = np.full(ENVS, k % 2)
        added += replay.add(action, stream.step(action))
    return replay, added


@pytest.mark.parametrize("name", STREAMS)
def test_transitions_are_those_that_were_played(name: str) -> None:
    replay, added = fill(STREAMS[name]())
    batch = replay.transitions_at(np.flatnonzero(replay.live))
    assert len(replay) == added == len(batch.reward)
    number, episode, time = batch.observation.unbind(-1)
    reached = batch.next_observation
    # One step in the same episode of the same environment, also at its end: never across a reset.
    assert torch.equal(reached, torch.stack([number, episode, time + 1], -1))
    assert torch.equal(batch.reward, time + 1)
    over = time + 1 == 3 + number
    terminated = over & (episode % 2 == 0)
    # Termination does not bootstrap; truncation does, from its final observation.
    assert torch.equal(batch.discount, torch.where(terminated, 0.0, DISCOUNT))
    assert bool((over & ~terminated).any())
    assert bool(terminated.any())


@pytest.mark.parametrize("name", STREAMS)
def test_no_step_is_lost_or_stored_twice(name: str) -> None:
    stream = STREAMS[name]()
    replay, added = fill(stream)
    envs = stream.envs if isinstance(stream, DirectStream) else stream.env.envs
    assert added == sum(env.unwrapped.taken for env in envs)
    rows = replay.transitions_at(np.flatnonzero(replay.live)).observation
    assert len(torch.unique(rows, dim=0)) == added


@pytest.mark.parametrize("name", STREAMS)
def test_training_counts_the_episodes_that_were_played(name: str) -> None:
    streams: dict[str, Any] = {mode.name: SyncVectorEnv(counters(), autoreset_mode=mode) for mode in AutoresetMode}
    env = streams.get(name, Counter(0, 3))
    agent = Agent("dqn", env, config=TrainConfig(learning_starts=50, batch_size=8))
    ends = [event for event in agent.events(150) if isinstance(event, EpisodeEnd)]
    assert len(ends) > 10
    for end in ends:
        period = 3 + end.env
        assert (end.length, end.episode_return) == (period, period * (period + 1) / 2)
    assert agent.step in (150, 151, 152)


def test_a_reward_that_is_not_finite_is_refused() -> None:
    env = SyncVectorEnv([lambda: Counter(0, 3), lambda: Counter(1, 4, poison_at=6)])
    with pytest.raises(NfdrlError, match=r"environment 1 gave a reward of nan at step \d+"):
        Agent("dqn", env).learn(100, progress=False)


def test_an_observation_that_is_not_finite_is_refused() -> None:
    stream = DirectStream([Counter(0, 3), Counter(1, 3)])
    stream.reset()
    step = stream.step(np.zeros(2, np.int64))
    step.reached[1, 2] = np.nan
    with pytest.raises(NfdrlError, match="environment 1 gave an observation that is not finite"):
        check_step(step)


def test_same_step_without_a_final_observation_is_refused() -> None:
    class Forgetful(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            *rest, info = super().step(actions)
            info.pop("final_obs", None)
            return *rest, info

    stream = VectorStream(Forgetful(counters(), autoreset_mode=AutoresetMode.SAME_STEP))
    stream.reset()
    action = np.zeros(ENVS, np.int64)
    for _ in range(2):
        stream.step(action)
    with pytest.raises(NfdrlError, match="final_obs"):
        stream.step(action)


def test_actions_are_counted_from_the_start_of_their_space() -> None:
    class Shifted(Counter):
        action_space = gymnasium.spaces.Discrete(2, start=5)

        def step(self, action: Any) -> Any:
            assert action in (5, 6)
            return super().step(action)

    agent = Agent("dqn", Shifted(0, 3), config=TrainConfig(learning_starts=10, batch_size=4))
    agent.learn(40, progress=False)
    assert agent.predict(np.zeros(3))[0] in (5, 6)


INNER = gymnasium.spaces.Dict({"b": gymnasium.spaces.Discrete(2)})


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.Text(3), "TransformObservation"),
        (gymnasium.spaces.Tuple([gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))]), "TransformObservation"),
        (gymnasium.spaces.Dict({"a.b": gymnasium.spaces.Discrete(2), "a": INNER}), "different names"),
    ],
)
def test_unsupported_observations_are_refused_with_a_hint(space: gymnasium.Space[Any], message: str) -> None:
    env = Counter(0, 3)
    env.observation_space = space  # type: ignore[assignment]
    with pytest.raises(NfdrlError, match=message):
        source_of(env)
