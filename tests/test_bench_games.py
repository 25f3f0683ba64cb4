"""The benchmarks of replay and of training beside peers run, and write what they promise."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from nfdrl.bench.race import check_installed, cores
from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.replay import COLUMN_BYTES

CONTESTANTS = {
    "train": [
        *("Stable-Baselines3 DQN", "ours dqn", "sb3-contrib QR-DQN", "ours qr-dqn", "ours nfdrl", "ours nfdrl-s"),
        "ours nfdrl-e",
        "ours nfdrl-s, by CVaR",
    ],
    "atari": [
        *("Stable-Baselines3 DQN", "sb3-contrib QR-DQN", "ours dqn", "ours c51", "ours nfdrl-s"),
        *("ours nfdrl", "ours, trunk alone"),
        *("ours nfdrl-s, compressed replay", "ours nfdrl-s, acting alone", "ours nfdrl-s, evaluation"),
    ],
    "minatar": ["Stable-Baselines3 DQN", "ours dqn", "ours c51", "ours nfdrl", "ours nfdrl-s"],
}


@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_contestant_has_a_speed_and_ratios_are_those_of_speeds(name: str, tmp_path: Path) -> None:
    assert main(["bench", name, "--smoke", "--out", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "metrics.json").read_text())["summary"]
    speed = summary["steps_per_second"]
    assert list(speed)[: len(CONTESTANTS[name])] == CONTESTANTS[name]
    assert min(speed.values()) > 0
    assert "ours dqn over Stable-Baselines3 DQN" in summary["speed_up"]
    for pair, ratio in summary["speed_up"].items():  # of one round
        fast, slow = pair.split(" over ")
        assert ratio == pytest.approx(speed[fast] / speed[slow])


def test_a_missing_package_is_named_with_how_to_install_it() -> None:
    with pytest.raises(NfdrlError, match=r'not installed: no_such_game; pip install "nfdrl\[atari\]"'):
        check_installed("atari", "torch", "no_such_game")


def test_single_frames_take_a_quarter_of_the_bytes_of_whole_stacks(tmp_path: Path) -> None:
    assert main(["bench", "replay", "--smoke", "--out", str(tmp_path)]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    sizes = metrics["summary"]["bytes_per_transition"]
    assert sizes["every stack"] == 4 * 84 * 84 + COLUMN_BYTES
    assert sizes["single frames"] == sizes["single frames on disk"] < 7_300
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]


def test_cores_and_threads_are_restored() -> None:
    before = os.sched_getaffinity(0), torch.get_num_threads()
    with cores(1):
        assert len(os.sched_getaffinity(0)) == torch.get_num_threads() == 1
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before
