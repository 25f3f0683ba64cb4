"""What the soak campaigns train: small runs that end in minutes, on each kind of environment and replay."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """An environment with settings that make its replay full and its checkpoints frequent."""

    env: str
    steps: int  # of a campaign of kills
    every: int  # steps between two checkpoints
    settings: tuple[str, ...]
    warm: int  # steps after which everything that is made once has been made
    interval: int = 2_000  # steps between two checkpoints of long training: episodes must be able to end


SCENARIOS = {
    "cartpole": Scenario(
        "CartPole-v1",
        12_000,
        250,
        ("learning_starts=500", "batch_size=16", "report_every=100", "buffer_size=3000", "num_envs=2", "mlp=(32,32)"),
        10_000,
    ),
    "vector": Scenario(
        "CartPole-v1",
        24_000,
        400,
        ("learning_starts=500", "batch_size=16", "report_every=200", "buffer_size=4000", "num_envs=8", "n_step=3",
         "mlp=(32,32)"),
        10_000,
    ),
    "minatar": Scenario(
        "MinAtar/Breakout-v1",
        8_000,
        250,
        ("learning_starts=500", "batch_size=8", "report_every=100", "buffer_size=2000", "num_envs=2",
         "small_image=(32,)"),
        6_000,
    ),
    "pong": Scenario(
        "ALE/Pong-v5",
        8_000,
        200,
        ("learning_starts=300", "batch_size=4", "train_every=16", "report_every=100", "buffer_size=1500", "num_envs=4",
         "frame_replay=compressed", "image=(32,)"),
        33_000,
        8_000,
    ),
}  # fmt: skip
