"""A million Atari transitions, allocated and filled for real: memory, and how fast they are sampled.

Frames are random, so nothing compresses or is shared by chance. Each form is filled through the same calls as in
training, with episodes that end, and sampled in batches; the replay that keeps every stack stands beside them with
the bytes of its rows, because as a whole it would not fit most machines.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nfdrl.bench.report import Row, print_table, write_metrics
from nfdrl.envs.stepping import Step
from nfdrl.frames import FrameStorage
from nfdrl.replay import ArrayStorage, Replay

Array = NDArray[Any]
SPACE = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
CAPACITY, SMOKE_CAPACITY = 1_000_000, 2_000
ENVS, BATCH, EPISODE = 4, 32, 1_000
FRAMES = 509  # different ones in a circle; a prime, so that episodes begin anywhere in it
ROUNDS, BATCHES = 9, 200
SMOKE_ROUNDS, SMOKE_BATCHES = 2, 5


def main(out: Path, smoke: bool = False, seed: int = 0) -> None:
    """Run the benchmark and write metrics.json."""
    capacity = SMOKE_CAPACITY if smoke else CAPACITY
    rounds, batches = (SMOKE_ROUNDS, SMOKE_BATCHES) if smoke else (ROUNDS, BATCHES)
    naive = _bytes(Replay(100, SPACE, rng=np.random.default_rng(seed), storage=ArrayStorage(100, SPACE))) / 100
    rows: list[Row] = [
        {
            "what": "every stack",
            "size": capacity,
            "batch": BATCH,
            "seconds": None,
            "bytes": round(naive * capacity),
            "ratio": 1.0,
            "note": f"{naive:,.0f} bytes a transition; not filled",
        }
    ]
    summary: dict[str, Any] = {"bytes_per_transition": {"every stack": naive}}
    for what, folder in (("single frames", None), ("single frames on disk", out / "replay")):
        measured = measure(capacity, seed, rounds, batches, folder)
        each = measured["bytes"] / capacity
        rate = BATCH / measured["seconds"]
        rows.append(
            {
                "what": what,
                "size": capacity,
                "batch": BATCH,
                "seconds": measured["seconds"],
                "bytes": round(measured["bytes"]),
                "ratio": naive / each,
                "note": f"{each:,.0f} bytes a transition; {rate:,.0f} sampled/s; "
                f"RSS {measured['rss'] / 1e9:.2f} GB, {measured['anonymous'] / 1e9:.2f} without files",
            }
        )
        summary["bytes_per_transition"][what] = each
        summary[what] = measured | {"transitions_per_second": rate}
    if (out / "replay").exists():
        (out / "replay").rmdir()
    print_table("Replay of Atari transitions: time of a batch", rows)
    command = "nfdrl bench replay" + (" --smoke" if smoke else "")
    path = write_metrics(out, bench="replay", seed=seed, threads=1, command=command, rows=rows, summary=summary)
    print(f"written: {path}")


def measure(capacity: int, seed: int, rounds: int, batches: int, folder: Path | None) -> dict[str, float]:
    """Fill a replay, then sample it."""
    storage = FrameStorage(capacity, ENVS, SPACE, folder)
    replay = Replay(capacity, SPACE, num_envs=ENVS, rng=np.random.default_rng(seed), storage=storage)
    started = time.perf_counter()
    fill(replay, seed)
    filling = time.perf_counter() - started
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(batches):
            replay.sample(BATCH)
        seconds.append((time.perf_counter() - started) / batches)
    found = {"seconds": median(seconds), "bytes": float(_bytes(replay)), "seconds_to_fill": filling} | resident()
    del replay, storage
    gc.collect()
    return found


def fill(replay: Replay, seed: int) -> None:
    """Transitions until every row is in use; stacks begin with blank frames, as ALE's do."""
    frames = np.random.default_rng(seed).integers(1, 256, (FRAMES, *SPACE.shape[1:]), np.uint8)
    stacks = np.zeros((ENVS, *SPACE.shape), np.uint8)
    nothing, action, reward = np.zeros(ENVS, np.bool_), np.zeros(ENVS, np.int64), np.ones(ENVS)
    stacks[:, -1] = frames[:ENVS]
    replay.start(stacks)
    for time_ in range(1, replay.length + 1):
        stacks[:, :-1] = stacks[:, 1:]
        stacks[:, -1] = frames[(time_ + np.arange(ENVS)) % FRAMES]
        if time_ % EPISODE:
            replay.add(action, Step(reward, nothing, nothing, stacks, stacks, nothing))
        else:
            fresh = np.zeros_like(stacks)
            fresh[:, -1] = frames[:ENVS]
            replay.add(action, Step(reward, ~nothing, nothing, stacks, fresh, ~nothing))
            stacks = fresh


def resident() -> dict[str, float]:
    """Memory of this process in bytes, and the part that is not a file's; nothing where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return {"rss": float("nan"), "anonymous": float("nan")}
    found = {
        name: float(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines) if "kB" in rest
    }
    return {"rss": found["VmRSS"], "anonymous": found["RssAnon"]}


def _bytes(replay: Replay) -> int:
    """Everything a replay allocated."""
    storage: Any = replay.storage
    columns = (replay.action, replay.reward, replay.kept, replay.ended, replay.live)
    observations = storage.array.nbytes if isinstance(storage, ArrayStorage) else storage.nbytes
    return int(observations) + sum(column.nbytes for column in columns)
