"""The ring against a list of episodes searched step by step."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from nfdrl.envs.stepping import Step
from nfdrl.errors import NfdrlError
from nfdrl.replay import Replay

SPACE = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
DISCOUNT = 0.9


@dataclass(frozen=True)
class Naive:
    """One recorded step: the observation it left, what happened, the observation it reached."""

    left: float
    action: int
    reward: float
    terminated: bool
    truncated: bool
    reached: float
    explored: bool


def naive_return(steps: list[Naive], n: int) -> tuple[float, float, float]:
    """Reward, discount and last observation of up to n steps, by definition; the first action may be exploratory."""
    reward, discount = 0.0, 1.0
    for k, following in enumerate(steps[:n]):
        if k and following.explored:
            break
        step = following
        reward += discount * step.reward
        discount *= 0.0 if step.terminated else DISCOUNT
        if step.terminated or step.truncated:
            break
    return reward, discount, step.reached


def play(replay: Replay, envs: int, endings: list[list[int]], skip_mode: bool) -> list[list[Naive]]:
    """Feed steps with the given endings (0 continues, 1 terminates, 2 truncates); returns each environment's record."""
    ids = iter(range(1, 10**6))
    observation = np.array([[next(ids)] for _ in range(envs)], np.float32)
    replay.start(observation)
    records: list[list[Naive]] = [[] for _ in range(envs)]
    waiting = np.zeros(envs, bool)
    for row in endings:
        ends = np.array(row)
        live = ~waiting
        action, reward = np.array([next(ids) % 7 for _ in row]), np.array([float(next(ids) % 11) for _ in row])
        terminated, truncated = (ends == 1) & live, (ends == 2) & live
        reached = np.array([[next(ids)] for _ in row], np.float32)
        explored = np.array([next(ids) % 5 == 0 for _ in row])
        for e in np.flatnonzero(live):
            flags = bool(terminated[e]), bool(truncated[e])
            what = (observation[e, 0], int(action[e]), reward[e], *flags, float(reached[e, 0]), bool(explored[e]))
            records[e].append(Naive(*what))
        ended = terminated | truncated
        following = reached.copy()
        if skip_mode:  # the reset comes one step later and takes no action
            fresh, waiting = waiting, ended
            step = Step(reward, terminated, truncated, reached, following, fresh, live)
        else:
            for e in np.flatnonzero(ended):
                following[e] = next(ids)
            step = Step(reward, terminated, truncated, reached, following, ended)
        replay.add(action, step, explored)
        observation = following
    return records


def make(capacity: int, envs: int, n_step: int) -> Replay:
    return Replay(capacity, SPACE, num_envs=envs, discount=DISCOUNT, n_step=n_step, rng=np.random.default_rng(0))


@given(
    envs=st.integers(1, 3),
    n_step=st.integers(1, 4),
    length=st.integers(6, 40),
    skip_mode=st.booleans(),
    data=st.data(),
)
def test_every_stored_transition_is_the_one_that_was_played(
    envs: int, n_step: int, length: int, skip_mode: bool, data: st.DataObject
) -> None:
    endings = data.draw(
        st.lists(st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=envs, max_size=envs), min_size=1, max_size=60)
    )
    replay = make(length * envs, envs, n_step)
    records = play(replay, envs, endings, skip_mode)
    played = {step.left: (e, t) for e, record in enumerate(records) for t, step in enumerate(record)}
    rows = np.flatnonzero(replay.live)
    batch = replay.transitions_at(rows)
    stored: list[list[int]] = [[] for _ in range(envs)]
    for k in range(len(rows)):
        e, t = played[float(batch.observation[k, 0])]
        reward, discount, reached = naive_return(records[e][t:], n_step)
        assert int(batch.action[k]) == records[e][t].action
        assert_close(float(batch.reward[k]), reward, rtol=1e-5, atol=1e-5)
        assert_close(float(batch.discount[k]), discount, rtol=1e-5, atol=1e-5)
        assert float(batch.next_observation[k, 0]) == reached
        stored[e].append(t)
    for e, record in enumerate(records):
        # the newest are kept, without gaps; final observations take at most every other row
        assert sorted(stored[e]) == list(range(len(record) - len(stored[e]), len(record)))
        assert len(stored[e]) >= min(len(record), (length - 2) // 2)


def test_every_stored_transition_is_equally_likely() -> None:
    replay = make(40, 2, 1)
    play(replay, 2, [[0, 0], [1, 0], [0, 2], [0, 0], [0, 1]], skip_mode=False)
    seen = replay.sample(40_000).observation[:, 0]
    counts = torch.unique(seen, return_counts=True)[1]
    assert len(counts) == len(replay) == 10
    # a count is 4000 ± 60; five standard deviations
    assert bool(((counts - 4000).abs() < 300).all())


def test_n_step_returns_match_hand_worked_ones() -> None:
    """Rewards 1, 2, 3, termination at the third step, γ = 0.9, n = 2.

    From the first: 1 + 0.9·2 = 2.8, bootstrapped with 0.81. From the second: 2 + 0.9·3 = 4.7, nothing after it.
    """
    replay = make(10, 1, 2)
    replay.start(np.array([[0.0]], np.float32))
    for k, reward in enumerate((1.0, 2.0, 3.0)):
        end, reached = np.array([k == 2]), np.array([[k + 1.0]], np.float32)
        replay.add(np.array([0]), Step(np.array([reward]), end, np.array([False]), reached, reached, end))
    batch = replay.transitions_at(np.array([0, 1, 2]))
    assert_close(batch.reward, torch.tensor([2.8, 4.7, 3.0]))
    assert_close(batch.discount, torch.tensor([0.81, 0.0, 0.0]))
    assert_close(batch.next_observation[:, 0], torch.tensor([2.0, 3.0, 3.0]))


def test_the_same_generator_gives_the_same_batches() -> None:
    replays = [make(30, 1, 1) for _ in range(2)]
    for replay in replays:
        play(replay, 1, [[0], [1], [0], [0]], skip_mode=False)
    first, second = (replay.sample(16) for replay in replays)
    assert_close(first.observation, second.observation)


def test_sampling_an_empty_replay_is_refused() -> None:
    with pytest.raises(NfdrlError, match="empty"):
        make(10, 1, 1).sample(1)


def test_a_replay_too_small_for_its_returns_is_refused() -> None:
    with pytest.raises(NfdrlError, match="too small"):
        make(8, 4, 3)
