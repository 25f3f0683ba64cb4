"""The benchmarks on replay, Atari and MinAtar run and write what they say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from nfdrl.bench.race import cores
from nfdrl.cli import main
from nfdrl.replay import COLUMN_BYTES

CONTESTANTS = {
    "train": ["Stable-Baselines3 DQN", "ours dqn", "sb3-contrib QR-DQN", "ours qr-dqn", "ours nfdrl-s", "ours nfdrl-e"],
    "atari": ["Stable-Baselines3 DQN", "sb3-contrib QR-DQN", "ours dqn", "ours c51", "ours nfdrl-s"],
    "minatar": ["Stable-Baselines3 DQN", "ours dqn", "ours c51", "ours nfdrl-s"],
}


@pytest.mark.parametrize("name", CONTESTANTS)
def test_training_is_measured_beside_peers(name: str, tmp_path: Path) -> None:
    assert main(["bench", name, "--smoke", "--out", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "metrics.json").read_text())["summary"]
    speed = summary["steps_per_second"]
    assert list(speed)[: len(CONTESTANTS[name])] == CONTESTANTS[name]
    assert min(speed.values()) > 0
    # one round: the ratio is that of the two speeds
    ratio = next(value for key, value in summary["speed_up"].items() if key.removeprefix("ours ").startswith("dqn"))
    assert ratio == pytest.approx(speed["ours dqn"] / speed["Stable-Baselines3 DQN"])


def test_a_replay_is_filled_and_sampled_in_both_forms(tmp_path: Path) -> None:
    assert main(["bench", "replay", "--smoke", "--out", str(tmp_path)]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    sizes = metrics["summary"]["bytes_per_transition"]
    assert sizes["every stack"] == 4 * 84 * 84 + COLUMN_BYTES
    assert sizes["single frames"] == sizes["single frames on disk"] < 7_300
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]


def test_cores_are_given_back() -> None:
    before = os.sched_getaffinity(0), torch.get_num_threads()
    with cores(1):
        assert len(os.sched_getaffinity(0)) == torch.get_num_threads() == 1
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before
