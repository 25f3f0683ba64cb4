"""Whole training on Pong, agent steps a second: our loop beside Stable-Baselines3's, and an update beside its trunk.

`bench atari` gives every contestant four games, the same batch size, update ratio, network, warm-up and exploration,
binds each to one core (the last to two) and times them by turns in short stretches, so that a machine that is busy for
a while is busy for all. Peers play through their own wrappers, we through ALE's vector environment: that is part of
what is measured. A replay of 10,000 keeps the peers' copies of every stack small.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np
import torch

from nfdrl.bench.report import Row, print_table, write_metrics
from nfdrl.bench.train import Contestant, Run, check_peers, measure, speed_up
from nfdrl.dense import Dense
from nfdrl.errors import NfdrlError
from nfdrl.laws import find_method
from nfdrl.learner import Learner
from nfdrl.networks import Torso
from nfdrl.replay import Batch
from nfdrl.training.config import FrameReplay, TrainConfig

GAME = "ALE/Pong-v5"
GAMES, BATCH, TRAIN_EVERY, BUFFER = 4, 32, 4, 10_000
TARGET_EVERY = 1_000  # steps
EPSILON, WARM_UP, LEARNING_RATE, MAX_GRAD_NORM, DISCOUNT = 0.05, 200, 1e-4, 10.0, 0.99
ENDLESS, REPORT_EVERY = 10**9, 40  # steps of a run, and between the places where it can be stopped
SAMPLES = 500  # paper, table of hyper-parameters: n_samples
QUANTILES = 200  # Dabney et al. 2018, and sb3-contrib's default
ROUNDS, STRETCH, UPDATES = 15, 120, 10
SMOKE_ROUNDS, SMOKE_STRETCH, SMOKE_UPDATES = 1, 8, 1

SB3_DQN, SB3_QRDQN = "Stable-Baselines3 DQN", "sb3-contrib QR-DQN"
OURS, OURS_PACKED, OURS_TWO = "ours nfdrl-s", "ours nfdrl-s, compressed replay", "ours nfdrl-s, two cores"


@contextmanager
def cores(count: int) -> Iterator[None]:
    """This thread, and all that are started from it, on the first `count` cores; as many threads in PyTorch."""
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
    """A contestant that is made and run on so many cores."""

    def made(seed: int) -> Run:
        with cores(count):
            run = make(seed)

        def bound(steps: int) -> None:
            with cores(count):
                run(steps)

        return bound

    return made


def our_agent(name: str, seed: int, frame_replay: FrameReplay = "auto") -> Any:
    """An agent with the settings that all contestants share."""
    from nfdrl.agent import Agent

    config = TrainConfig(
        batch_size=BATCH,
        train_every=TRAIN_EVERY,
        double_q=False,  # as the peers
        n_step=1,
        target_every=TARGET_EVERY // TRAIN_EVERY,
        buffer_size=BUFFER,
        learning_starts=WARM_UP,
        learning_rate=LEARNING_RATE,
        learning_rate_decay="constant",
        max_grad_norm=MAX_GRAD_NORM,
        discount=DISCOUNT,
        epsilon_start=EPSILON,
        epsilon_end=EPSILON,
        num_envs=GAMES,
        return_range="method",
        report_every=REPORT_EVERY,
        frame_replay=frame_replay,
    )
    settings: Any = find_method(name)
    method = replace(settings, samples=SAMPLES) if name.startswith("nfdrl") else settings
    return Agent(method, GAME, seed=seed, config=config, device="cpu")


def _ours(name: str, frame_replay: FrameReplay = "auto") -> Callable[[int], Run]:
    def make(seed: int) -> Run:
        return steps_of(our_agent(name, seed, frame_replay))

    return make


def steps_of(agent: Any) -> Run:
    """One run of the agent, stopped and taken up again without a reset, as the peers' is."""
    events = agent.events(ENDLESS)

    def run(steps: int) -> None:
        goal = agent.step + steps
        while agent.step < goal:
            next(events)

    return run


def _peer(name: str) -> Callable[[int], Run]:
    def make(seed: int) -> Run:
        import ale_py
        import gymnasium
        from stable_baselines3.common.env_util import make_atari_env
        from stable_baselines3.common.vec_env import VecFrameStack

        gymnasium.register_envs(ale_py)
        kind: Any
        policy: dict[str, Any] = {}
        if name == "dqn":
            from stable_baselines3 import DQN as kind
        else:
            from sb3_contrib import QRDQN as kind

            policy["n_quantiles"] = QUANTILES
        plain = {"frameskip": 1, "repeat_action_probability": 0.0}  # its wrapper skips the frames
        games = VecFrameStack(make_atari_env(GAME, n_envs=GAMES, seed=seed, env_kwargs=plain), 4)
        model = kind(
            "CnnPolicy",
            games,
            seed=seed,
            batch_size=BATCH,
            train_freq=TRAIN_EVERY // GAMES,
            gradient_steps=1,
            target_update_interval=TARGET_EVERY,
            buffer_size=BUFFER,
            learning_starts=WARM_UP,
            learning_rate=LEARNING_RATE,
            max_grad_norm=MAX_GRAD_NORM,
            gamma=DISCOUNT,
            exploration_initial_eps=EPSILON,
            exploration_final_eps=EPSILON,
            policy_kwargs=policy,
            device="cpu",
        )

        def run(steps: int) -> None:
            model.learn(steps, reset_num_timesteps=False)

        return run

    return make


