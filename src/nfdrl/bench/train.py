"""Whole training on CartPole-v1, steps a second on one thread: our loop beside Stable-Baselines3's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from nfdrl.bench.race import (
    SB3_DQN,
    SB3_QRDQN,
    Contestant,
    Course,
    Run,
    check_peers,
    hand_over,
    measure,
    row,
    summary,
)
from nfdrl.engines import EngineName

ENV, WIDTHS = "CartPole-v1", (64, 64)
COURSE = Course(batch=64, buffer=50_000, warm_up=500, learning_rate=1e-3)
ROUNDS, STRETCH = 15, 400
SMOKE_ROUNDS, SMOKE_STRETCH = 1, 60
DQN, FLOW = "ours dqn", "ours nfdrl-s"


def _ours(method: str, engine: EngineName = "auto", risk: str = "mean") -> Callable[[int], Run]:
    def make(seed: int) -> Run:
        from nfdrl.agent import Agent
        from nfdrl.networks import TorsoSizes

        config = COURSE.config(engine=engine, torso=TorsoSizes(mlp=WIDTHS))
        agent = Agent(method, ENV, seed=seed, config=config, risk=risk, device="cpu")

        def run(steps: int) -> None:
            agent.learn(steps, progress=False)

        return run

    return make


def _peer(name: str) -> Callable[[int], Run]:
    return lambda seed: COURSE.peer(name, "MlpPolicy", ENV, seed, {"net_arch": list(WIDTHS)})


CONTESTANTS = (
    Contestant(SB3_DQN, _peer("dqn")),
    Contestant(DQN, _ours("dqn"), SB3_DQN),
    Contestant(SB3_QRDQN, _peer("qr-dqn")),
    Contestant("ours qr-dqn", _ours("qr-dqn"), SB3_QRDQN),
    Contestant(FLOW, _ours("nfdrl-s"), SB3_QRDQN),
    Contestant("ours nfdrl-e", _ours("nfdrl-e"), SB3_QRDQN),
    Contestant(f"{FLOW}, by CVaR", _ours("nfdrl-s", risk="cvar:0.1"), FLOW),
    Contestant("ours dqn, through the graph", _ours("dqn", "graph"), SB3_DQN),
    Contestant("ours nfdrl-s, through the graph", _ours("nfdrl-s", "graph"), SB3_QRDQN),
)
PAIRS = ((SB3_DQN, DQN), (SB3_QRDQN, FLOW), (DQN, FLOW), ("ours nfdrl-s, through the graph", FLOW))


def main(out: Path, smoke: bool = False, seed: int = 0) -> None:
    """Run the benchmark and write metrics.json."""
    check_peers()
    rounds, stretch = (SMOKE_ROUNDS, SMOKE_STRETCH) if smoke else (ROUNDS, STRETCH)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = measure(CONTESTANTS, seed, rounds, stretch, COURSE.warm_up + 10 * COURSE.train_every)
    finally:
        torch.set_num_threads(before)
    rows = [row(contestant, seconds, stretch, COURSE.batch) for contestant in CONTESTANTS]
    title = f"{ENV}: time of a step of training (one update of {COURSE.batch} for {COURSE.train_every} steps)"
    hand_over(out, "train", smoke, seed, title, rows, summary(seconds, PAIRS))
