"""Training on MinAtar's Breakout as a whole, steps per second on one core: our loop beside Stable-Baselines3's DQN.

All have the network of Young and Tian 2019, four games at once and one update of 32 per four steps, and take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nfdrl.bench.race import PEERS, SB3_DQN, Contestant, Course, Run, check_installed, on_cores, race, steps_of
from nfdrl.bench.report import Measured

GAME = "MinAtar/Breakout-v1"
WIDTH, REPORT_EVERY = 128, 200
COURSE = Course(  # rate and buffer: Young and Tian 2019
    batch=32, buffer=100_000, warm_up=200, learning_rate=2.5e-4, games=4, rounds=9, stretch=1_000, smoke_stretch=40
)


def _ours(method: str) -> Callable[[int], Run]:
    def make(seed: int) -> Run:
        from nfdrl.agent import Agent
        from nfdrl.torsos import TorsoSizes

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
    Contestant("ours nfdrl", on_cores(1, _ours("nfdrl")), SB3_DQN),
    Contestant("ours nfdrl-s", on_cores(1, _ours("nfdrl-s")), SB3_DQN),
)


def main(out: Path, smoke: bool, seed: int) -> Measured:  # noqa: ARG001
    """Run the benchmark."""
    check_installed("minatar,peers", "minatar", *PEERS)
    return race(GAME, COURSE, CONTESTANTS, seed=seed, smoke=smoke)