CONTESTANTS = (
    Contestant(SB3_DQN, on_cores(1, _peer("dqn"))),
    Contestant(SB3_QRDQN, on_cores(1, _peer("qr-dqn"))),
    Contestant("ours dqn", on_cores(1, _ours("dqn")), SB3_DQN),
    Contestant("ours c51", on_cores(1, _ours("c51")), SB3_DQN),
    Contestant(OURS, on_cores(1, _ours("nfdrl-s")), SB3_DQN),
    Contestant(OURS_PACKED, on_cores(1, _ours("nfdrl-s", "compressed")), OURS),
    Contestant(OURS_TWO, on_cores(2, _ours("nfdrl-s")), OURS),
)


def main(out: Path, smoke: bool = False, seed: int = 0) -> None:
    """Run the benchmark and write metrics.json."""
    check_peers()
    if find_spec("ale_py") is None or find_spec("cv2") is None:
        raise NfdrlError('ale-py and opencv are needed: pip install "nfdrl[atari,peers]"')
    rounds, stretch = (SMOKE_ROUNDS, SMOKE_STRETCH) if smoke else (ROUNDS, STRETCH)
    alone = smoke or len(_cores_here()) == 1  # threads that wait for each other's turn on a busy core take seconds
    contestants = CONTESTANTS[:-1] if alone else CONTESTANTS
    seconds = measure(contestants, seed, rounds, stretch, WARM_UP + stretch)
    with cores(1):
        floor = measure_floor(seed, rounds, SMOKE_UPDATES if smoke else UPDATES)
    rows = [row(contestant, seconds, stretch) for contestant in contestants]
    rows += floor_rows(floor)
    print_table(
        f"Pong: time of a step of training (one update of {BATCH} for {TRAIN_EVERY} steps), and of an update", rows
    )
    speed_ups = {
        f"{contestant.what} over {contestant.against}": speed_up(seconds, contestant.against, contestant.what)
        for contestant in contestants
        if contestant.against is not None
    }
    speed_ups[f"{OURS} over {SB3_QRDQN}"] = speed_up(seconds, SB3_QRDQN, OURS)
    summary = {
        "rounds": rounds,
        "steps_per_second": {what: 1 / median(values) for what, values in seconds.items()},
        "speed_up": speed_ups,
        "update_over_trunk": floor.ratio,
    }
    command = "nfdrl bench atari" + (" --smoke" if smoke else "")
    path = write_metrics(out, bench="atari", seed=seed, threads=1, command=command, rows=rows, summary=summary)
    print(f"written: {path}")


def _cores_here() -> Sequence[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


@dataclass(frozen=True)
class Floor:
    """Seconds of an update and of its trunk alone in each round."""

    update: list[float]
    trunk: list[float]

    @property
    def ratio(self) -> float:
        """The update in units of its trunk, as the median over rounds of the ratio within a round."""
        return median(a / b for a, b in zip(self.update, self.trunk, strict=True))


def measure_floor(seed: int, rounds: int, updates: int) -> Floor:
    """Updates of nfdrl-s, and by turns what no method can do without: the two passes of the trunk, and one back."""
    agent = our_agent("nfdrl-s", seed)
    agent.learn(WARM_UP + TRAIN_EVERY, progress=False)
    learner: Learner = agent.learner
    batch: Batch = agent._trainer.replay.sample(BATCH)
    floor = Floor([], [])
    for _ in range(rounds):
        for work, into in ((_update, floor.update), (_trunk, floor.trunk)):
            work(learner, batch)
            started = time.perf_counter()
            for _ in range(updates):
                work(learner, batch)
            into.append((time.perf_counter() - started) / updates)
    return floor


def _update(learner: Learner, batch: Batch) -> None:
    learner.update(batch)


def _trunk(learner: Learner, batch: Batch) -> None:
    """The target network's trunk on the next observations, the online one's forward and backward on the others.

    Without the head, and through the same layers as the update's.
    """
    online, target = (cast(Torso, network.torso) for network in (learner.online, learner.target))
    forward, both = (Dense(cast(Any, [*torso.layers]), len(torso.layers)) for torso in (target, online))
    with torch.no_grad():
        forward.forward(target.stem(batch.next_observation).numpy())
    stem = online.stem(batch.observation)
    outputs = both.forward(stem.detach().numpy())
    grad = both.backward(outputs, np.ones_like(outputs[-1]), to_input=True)
    assert grad is not None
    stem.backward(torch.from_numpy(grad))  # type: ignore[no-untyped-call]
    for parameter in online.parameters():
        assert parameter.grad is not None
        parameter.grad.zero_()


def floor_rows(floor: Floor) -> list[Row]:
    """The two lines of the table."""
    return [
        {
            "what": what,
            "size": BATCH,
            "batch": BATCH,
            "seconds": median(values),
            "bytes": None,
            "ratio": None,
            "note": note,
        }
        for what, values, note in (
            ("an update of nfdrl-s", floor.update, f"{floor.ratio:.2f} × its trunk"),
            ("its trunk alone", floor.trunk, "target forward, online forward and backward"),
        )
    ]


def row(contestant: Contestant, seconds: dict[str, list[float]], stretch: int) -> Row:
    """A contestant's line of the table."""
    own, against = seconds[contestant.what], contestant.against
    return {
        "what": contestant.what,
        "size": stretch,
        "batch": BATCH,
        "seconds": median(own),
        "bytes": None,
        "ratio": None if against is None else speed_up(seconds, against, contestant.what),
        "note": f"{1 / median(own):,.0f} steps/s" + ("" if against is None else f"; ratio to {against}"),
    }
