"""Whole training on MinAtar's Breakout, steps a second on one core: our loop beside Stable-Baselines3's DQN.

All have the network of Young and Tian 2019, four games at once, one update of 32 for four steps, and take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nfdrl.bench.race import (
    SB3_DQN,
    Contestant,
    Course,
    Run,
    check_peers,
    measure,
    on_cores,
    row,
    steps_of,
    summary,
)
from nfdrl.bench.report import Measured
from nfdrl.errors import NfdrlError

GAME = "MinAtar/Breakout-v1"
WIDTH, REPORT_EVERY = 128, 200
COURSE = Course(
    batch=32, buffer=100_000, warm_up=200, learning_rate=2.5e-4, games=4
)  # rate, buffer: Young and Tian 2019
ROUNDS, STRETCH = 9, 1_000
SMOKE_ROUNDS, SMOKE_STRETCH = 1, 40


def _ours(method: str) -> Callable[[int], Run]:
    def make(seed: int) -> Run:
        from nfdrl.agent import Agent
        from nfdrl.networks import TorsoSizes

        config = COURSE.config(report_every=REPORT_EVERY, torso=TorsoSizes(small_image=(WIDTH,)))
        return steps_of(Agent(method, GAME, seed=seed, config=config, device="cpu"))

    return make


def _peer(seed: int) -> Run:
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import DummyVecEnv
    from torch import Tensor, nn

    from nfdrl.envs.make import source_of

    source = source_of(GAME)
    games = DummyVecEnv([source.fresh] * COURSE.games)
    channels = source.observation_space.shape[-1]  # type: ignore[index]

    class Small(BaseFeaturesExtractor):
        """The network of Young and Tian 2019 under the peer's own head."""

        def __init__(self, space: Any) -> None:
            super().__init__(space, WIDTH)
            self.layers = nn.Sequential(
                nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 8 * 8, WIDTH), nn.ReLU()
            )

        def forward(self, observations: Tensor) -> Tensor:
            result: Tensor = self.layers(observations.permute(0, 3, 1, 2))
            return result

    policy = {"features_extractor_class": Small, "net_arch": []}
    return COURSE.peer("dqn", "MlpPolicy", games, seed, policy)


CONTESTANTS = (
    Contestant(SB3_DQN, on_cores(1, _peer)),
    Contestant("ours dqn", on_cores(1, _ours("dqn")), SB3_DQN),
    Contestant("ours c51", on_cores(1, _ours("c51")), SB3_DQN),
    Contestant("ours nfdrl-s", on_cores(1, _ours("nfdrl-s")), SB3_DQN),
)


def main(out: Path, smoke: bool, seed: int) -> Measured:  # noqa: ARG001
    """Run the benchmark."""
    check_peers()
    if find_spec("minatar") is None:
        raise NfdrlError('MinAtar is not installed: pip install "nfdrl[minatar]"')
    rounds, stretch = (SMOKE_ROUNDS, SMOKE_STRETCH) if smoke else (ROUNDS, STRETCH)
    seconds = measure(CONTESTANTS, seed, rounds, stretch, COURSE.warm_up + stretch)
    rows = [row(contestant, seconds, stretch, COURSE.batch) for contestant in CONTESTANTS]
    title = f"{GAME}: time of a step of training (one update of {COURSE.batch} for {COURSE.train_every} steps)"
    pairs = [(c.against, c.what) for c in CONTESTANTS if c.against is not None]
    return Measured(title, rows, summary(seconds, pairs))
