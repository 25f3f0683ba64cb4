"""A replay is restored from its segments as it was, whatever happened between two checkpoints."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from nfdrl.envs.stepping import Step
from nfdrl.errors import NfdrlError
from nfdrl.frames import FrameStorage
from nfdrl.replay import Replay
from nfdrl.runs import journal
from nfdrl.runs.journal import Journal, Snapshot, remove_unused, restore

SPACE = Box(0, 255, (2, 3), np.uint8)
STACKS = Box(0, 255, (3, 4, 4), np.uint8)


def empty(length: int, envs: int) -> Replay:
    return Replay(length * envs, SPACE, num_envs=envs, n_step=2, rng=np.random.default_rng(0))


def empty_of_frames(length: int, envs: int) -> Replay:
    storage = FrameStorage(length * envs, envs, STACKS)
    return Replay(length * envs, STACKS, num_envs=envs, n_step=2, rng=np.random.default_rng(0), storage=storage)


def play_frames(replay: Replay, stacks: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Steps of stacks that advance by one frame and begin with blank ones; also the stacks to continue from."""
    envs = len(stacks)
    for _ in range(steps):
        ended = rng.random(envs) < 0.1
        reached = np.concatenate([stacks[:, 1:], rng.integers(1, 255, (envs, 1, 4, 4), np.uint8)], 1)
        stacks = np.where(ended[:, None, None, None], first_stacks(envs, rng), reached)
        nothing = np.zeros(envs, np.bool_)
        replay.add(rng.integers(0, 4, envs), Step(rng.normal(size=envs), ended, nothing, reached, stacks, ended))
    return stacks


def first_stacks(envs: int, rng: np.random.Generator) -> np.ndarray:
    stacks = np.zeros((envs, 3, 4, 4), np.uint8)
    stacks[:, -1] = rng.integers(1, 255, (envs, 4, 4), np.uint8)
    return stacks


def play(replay: Replay, steps: int, rng: np.random.Generator) -> None:
    """Steps that end episodes, and in some environments only reset."""
    envs = replay.first_row.size
    for _ in range(steps):
        terminated, truncated, reset = rng.random((3, envs)) < 0.15
        reached, following = rng.integers(0, 255, (2, envs, 2, 3), np.uint8)
        fresh = terminated | truncated | reset
        live = None if rng.random() < 0.5 else ~reset
        observation = np.where(fresh[:, None, None], following, reached)
        step = Step(rng.normal(size=envs), terminated, truncated, reached, observation, fresh, live)
        replay.add(rng.integers(0, 4, envs), step)


def begin(replay: Replay, rng: np.random.Generator) -> None:
    replay.start(rng.integers(0, 255, (replay.first_row.size, 2, 3), np.uint8))


def assert_same(first: Replay, second: Replay) -> None:
    """Both begin new episodes; then all that can be sampled is equal."""
    for replay in (first, second):
        begin(replay, np.random.default_rng(7))
    assert first.filled == second.filled
    assert (first.cursor == second.cursor).all()
    assert (first.live == second.live).all()
    rows = np.flatnonzero(first.live)
    for ours, theirs in zip(batch(first, rows), batch(second, rows), strict=True):
        assert torch.equal(ours, theirs)


def batch(replay: Replay, rows: np.ndarray) -> list[torch.Tensor]:
    found = replay.transitions_at(rows)
    return [found.observation, found.action, found.reward, found.discount, found.next_observation]


@settings(max_examples=60)
@given(
    length=st.integers(5, 40),
    envs=st.integers(1, 3),
    stretches=st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=8),
    seed=st.integers(0, 2**20),
)
def test_a_replay_is_restored_from_its_segments(
    length: int, envs: int, stretches: list[tuple[int, bool]], seed: int
) -> None:
    rng, replay = np.random.default_rng(seed), empty(length, envs)
    begin(replay, rng)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "MAX_SEGMENTS", 4)
        patch.setattr(journal, "CHUNK_BYTES", 200)
        log = Journal(Path(folder))
        for steps, cut in stretches:
            play(replay, steps, rng)
            snapshot = log.append(replay)
            remove_unused(Path(folder), [snapshot])
            assert len(snapshot.segments) <= 5
            assert Snapshot.from_json(asdict(snapshot)) == snapshot
            restored = empty(length, envs)
            restore(restored, Path(folder), snapshot)
            if cut:  # the original and the restored run continue side by side
                assert_same(replay, restored)
                replay, log = restored, Journal(Path(folder), snapshot)
        restored = empty(length, envs)
        restore(restored, Path(folder), log.append(replay))
        assert_same(replay, restored)


