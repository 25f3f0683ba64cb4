"""What a checkpoint costs: the time to write one at 100,000 Atari-shaped transitions beside the training between two.

The environment is made up (frames of noise, which nothing compresses, in stacks of four), the rest is a real run: the
replay fills, two checkpoints are written at the default interval, then updates begin and are timed. The training
between two checkpoints is that time per step, times the interval.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
import torch

from nfdrl.agent import Agent
from nfdrl.bench.report import Measured, Row
from nfdrl.runs.keeping import Checkpoints, newest
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import Pause

METHOD, BATCH, TRAIN_EVERY = "nfdrl-s", 64, 4  # Mnih et al. 2015: an update per four steps
TRANSITIONS, INTERVAL, TIMED = 100_000, 50_000, 200  # the second is the default of `nfdrl train --checkpoint-every`
SMOKE = (60, 30, 8)
TARGET = 0.05


class Frames(gymnasium.Env[Any, Any]):
    """Stacks of four 84 × 84 frames of noise; an episode ends about every 500 steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        """Four times the same frame."""
        super().reset(seed=seed)
        if seed is not None or not hasattr(self, "_frames"):
            self._frames = self.np_random.integers(0, 256, (256, 84, 84), np.uint8)
        self._stack = np.repeat(self._frame()[..., None], 4, -1)
        return self._stack.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._stack[..., :3] = self._stack[..., 1:]
        self._stack[..., 3] = self._frame()
        return self._stack.copy(), float(action == 0), bool(self.np_random.random() < 0.002), False, {}

    def _frame(self) -> Any:
        return self._frames[self.np_random.integers(256)]


def main(out: Path, smoke: bool, seed: int) -> Measured:
    """Run the benchmark."""
    transitions, interval, timed = SMOKE if smoke else (TRANSITIONS, INTERVAL, TIMED)
    run = out / "run"
    shutil.rmtree(run, ignore_errors=True)
    try:
        measured = measure(run, transitions, interval, timed, seed)
    finally:
        shutil.rmtree(run, ignore_errors=True)
    rows = rows_of(measured, transitions, interval)
    share = measured["checkpoint"] / (measured["step"] * interval)
    summary = {"share_of_training": share, "target": TARGET, "interval": interval, "timed_steps": timed, **measured}
    title = f"Checkpoints of {transitions:,} transitions of 84 × 84 × 4 bytes, every {interval:,} steps"
    return Measured(title, rows, summary, torch.get_num_threads())


def measure(run: Path, transitions: int, interval: int, timed: int, seed: int) -> dict[str, float]:
    """Seconds per checkpoint, per step of training, to rewrite everything and to load; bytes of the new rows."""
    config = TrainConfig(
        buffer_size=transitions, learning_starts=transitions, batch_size=BATCH, train_every=TRAIN_EVERY
    )
    agent, checkpoints = Agent(METHOD, Frames(), seed=seed, config=config), Checkpoints(run)
    writes, sizes = [], [0]
    for event in agent.events(transitions + timed, pause_every=interval):
        if isinstance(event, Pause):
            started = time.perf_counter()
            if not checkpoints.save(agent, regular=True):
                break
            writes.append(time.perf_counter() - started)
            sizes.append(size_of(run / "replay"))
            begun = time.perf_counter()
    training = time.perf_counter() - begun
    started = time.perf_counter()
    newest(run, Frames())
    loading = time.perf_counter() - started
    started = time.perf_counter()
    agent.save(run / "whole", replay=True)
    return {
        "checkpoint": median(writes),
        "slowest_checkpoint": max(writes),
        "rows_bytes": sizes[-1] - sizes[-2],
        "step": training / timed,
        "whole": time.perf_counter() - started,
        "whole_bytes": size_of(run / "whole"),
        "load": loading,
    }


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def rows_of(measured: dict[str, float], transitions: int, interval: int) -> list[Row]:
    """The measurements as a table."""
    between = measured["step"] * interval
    whole, checkpoint = measured["whole"], measured["checkpoint"]
    note = f"{checkpoint / between:.2%} of that (target: under {TARGET:.0%}); "
    note += f"the slowest took {measured['slowest_checkpoint']:.3g} s"
    new, all_bytes = int(measured["rows_bytes"]), int(measured["whole_bytes"])
    return [
        Row("training between two", interval, BATCH, between, note="measured per step, times the interval"),
        Row("a checkpoint", interval, BATCH, checkpoint, new, whole / checkpoint, note),
        Row("all rows written again", transitions, BATCH, whole, all_bytes, note="what it saves"),
        Row("loading it, checksums included", transitions, BATCH, measured["load"]),
    ]
