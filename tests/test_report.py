"""`nfdrl report` on real runs."""

from __future__ import annotations

import csv
import json

import matplotlib.pyplot as plt
import pytest

from nfdrl.cli import main


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    small = ["--set", "learning_starts=40", "batch_size=8", "report_every=50", "--no-progress"]
    for method, env, episodes in (("dqn", "CartPole-v1", "3"), ("nfdrl-s", "FrozenLake-v1", "0")):
        command = ["train", "--method", method, "--env", env, "--steps", "200", "--evaluate", episodes]
        assert main([*command, "--out", str(folder / "deep" / method), *small]) == 0
    return folder


def test_a_report_has_every_run_with_its_measurements(runs, tmp_path, capsys):
    assert main(["report", str(runs), "--out", str(tmp_path)]) == 0
    assert "CartPole" in capsys.readouterr().out
    with (tmp_path / "report.csv").open(newline="") as file:
        cartpole, lake = csv.DictReader(file)
    evaluation = json.loads((runs / "deep/dqn/metrics.json").read_text())["evaluation"]
    assert (cartpole["env"], cartpole["steps"], cartpole["episodes"]) == ("CartPole-v1", "200", "3")
    assert float(cartpole["return"]) == pytest.approx(evaluation["mean"])
    assert (lake["method"], lake["return"]) == ("nfdrl-s", "")  # never evaluated: the cell is empty
    assert [row["seed"] for row in json.loads((tmp_path / "metrics.json").read_text())["runs"]] == [0, 0]
    picture = plt.imread(tmp_path / "curves.png")
    assert picture.shape[0] > 300
    assert picture.std() > 0.01


def test_a_folder_without_runs_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "no run in" in capsys.readouterr().err
