"""Whole training on MinAtar's Breakout, steps a second on one core: our loop beside Stable-Baselines3's DQN.

All have the network of Young and Tian 2019, four games at once, one update of 32 for four steps, and take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from nfdrl.bench.atari import BATCH, DISCOUNT, EPSILON, GAMES, TRAIN_EVERY, WARM_UP, on_cores, row, steps_of
from nfdrl.bench.report import print_table, write_metrics
from nfdrl.bench.train import Contestant, Run, check_peers, measure, speed_up
from nfdrl.errors import NfdrlError

GAME = "MinAtar/Breakout-v1"
BUFFER, TARGET_EVERY, LEARNING_RATE = 100_000, 1_000, 2.5e-4  # Young and Tian 2019
WIDTH, REPORT_EVERY = 128, 200
ROUNDS, STRETCH = 9, 1_000
SMOKE_ROUNDS, SMOKE_STRETCH = 1, 40
SB3_DQN = "Stable-Baselines3 DQN"


def _ours(method: str) -> Callable[[int], Run]:
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
            max_grad_norm=10.0,
            discount=DISCOUNT,
            epsilon_start=EPSILON,
            epsilon_end=EPSILON,
            num_envs=GAMES,
            report_every=REPORT_EVERY,
            torso=TorsoSizes(small_image=(WIDTH,)),
        )
        return steps_of(Agent(method, GAME, seed=seed, config=config, device="cpu"))

    return make


def _peer(seed: int) -> Run:
    from stable_baselines3 import DQN
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import DummyVecEnv
    from torch import Tensor, nn

    from nfdrl.envs.make import source_of

    source = source_of(GAME)
    games = DummyVecEnv([source.fresh] * GAMES)
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

    model = DQN(
        "MlpPolicy",
        games,
        seed=seed,
        batch_size=BATCH,
        train_freq=TRAIN_EVERY // GAMES,
        gradient_steps=1,
        target_update_interval=TARGET_EVERY,
        buffer_size=BUFFER,
        learning_starts=WARM_UP,
        learning_rate=LEARNING_RATE,
        gamma=DISCOUNT,
        exploration_initial_eps=EPSILON,
        exploration_final_eps=EPSILON,
        policy_kwargs={"features_extractor_class": Small, "net_arch": []},
        device="cpu",
    )

    def run(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    return run


CONTESTANTS = (
    Contestant(SB3_DQN, on_cores(1, _peer)),
    Contestant("ours dqn", on_cores(1, _ours("dqn")), SB3_DQN),
    Contestant("ours c51", on_cores(1, _ours("c51")), SB3_DQN),
    Contestant("ours nfdrl-s", on_cores(1, _ours("nfdrl-s")), SB3_DQN),
)


def main(out: Path, smoke: bool = False, seed: int = 0) -> None:
    """Run the benchmark and write metrics.json."""
    check_peers()
    if find_spec("minatar") is None:
        raise NfdrlError('MinAtar is not installed: pip install "nfdrl[minatar]"')
    rounds, stretch = (SMOKE_ROUNDS, SMOKE_STRETCH) if smoke else (ROUNDS, STRETCH)
    seconds = measure(CONTESTANTS, seed, rounds, stretch, WARM_UP + stretch)
    rows = [row(contestant, seconds, stretch) for contestant in CONTESTANTS]
    print_table(f"{GAME}: time of a step of training (one update of {BATCH} for {TRAIN_EVERY} steps)", rows)
    summary = {
        "rounds": rounds,
        "steps_per_second": {what: 1 / median(values) for what, values in seconds.items()},
        "speed_up": {c.what: speed_up(seconds, SB3_DQN, c.what) for c in CONTESTANTS if c.against},
    }
    command = "nfdrl bench minatar" + (" --smoke" if smoke else "")
    path = write_metrics(out, bench="minatar", seed=seed, threads=1, command=command, rows=rows, summary=summary)
    print(f"written: {path}")
