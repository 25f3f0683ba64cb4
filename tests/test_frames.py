"""Single frames against a replay of whole stacks: every transition comes back the same, whatever was played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfdrl.agent import Agent
from nfdrl.envs.stepping import Step
from nfdrl.errors import NfdrlError
from nfdrl.frames import FrameStorage
from nfdrl.replay import ArrayStorage, Replay, allocate
from nfdrl.runs.journal import Journal, restore
from nfdrl.training.config import TrainConfig

STACK, SIDE = 3, 5
CONTINUES, TERMINATES, TRUNCATES, LOSES_LIFE, ALL_RESET = range(5)


class Screen:
    """Stacks of frames as some wrapper makes them; there are few kinds of frames, one of them blank."""

    def __init__(self, seed: int, padding: str, last: bool) -> None:
        self.rng, self.padding, self.last = np.random.default_rng(seed), padding, last
        self.stack = np.zeros((STACK, SIDE, SIDE), np.uint8)

    def frame(self) -> np.ndarray:
        return np.full((SIDE, SIDE), self.rng.integers(4), np.uint8)

    def begin(self) -> np.ndarray:
        newest = self.frame()
        older = {"zeros": np.zeros_like(newest), "copies": newest}.get(self.padding)
        self.stack = np.stack([self.frame() if older is None else older for _ in range(STACK - 1)] + [newest])
        return self.shown()

    def advance(self) -> np.ndarray:
        if self.padding == "chaos":
            return self.begin()
        self.stack = np.concatenate([self.stack[1:], self.frame()[None]])
        return self.shown()

    def shown(self) -> np.ndarray:
        return np.moveaxis(self.stack, 0, -1) if self.last else self.stack


def make(
    length: int, envs: int, n_step: int, last: bool, folder: Path | None = None, compressed: bool = False
) -> list[Replay]:
    """A replay of single frames and its oracle, which keeps every stack."""
    shape = (SIDE, SIDE, STACK) if last else (STACK, SIDE, SIDE)
    space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    settings: dict[str, Any] = {"num_envs": envs, "discount": 0.9, "n_step": n_step}
    frames = FrameStorage(length * envs, envs, space, folder, compressed=compressed)
    storages = frames, ArrayStorage(length * envs, space)
    return [
        Replay(length * envs, space, rng=np.random.default_rng(0), storage=storage, **settings) for storage in storages
    ]


def play(replays: list[Replay], screens: list[Screen], events: list[list[int]], skip_mode: bool) -> None:
    """Feed all replays the same steps; each event says what happens to each environment."""
    waiting = np.zeros(len(screens), bool)
    for replay, first in zip(replays, [np.stack([s.begin() for s in screens])] * len(replays), strict=True):
        replay.start(first)
    for k, row in enumerate(events):
        what = np.array(row)
        if (what == ALL_RESET).any():
            first = np.stack([screen.begin() for screen in screens])
            waiting[:] = False
            for replay in replays:
                replay.start(first)
            continue
        live = ~waiting
        terminated, truncated = (what == TERMINATES) & live, (what == TRUNCATES) & live
        ended, lost = terminated | truncated, (what == LOSES_LIFE) & live
        reached = np.stack([s.begin() if w else s.advance() for s, w in zip(screens, waiting, strict=True)])
        following, fresh = reached.copy(), ended
        if skip_mode:
            fresh, waiting = waiting, ended
        else:
            for e in np.flatnonzero(ended):
                following[e] = screens[e].begin()
        reward = np.arange(len(row)) + 10.0 * k
        step = Step(
            reward,
            terminated,
            truncated,
            reached,
            following,
            fresh,
            live if skip_mode else None,
            learned_reward=reward / 2,
            life_lost=lost,
        )
        for replay in replays:
            replay.add(what, step)


EVENTS = st.sampled_from([CONTINUES] * 6 + [TERMINATES, TRUNCATES, LOSES_LIFE])


@given(
    envs=st.integers(1, 3),
    n_step=st.integers(1, 3),
    length=st.integers(7, 24),
    padding=st.sampled_from(["zeros", "copies", "others", "chaos"]),
    last=st.booleans(),
    skip_mode=st.booleans(),
    compressed=st.booleans(),
    seed=st.integers(0, 10_000),
    data=st.data(),
)
def test_every_transition_is_that_of_a_replay_of_whole_stacks(
    envs: int,
    n_step: int,
    length: int,
    padding: str,
    last: bool,
    skip_mode: bool,
    compressed: bool,
    seed: int,
    data: st.DataObject,
) -> None:
    row = st.one_of(*[st.lists(EVENTS, min_size=envs, max_size=envs)] * 9, st.just([ALL_RESET] * envs))
    events = data.draw(st.lists(row, min_size=1, max_size=70))
    frames, oracle = replays = make(length, envs, n_step, last, compressed=compressed)
    play(replays, [Screen(seed + e, padding, last) for e in range(envs)], events, skip_mode)
    rows = np.flatnonzero(frames.live)
    ours, theirs = frames.transitions_at(rows), oracle.transitions_at(rows)
    for name in ("observation", "action", "reward", "discount", "next_observation"):
        assert getattr(ours, name).equal(getattr(theirs, name)), name
    assert not (frames.live & ~oracle.live).any()
    # what is forgotten early is at most the `depth` oldest rows of each ring
    assert (oracle.live & ~frames.live).reshape(envs, length).sum(1).max() <= STACK - 1


def test_a_lost_life_ends_the_return_and_the_learned_reward_is_stored() -> None:
    frames, _ = replays = make(10, 1, 1, False)
    play(replays, [Screen(0, "zeros", False)], [[CONTINUES], [LOSES_LIFE], [CONTINUES]], skip_mode=False)
    batch = frames.transitions_at(np.array([0, 1, 2]))
    assert batch.discount.tolist() == pytest.approx([0.9, 0.0, 0.9])
    assert batch.reward.tolist() == [0.0, 5.0, 10.0]
    assert batch.next_observation[1].equal(batch.observation[2])  # the game continued from where it was


@pytest.mark.parametrize("padding", ["zeros", "copies"])
def test_common_episode_starts_need_no_extra_frames(padding: str) -> None:
    frames, _ = replays = make(30, 2, 1, False)
    play(replays, [Screen(e, padding, False) for e in range(2)], [[CONTINUES, TERMINATES]] * 100, skip_mode=False)
    assert len(frames.storage.aside) == 0  # type: ignore[attr-defined]


def test_space_for_frames_kept_aside_is_reused() -> None:
    frames, _ = replays = make(12, 1, 1, False)
    play(replays, [Screen(0, "chaos", False)], [[CONTINUES]] * 500, skip_mode=False)
    assert len(frames.storage.aside) <= 64  # type: ignore[attr-defined]


def test_frames_on_disk_are_the_same_and_leave_no_file(tmp_path: Path) -> None:
    disk, memory = make(12, 1, 2, False, tmp_path / "replay")[0], make(12, 1, 2, False)[0]
    play([disk, memory], [Screen(3, "zeros", False)], [[CONTINUES]] * 9 + [[TERMINATES], [CONTINUES]], skip_mode=False)
    rows = np.flatnonzero(disk.live)
    assert disk.transitions_at(rows).observation.equal(memory.transitions_at(rows).observation)
    assert list((tmp_path / "replay").iterdir()) == []


def test_rows_survive_a_checkpoint() -> None:
    frames, oracle = replays = make(12, 2, 1, False)
    play(replays, [Screen(e, "zeros", False) for e in range(2)], [[CONTINUES, TERMINATES]] * 20, skip_mode=False)
    rows = np.flatnonzero(frames.live)
    restored = make(12, 2, 1, False)[0].storage
    every = np.arange(24)
    restored.restore(every, frames.storage.read(every))  # type: ignore[attr-defined]
    assert restored.gather(rows).equal(oracle.storage.gather(rows))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("chaotic_steps", [5, 60])
def test_frames_kept_aside_survive_a_checkpoint(tmp_path: Path, last: bool, chaotic_steps: int) -> None:
    frames, oracle = replays = make(30, 2, 1, last)
    play(replays, [Screen(e, "zeros", last) for e in range(2)], [[CONTINUES, TERMINATES]] * 10, skip_mode=False)
    journal = Journal(tmp_path)
    journal.append(frames)
    play(
        replays, [Screen(e, "chaos", last) for e in range(2)], [[CONTINUES, CONTINUES]] * chaotic_steps, skip_mode=False
    )
    assert frames.storage._owned  # type: ignore[attr-defined]
    snapshot = journal.append(frames)
    assert len(snapshot.segments) == (2 if chaotic_steps == 5 else 1)  # in one of each kind, or all of the second
    restored = make(30, 2, 1, last)[0]
    restore(restored, tmp_path, snapshot)
    rows = np.flatnonzero(restored.live)
    assert rows.size > 20
    assert restored.storage.gather(rows).equal(oracle.storage.gather(rows))


def test_an_atari_transition_takes_at_most_7300_bytes() -> None:
    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    replay = Replay(5_000, space, num_envs=4, rng=np.random.default_rng(0), storage=FrameStorage(5_000, 4, space))
    columns = (replay.action, replay.reward, replay.kept, replay.ended, replay.live)
    assert (replay.storage.nbytes + sum(column.nbytes for column in columns)) / 5_000 <= 7_300  # type: ignore[attr-defined]


def test_a_replay_that_cannot_fit_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    huge = (10**9, 84, 84)
    env = gymnasium.wrappers.FrameStackObservation(gymnasium.make("CartPole-v1"), 4)
    with pytest.raises(NfdrlError, match="buffer_size may be at most"):
        Agent("dqn", env, config=TrainConfig(buffer_size=10**12), device="cpu").learn(1, progress=False)
    with pytest.raises(NfdrlError, match="GB on disk"):
        allocate(huge, np.dtype(np.uint8), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(NfdrlError, match="cannot keep the replay"):
        allocate((3,), np.dtype(np.uint8), tmp_path / "file")
