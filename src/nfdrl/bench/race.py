"""Training beside released peers: what all contestants share, and how they take turns.

Every contestant has the same batch size, update ratio, buffer and exploration. Once all are past their warm-up, they
take turns in short stretches, so that a machine that is busy for a while is busy for all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from nfdrl.bench.report import Measured, Row
from nfdrl.errors import NfdrlError

if TYPE_CHECKING:
    from nfdrl.training.config import TrainConfig

SB3_DQN, SB3_QRDQN = "Stable-Baselines3 DQN", "sb3-contrib QR-DQN"
QUANTILES = 200  # Dabney et al. 2018, and sb3-contrib's default
PEERS = ("stable_baselines3", "sb3_contrib")
ENDLESS = 10**9  # steps of a run that is stopped from outside

Run = Callable[[int], object]  # train for so many more steps


@dataclass(frozen=True)
class Course:
    """The settings that all contestants share, and how long they run; steps are transitions."""

    batch: int
    buffer: int
    warm_up: int
    learning_rate: float
    rounds: int
    stretch: int  # steps of one turn
    smoke_stretch: int  # the same in the smallest run, of one round
    games: int = 1
    train_every: int = 4
    target_every: int = 1_000
    max_grad_norm: float = 10.0  # Stable-Baselines3's default
    discount: float = 0.99
    epsilon: float = 0.05

    def config(self, **others: Any) -> TrainConfig:
        """Our settings."""
        from nfdrl.training.config import TrainConfig

        return TrainConfig(
            batch_size=self.batch,
            train_every=self.train_every,
            double_q=False,  # as the peers
            n_step=1,
            target_every=self.target_every // self.train_every,
            buffer_size=self.buffer,
            learning_starts=self.warm_up,
            learning_rate=self.learning_rate,
            learning_rate_decay="constant",
            max_grad_norm=self.max_grad_norm,
            discount=self.discount,
            epsilon_start=self.epsilon,
            epsilon_end=self.epsilon,
            num_envs=self.games,
            **others,
        )

    def peer(self, name: str, network: str, env: Any, seed: int, policy: dict[str, Any]) -> Run:
        """A run of Stable-Baselines3's `dqn` or sb3-contrib's `qr-dqn`."""
        kind: Any
        if name == "dqn":
            from stable_baselines3 import DQN as kind
        else:
            from sb3_contrib import QRDQN as kind

            policy = policy | {"n_quantiles": QUANTILES}
        model = kind(
            network,
            env,
            seed=seed,
            batch_size=self.batch,
            train_freq=self.train_every // self.games,
            gradient_steps=1,
            target_update_interval=self.target_every,
            buffer_size=self.buffer,
            learning_starts=self.warm_up,
            learning_rate=self.learning_rate,
            max_grad_norm=self.max_grad_norm,
            gamma=self.discount,
            exploration_initial_eps=self.epsilon,
            exploration_final_eps=self.epsilon,
            policy_kwargs=policy,
            device="cpu",
        )
        return lambda steps: model.learn(steps, reset_num_timesteps=False)


@dataclass(frozen=True)
class Contestant:
    """Something that trains; `against` names the contestant that it is compared with."""

    what: str
    make: Callable[[int], Run]
    against: str | None = None


@contextmanager
def cores(count: int) -> Iterator[None]:
    """This thread, and all that it starts, on the first `count` cores; as many threads in PyTorch."""
    threads = torch.get_num_threads()
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    torch.set_num_threads(count)
    if allowed:
        os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if allowed:
            os.sched_setaffinity(0, allowed)


def on_cores(count: int, make: Callable[[int], Run]) -> Callable[[int], Run]:
    """A contestant that is made and run on `count` cores."""

    def made(seed: int) -> Run:
        with cores(count):
            run = make(seed)

        def bound(steps: int) -> None:
            with cores(count):
                run(steps)

        return bound

    return made


def steps_of(agent: Any) -> Run:
    """One run of the agent, stopped and continued without a reset, as the peers' runs are."""
    events = agent.events(ENDLESS)

    def run(steps: int) -> None:
        goal = agent.step + steps
        while agent.step < goal:
            next(events)

    return run


def check_installed(extras: str, *modules: str) -> None:
    """Refuse to start without the modules that a benchmark needs."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise NfdrlError(f'not installed: {", ".join(missing)}; pip install "nfdrl[{extras}]"')


def race(
    where: str,
    course: Course,
    contestants: Sequence[Contestant],
    *,
    seed: int,
    smoke: bool,
    warm_up: int | None = None,
    also: Sequence[tuple[str, str]] = (),
) -> Measured:
    """Speed of every contestant, the ratios to whom it is compared with, and those of further pairs (slow, fast).

    Before the first round each runs through its warm-up and `warm_up` more steps, by default one stretch.
    """
    rounds, stretch = (1, course.smoke_stretch) if smoke else (course.rounds, course.stretch)
    seconds = measure(contestants, seed, rounds, stretch, course.warm_up + (stretch if warm_up is None else warm_up))
    title = f"{where}: time of a step of training (one update of {course.batch} per {course.train_every} steps)"
    pairs = [(c.against, c.what) for c in contestants if c.against is not None]
    rows = [row(contestant, seconds, stretch, course.batch) for contestant in contestants]
    return Measured(title, rows, summary(seconds, [*pairs, *also]))


def measure(
    contestants: Sequence[Contestant], seed: int, rounds: int, stretch: int, warm_up: int
) -> dict[str, list[float]]:
    """Seconds per step of each contestant in each round; all run for one stretch in every round."""
    runs = {contestant.what: contestant.make(seed) for contestant in contestants}
    for run in runs.values():
        run(warm_up)
    seconds: dict[str, list[float]] = {what: [] for what in runs}
    for _ in range(rounds):
        for what, run in runs.items():
            started = time.perf_counter()
            run(stretch)
            seconds[what].append((time.perf_counter() - started) / stretch)
    return seconds


def speed_up(seconds: dict[str, list[float]], slow: str, fast: str) -> float:
    """How many times as fast: the median over rounds of the ratio within a round."""
    return median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))


def summary(seconds: dict[str, list[float]], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Steps per second of each, and the ratios of pairs (slow, fast), each a median over rounds."""
    return {
        "rounds": len(next(iter(seconds.values()))),
        "steps_per_second": {what: 1 / median(values) for what, values in seconds.items()},
        "speed_up": {f"{fast} over {slow}": speed_up(seconds, slow, fast) for slow, fast in pairs},
    }


def row(contestant: Contestant, seconds: dict[str, list[float]], stretch: int, batch: int) -> Row:
    """A contestant's line in the table."""
    own, against = seconds[contestant.what], contestant.against
    ratio = None if against is None else speed_up(seconds, against, contestant.what)
    note = f"{1 / median(own):,.0f} steps/s" + ("" if against is None else f"; ratio to {against}")
    return Row(contestant.what, stretch, batch, median(own), ratio=ratio, note=note)
