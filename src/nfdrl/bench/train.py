"""Whole training, steps a second: our loop beside Stable-Baselines3's on the same environment and network.

`bench train` gives every contestant the same batch size, update ratio, network, buffer and exploration on CartPole-v1,
lets each get past its warm-up, and then times them by turns in short stretches, so that a machine that is busy for a
while is busy for all. One thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from nfdrl.bench.report import Row, print_table, write_metrics
from nfdrl.errors import NfdrlError

ENV = "CartPole-v1"
BATCH, TRAIN_EVERY, WIDTHS, BUFFER = 64, 4, (64, 64), 50_000
TARGET_EVERY = 1_000  # steps
EPSILON, WARM_UP, LEARNING_RATE, MAX_GRAD_NORM, DISCOUNT = 0.05, 500, 1e-3, 10.0, 0.99
QUANTILES = 200  # Dabney et al. 2018, and sb3-contrib's default
ROUNDS, STRETCH = 15, 400
SMOKE_ROUNDS, SMOKE_STRETCH = 1, 60
PEERS = {"stable_baselines3": "stable-baselines3", "sb3_contrib": "sb3-contrib"}

Run = Callable[[int], None]  # train for so many more steps


@dataclass(frozen=True)
class Contestant:
    """Something that trains; `against` names the peer whose time its ratio is taken to."""

    what: str
    make: Callable[[int], Run]
    against: str | None = None


def _ours(method: str, direct: bool = True) -> Callable[[int], Run]:
    def make(seed: int) -> Run:
        from nfdrl.agent import Agent
        from nfdrl.networks import TorsoSizes
        from nfdrl.training.config import TrainConfig

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
            direct=direct,
            torso=TorsoSizes(mlp=WIDTHS),
        )
        agent = Agent(method, ENV, seed=seed, config=config, device="cpu")
        return lambda steps: _discard(agent.learn(steps, progress=False))

    return make


def _peer(name: str) -> Callable[[int], Run]:
    def make(seed: int) -> Run:
        kind: Any
        policy: dict[str, Any] = {"net_arch": list(WIDTHS)}
        if name == "dqn":
            from stable_baselines3 import DQN as kind
        else:
            from sb3_contrib import QRDQN as kind

            policy["n_quantiles"] = QUANTILES
        model = kind(
            "MlpPolicy",
            ENV,
            seed=seed,
            batch_size=BATCH,
            train_freq=TRAIN_EVERY,
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
        return lambda steps: _discard(model.learn(steps, reset_num_timesteps=False))

    return make


def _discard(result: object) -> None:
    del result


SB3_DQN, SB3_QRDQN = "Stable-Baselines3 DQN", "sb3-contrib QR-DQN"
CONTESTANTS = (
    Contestant(SB3_DQN, _peer("dqn")),
    Contestant("ours dqn", _ours("dqn"), SB3_DQN),
    Contestant(SB3_QRDQN, _peer("qr-dqn")),
    Contestant("ours qr-dqn", _ours("qr-dqn"), SB3_QRDQN),
    Contestant("ours nfdrl-s", _ours("nfdrl-s"), SB3_QRDQN),
    Contestant("ours nfdrl-e", _ours("nfdrl-e"), SB3_QRDQN),
    Contestant("ours dqn, through the graph", _ours("dqn", direct=False), SB3_DQN),
    Contestant("ours nfdrl-s, through the graph", _ours("nfdrl-s", direct=False), SB3_QRDQN),
)


def main(out: Path, smoke: bool = False, seed: int = 0) -> None:
    """Run the benchmark and write metrics.json."""
    check_peers()
    rounds, stretch = (SMOKE_ROUNDS, SMOKE_STRETCH) if smoke else (ROUNDS, STRETCH)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = measure(CONTESTANTS, seed, rounds, stretch)
    finally:
        torch.set_num_threads(before)
    rows = [_row(contestant, seconds, stretch) for contestant in CONTESTANTS]
    print_table(f"{ENV}: time of a step of training (one update of {BATCH} for {TRAIN_EVERY} steps)", rows)
    path = write_metrics(
        out,
        bench="train",
        seed=seed,
        threads=1,
        command="nfdrl bench train" + (" --smoke" if smoke else ""),
        rows=rows,
        summary=summary(seconds, rounds),
    )
    print(f"written: {path}")


def check_peers() -> None:
    """Refuse to start without the packages to compare with."""
    missing = [package for module, package in PEERS.items() if find_spec(module) is None]
    if missing:
        raise NfdrlError(f'{" and ".join(missing)} not installed: pip install "nfdrl[peers]"')


def measure(
    contestants: Sequence[Contestant],
    seed: int,
    rounds: int,
    stretch: int,
    warm_up: int = WARM_UP + 10 * TRAIN_EVERY,
) -> dict[str, list[float]]:
    """Seconds a step of each contestant in each round; all take a stretch in every round."""
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


def summary(seconds: dict[str, list[float]], rounds: int) -> dict[str, Any]:
    """Steps a second of each, and the ratios that matter, each a median over rounds."""
    speed = {what: 1 / median(values) for what, values in seconds.items()}
    pairs = {
        "dqn over Stable-Baselines3 DQN": (SB3_DQN, "ours dqn"),
        "nfdrl-s over sb3-contrib QR-DQN": (SB3_QRDQN, "ours nfdrl-s"),
        "nfdrl-s over our dqn": ("ours dqn", "ours nfdrl-s"),
        "nfdrl-s over the same through the graph": ("ours nfdrl-s, through the graph", "ours nfdrl-s"),
    }
    ratios = {name: speed_up(seconds, *pair) for name, pair in pairs.items()}
    return {"rounds": rounds, "steps_per_second": speed, "speed_up": ratios}


def speed_up(seconds: dict[str, list[float]], slow: str, fast: str) -> float:
    """How many times as fast, as the median over rounds of the ratio within a round."""
    return median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))


def _row(contestant: Contestant, seconds: dict[str, list[float]], stretch: int) -> Row:
    own = seconds[contestant.what]
    against = contestant.against
    return {
        "what": contestant.what,
        "size": stretch,
        "batch": BATCH,
        "seconds": median(own),
        "bytes": None,
        "ratio": None if against is None else speed_up(seconds, against, contestant.what),
        "note": f"{1 / median(own):,.0f} steps/s" + ("" if against is None else f"; ratio to {against}"),
    }
