"""Training on Pong as a whole, agent steps per second: our loop beside Stable-Baselines3's, and beside what bounds it.

`bench atari` gives every contestant four games and binds each to one core (the last to two). Peers play through their
own wrappers, we through ALE's vector environment: that is part of what is measured. A replay of 10,000 keeps the peers'
copies of every stack small. The floor is our loop with an update that is nothing but the passes through the trunk: no
loss, no head, no optimiser. Evaluation plays eight games and is compared with our loop without updates.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from nfdrl.bench.race import (
    ENDLESS,
    PEERS,
    SB3_DQN,
    SB3_QRDQN,
    Contestant,
    Course,
    Run,
    check_installed,
    cores,
    on_cores,
    race,
    steps_of,
)
from nfdrl.bench.report import Measured, Row
from nfdrl.laws import find_method
from nfdrl.learner import Learner
from nfdrl.replay import Batch
from nfdrl.torsos import Torso
from nfdrl.training.config import FrameReplay

GAME = "ALE/Pong-v5"
COURSE = Course(
    batch=32, buffer=10_000, warm_up=200, learning_rate=1e-4, games=4, rounds=15, stretch=120, smoke_stretch=8
)
REPORT_EVERY = 40  # steps between the places where a run can be stopped
SAMPLES = 500  # paper, table of hyper-parameters: n_samples
EPISODES = 100_000  # more than a benchmark can play
UPDATES = 10  # of one turn of `measure_floor`
FLOWS = ("nfdrl-s", "nfdrl")  # whose updates are measured against their trunk

FLOOR, OURS = "ours, trunk alone", "ours nfdrl-s"
ACTING, EVALUATING = f"{OURS}, acting alone", f"{OURS}, evaluation"
OURS_PACKED, OURS_TWO = f"{OURS}, compressed replay", f"{OURS}, two cores"


def our_agent(name: str, seed: int, frame_replay: FrameReplay = "auto", train_every: int = COURSE.train_every) -> Any:
    """An agent with the settings that all contestants share."""
    from nfdrl.agent import Agent

    config = COURSE.config(return_range="method", report_every=REPORT_EVERY, frame_replay=frame_replay)
    config = replace(config, train_every=train_every)
    settings: Any = find_method(name)
    method = replace(settings, samples=SAMPLES) if name.startswith("nfdrl") else settings
    return Agent(method, GAME, seed=seed, config=config, device="cpu")


def _ours(name: str, frame_replay: FrameReplay = "auto") -> Callable[[int], Run]:
    return lambda seed: steps_of(our_agent(name, seed, frame_replay))


def _acting(seed: int) -> Run:
    """Training without an update: the games, the actions and the replay."""
    return steps_of(our_agent("nfdrl-s", seed, train_every=ENDLESS))


def _evaluating(seed: int) -> Run:
    """Evaluation, stopped and continued as training is."""
    from nfdrl.agent import EVALUATION_ENVS
    from nfdrl.evaluation.arenas import AtariArena
    from nfdrl.evaluation.rollouts import MAX_STEPS, Play

    agent = our_agent("nfdrl-s", seed)
    play = Play(np.zeros(EPISODES), np.zeros(EPISODES, np.int64), MAX_STEPS, show_every=1)
    played = play.play(lambda rows: agent.predict(rows)[0], AtariArena(agent.source, EVALUATION_ENVS), seed)
    done = 0

    def run(steps: int) -> None:
        nonlocal done
        goal = done + steps
        while done < goal:
            done = next(played)[1]

    return run


def _floor(seed: int) -> Run:
    agent = our_agent("dqn", seed)
    agent.learn(COURSE.warm_up + COURSE.train_every, progress=False)
    learner: Learner = agent.learner

    def passes(batch: Batch) -> float:
        _trunk(learner, batch)
        return 0.0

    cast(Any, learner).update = passes
    return steps_of(agent)


def _peer(name: str) -> Callable[[int], Run]:
    def make(seed: int) -> Run:
        import ale_py
        import gymnasium
        from stable_baselines3.common.env_util import make_atari_env
        from stable_baselines3.common.vec_env import VecFrameStack

        gymnasium.register_envs(ale_py)
        plain = {"frameskip": 1, "repeat_action_probability": 0.0}  # its wrapper skips the frames
        games = VecFrameStack(make_atari_env(GAME, n_envs=COURSE.games, seed=seed, env_kwargs=plain), 4)
        return COURSE.peer(name, "CnnPolicy", games, seed, {})

    return make


CONTESTANTS = (
    Contestant(SB3_DQN, on_cores(1, _peer("dqn"))),
    Contestant(SB3_QRDQN, on_cores(1, _peer("qr-dqn"))),
    Contestant("ours dqn", on_cores(1, _ours("dqn")), SB3_DQN),
    Contestant("ours c51", on_cores(1, _ours("c51")), SB3_DQN),
    Contestant(OURS, on_cores(1, _ours("nfdrl-s")), SB3_DQN),
    Contestant("ours nfdrl", on_cores(1, _ours("nfdrl")), SB3_DQN),
    Contestant(FLOOR, on_cores(1, _floor), SB3_DQN),
    Contestant(OURS_PACKED, on_cores(1, _ours("nfdrl-s", "compressed")), OURS),
    Contestant(ACTING, on_cores(1, _acting)),
    Contestant(EVALUATING, on_cores(1, _evaluating), ACTING),
    Contestant(OURS_TWO, on_cores(2, _ours("nfdrl-s")), OURS),
)


def main(out: Path, smoke: bool, seed: int) -> Measured:  # noqa: ARG001
    """Run the benchmark."""
    check_installed("atari,peers", "ale_py", "cv2", *PEERS)
    alone = smoke or len(_cores_here()) == 1  # threads that wait for each other's turn on a busy core take seconds
    contestants = CONTESTANTS[:-1] if alone else CONTESTANTS
    also = ((SB3_QRDQN, OURS), (SB3_QRDQN, FLOOR))
    measured = race(GAME, COURSE, contestants, seed=seed, smoke=smoke, also=also)
    turns = (1, 1) if smoke else (COURSE.rounds, UPDATES)
    with cores(1):
        floors = [measure_floor(method, seed, *turns) for method in FLOWS]
    found = {**measured.summary, "update_over_trunk": {floor.method: floor.ratio for floor in floors}}
    rows = [row for floor in floors for row in floor_rows(floor)]
    return Measured(f"{measured.title}, and of an update", [*measured.rows, *rows], found)


def _cores_here() -> Sequence[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


@dataclass(frozen=True)
class Floor:
    """Seconds per update of a method, and per pass through its trunk alone, in each round."""

    method: str
    update: list[float]
    trunk: list[float]

    @property
    def ratio(self) -> float:
        """The update over its trunk: the median over rounds of the ratio within a round."""
        return median(a / b for a, b in zip(self.update, self.trunk, strict=True))


def measure_floor(method: str, seed: int, rounds: int, updates: int) -> Floor:
    """Updates of a method, and in turn what none can do without: the trunk twice forward and once backward."""
    agent = our_agent(method, seed)
    agent.learn(COURSE.warm_up + COURSE.train_every, progress=False)
    learner: Learner = agent.learner
    batch: Batch = agent.trainer.replay.sample(COURSE.batch)
    floor = Floor(method, [], [])
    for _ in range(rounds):
        for work, into in ((learner.update, floor.update), (partial(_trunk, learner), floor.trunk)):
            work(batch)
            started = time.perf_counter()
            for _ in range(updates):
                work(batch)
            into.append((time.perf_counter() - started) / updates)
    return floor


def _trunk(learner: Learner, batch: Batch) -> None:
    """The target network's trunk on the next observations, the online one's forward and backward on the others.

    Without the head, and through the same layers as an update.
    """
    from nfdrl.engines.compiled.layers import Dense

    online, target = (cast(Torso, network.torso) for network in (learner.online, learner.target))
    forward, both = (Dense(cast(Any, [*torso.layers]), len(torso.layers)) for torso in (target, online))
    with torch.no_grad():
        forward.forward(target.stem(cast(Tensor, batch.next_observation)).numpy())
    stem = online.stem(cast(Tensor, batch.observation))
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
        Row(what, COURSE.batch, COURSE.batch, median(values), note=note)
        for what, values, note in (
            (f"an update of {floor.method}", floor.update, f"{floor.ratio:.2f} × its trunk"),
            ("its trunk alone", floor.trunk, "target forward, online forward and backward"),
        )
    ]