@settings(max_examples=60)
@given(
    length=st.integers(7, 30),
    envs=st.integers(1, 3),
    stretches=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    seed=st.integers(0, 2**20),
)
def test_a_replay_of_frames_is_restored_from_its_segments(
    length: int, envs: int, stretches: list[int], seed: int
) -> None:
    rng, replay = np.random.default_rng(seed), empty_of_frames(length, envs)
    with TemporaryDirectory() as folder:
        log = Journal(Path(folder))
        for steps in stretches:
            stacks = first_stacks(envs, rng)
            replay.start(stacks)
            play_frames(replay, stacks, steps, rng)
            restored = empty_of_frames(length, envs)
            restore(restored, Path(folder), log.append(replay))
            for either in (replay, restored):  # both begin new episodes and continue side by side
                start_rng = np.random.default_rng(seed)
                stacks = first_stacks(envs, start_rng)
                either.start(stacks)
                play_frames(either, stacks, 3, start_rng)
            assert (replay.live == restored.live).all()
            rows = np.flatnonzero(replay.live)
            for ours, theirs in zip(batch(replay, rows), batch(restored, rows), strict=True):
                assert torch.equal(ours, theirs)


def test_only_new_rows_are_written(tmp_path: Path) -> None:
    rng, replay, log = np.random.default_rng(0), empty(1_000, 1), Journal(tmp_path)
    begin(replay, rng)
    sizes = []
    for _ in range(4):
        play(replay, 100, rng)
        segment = log.append(replay).segments[-1]
        sizes.append(segment.rows)
    # 100 steps, and the first observations of the episodes that began: the row at the cursor is written twice
    assert all(100 <= size <= 160 for size in sizes)
    assert sum(sizes) == replay.position[0] + len(sizes)


def test_a_replay_with_gaps_or_of_another_shape_is_refused(tmp_path: Path) -> None:
    rng, replay, log = np.random.default_rng(0), empty(50, 2), Journal(tmp_path)
    begin(replay, rng)
    for _ in range(2):
        play(replay, 10, rng)
        snapshot = log.append(replay)
    with pytest.raises(NfdrlError, match="rings"):
        restore(empty(50, 3), tmp_path, snapshot)
    holed = Snapshot(snapshot.length, snapshot.position, snapshot.transitions, snapshot.segments[1:])
    with pytest.raises(NfdrlError, match="gaps"):
        restore(empty(50, 2), tmp_path, holed)
    other = Replay(100, Box(0, 1, (2, 3)), num_envs=2, rng=rng)
    with pytest.raises(NfdrlError, match="another kind"):
        restore(other, tmp_path, snapshot)


def transitions_of(replay: Replay) -> dict[tuple[int, int], list[torch.Tensor]]:
    """All that can be sampled, by environment and the number of its row."""
    found = {}
    for row in np.flatnonzero(replay.live):
        env, slot = divmod(int(row), replay.length)
        time = int(replay.position[env]) - (int(replay.position[env]) - slot) % replay.length
        found[env, time] = [column[0] for column in batch(replay, np.array([row]))]
    return found


@settings(max_examples=60)
@given(
    frames=st.booleans(),
    length=st.integers(7, 30),
    envs=st.integers(1, 3),
    stretches=st.lists(st.integers(1, 25), min_size=2, max_size=5),
    damaged=st.lists(st.booleans(), min_size=5, max_size=5),
    seed=st.integers(0, 2**20),
)
def test_what_is_left_of_a_damaged_replay_is_as_it_was(
    frames: bool, length: int, envs: int, stretches: list[int], damaged: list[bool], seed: int
) -> None:
    make = empty_of_frames if frames else empty
    rng, replay = np.random.default_rng(seed), make(length, envs)
    replay.n_step = 1  # a longer return ends where rows are missing
    with TemporaryDirectory() as folder:
        log = Journal(Path(folder))
        for steps in stretches:
            if frames:
                stacks = first_stacks(envs, rng)
                replay.start(stacks)
                play_frames(replay, stacks, steps, rng)
            else:
                begin(replay, rng)
                play(replay, steps, rng)
            snapshot = log.append(replay)
        whole = make(length, envs)
        whole.n_step = 1
        assert restore(whole, Path(folder), snapshot) == 0
        assert snapshot.live == len(whole)
        bad = [segment for segment, hit in zip(snapshot.segments, damaged, strict=False) if hit]
        for k, segment in enumerate(bad):
            path = Path(folder) / segment.file.name
            path.unlink() if k % 2 else path.write_bytes(path.read_bytes()[:-1] + b"!")
        rest = make(length, envs)
        rest.n_step = 1
        lost = restore(rest, Path(folder), snapshot, partly=True)
        assert lost == len(whole) - len(rest)
        expected, found = transitions_of(whole), transitions_of(rest)
        assert found.keys() <= expected.keys()
        for key, columns in found.items():
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(columns, expected[key], strict=True))
        if not bad:
            assert found.keys() == expected.keys()
        # A row is lost only if it, its successor or a frame of either lies in a damaged segment.
        reach = rest.storage.depth
        near = {
            (env, row + offset)
            for segment in bad
            for env in range(envs)
            for row in range(segment.start[env], segment.stop[env])
            for offset in range(-1, reach + 1)
        }
        assert expected.keys() - found.keys() <= near
