"""A million Atari transitions, allocated and filled for real: memory, and how fast they are sampled.

Each form is filled through the same calls as in training, with episodes that end, and sampled in batches. Frames are
random, so that nothing is shared by chance; the compressed form gets real ones, of Pong and of Qbert. A replay of whole
stacks is listed with the bytes of its rows but not filled: it would not fit into most machines.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nfdrl.bench.report import Measured, Row
from nfdrl.envs.atari import AtariProtocol, AtariStream
from nfdrl.envs.stepping import Step
from nfdrl.frames import FrameStorage
from nfdrl.replay import ArrayStorage, Replay

Array = NDArray[Any]
SPACE = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
CAPACITY, SMOKE_CAPACITY = 1_000_000, 2_000
ENVS, BATCH, EPISODE = 4, 32, 1_000
RANDOM_FRAMES, GAME_FRAMES = 509, 4_001  # in a cycle; primes, so that episodes begin anywhere in it
GAMES = ("pong", "qbert")  # of six games that were tried, the ones that compress best and worst
ROUNDS, BATCHES = 9, 200
SMOKE_ROUNDS, SMOKE_BATCHES = 2, 5


def main(out: Path, smoke: bool, seed: int) -> Measured:
    """Run the benchmark."""
    capacity = SMOKE_CAPACITY if smoke else CAPACITY
    rounds, batches = (SMOKE_ROUNDS, SMOKE_BATCHES) if smoke else (ROUNDS, BATCHES)
    naive = _bytes(Replay(100, SPACE, rng=np.random.default_rng(seed), storage=ArrayStorage(100, SPACE))) / 100
    random = np.random.default_rng(seed).integers(1, 256, (RANDOM_FRAMES, *SPACE.shape[1:]), np.uint8)
    forms: list[tuple[str, Callable[[], FrameStorage], Array]] = [
        ("single frames", lambda: FrameStorage(capacity, ENVS, SPACE), random),
        ("single frames on disk", lambda: FrameStorage(capacity, ENVS, SPACE, out / "replay"), random),
    ]
    if find_spec("ale_py"):
        packed = lambda: FrameStorage(capacity, ENVS, SPACE, compressed=True)  # noqa: E731
        forms += [(f"{game}, compressed", packed, game_frames(game, seed, smoke)) for game in GAMES]
    note = f"{naive:,.0f} bytes per transition; not filled"
    rows = [Row("every stack", capacity, BATCH, None, round(naive * capacity), 1.0, note)]
    summary: dict[str, Any] = {"bytes_per_transition": {"every stack": naive}}
    for what, make, frames in forms:
        measured = measure(capacity, make, frames, seed, rounds, batches)
        each, rate = measured["bytes"] / capacity, BATCH / measured["seconds"]
        note = f"{each:,.0f} bytes per transition; {rate:,.0f} sampled/s; RSS {measured['rss'] / 1e9:.2f} GB"
        if what.endswith("disk"):
            note += f", {measured['anonymous'] / 1e9:.2f} without files"
        rows.append(Row(what, capacity, BATCH, measured["seconds"], round(each * capacity), naive / each, note))
        summary["bytes_per_transition"][what] = each
        summary[what] = measured | {"transitions_per_second": rate}
    (out / "replay").rmdir()
    return Measured("Replay of Atari transitions: time of a batch", rows, summary)


def game_frames(game: str, seed: int, smoke: bool) -> Array:
    """Frames of a game played at random."""
    stream = AtariStream(game, AtariProtocol(), ENVS)
    stream.reset(seed=seed)
    rng = np.random.default_rng(seed)
    count = ENVS * 10 if smoke else GAME_FRAMES
    seen: list[Array] = []
    while len(seen) < count:
        seen += list(stream.step(rng.integers(int(stream.action_space.n), size=ENVS)).observation[:, -1])
    stream.close()
    return np.stack(seen[:count])


def measure(
    capacity: int, make: Callable[[], FrameStorage], frames: Array, seed: int, rounds: int, batches: int
) -> dict[str, float]:
    """Fill a replay, then sample it."""
    replay = Replay(capacity, SPACE, num_envs=ENVS, rng=np.random.default_rng(seed), storage=make())
    started = time.perf_counter()
    fill(replay, frames)
    filling = time.perf_counter() - started
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(batches):
            replay.sample(BATCH)
        seconds.append((time.perf_counter() - started) / batches)
    found = {"seconds": median(seconds), "bytes": float(_bytes(replay)), "seconds_to_fill": filling} | resident()
    del replay
    gc.collect()
    return found


def fill(replay: Replay, frames: Array) -> None:
    """Transitions until every row is in use; stacks begin with blank frames, as ALE's do."""
    stacks = np.zeros((ENVS, *SPACE.shape), np.uint8)
    nothing, action, reward = np.zeros(ENVS, np.bool_), np.zeros(ENVS, np.int64), np.ones(ENVS)
    stacks[:, -1] = frames[:ENVS]
    replay.start(stacks)
    for moment in range(1, replay.length + 1):
        stacks[:, :-1] = stacks[:, 1:].copy()
        stacks[:, -1] = frames[(moment * ENVS + np.arange(ENVS)) % len(frames)]
        if moment % EPISODE:
            replay.add(action, Step(reward, nothing, nothing, stacks, stacks, nothing))
        else:
            fresh = np.zeros_like(stacks)
            fresh[:, -1] = frames[:ENVS]
            replay.add(action, Step(reward, ~nothing, nothing, stacks, fresh, ~nothing))
            stacks = fresh


def resident() -> dict[str, float]:
    """Memory of this process in bytes, and the part not backed by files; zeros where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return {"rss": 0.0, "anonymous": 0.0}
    sizes = {line.split(":")[0]: 1024.0 * int(line.split()[1]) for line in lines if line.endswith("kB")}
    return {"rss": sizes["VmRSS"], "anonymous": sizes["RssAnon"]}


def _bytes(replay: Replay) -> int:
    """Everything a replay allocated."""
    storage: Any = replay.storage
    columns = (replay.action, replay.reward, replay.kept, replay.ended, replay.explored, replay.live)
    observations = storage.array.nbytes if isinstance(storage, ArrayStorage) else storage.nbytes
    return int(observations) + sum(column.nbytes for column in columns)
