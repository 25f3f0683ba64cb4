"""The scripts behind the documentation run in a small form, and what they add to the package does what it says."""

import csv
import json
import runpy
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch.testing import assert_close

from nfdrl.envs.stepping import Step
from nfdrl.laws.anchored import anchored_law
from nfdrl.laws.fitting import Fit
from nfdrl.replay import Replay

ROOT = Path(__file__).parents[1]


def script(path):
    return runpy.run_path(str(ROOT / path))


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("anchor", [0.0, 0.5, 1.0])
def test_a_softplus_law_is_an_anchored_law_with_other_amplitudes(anchor, double):
    raw = torch.randn(5, 13, generator=torch.Generator().manual_seed(0))
    softplus = script("benchmarks/ablation.py")["softplus_law"](raw, 3.0, anchor, 0.25)
    same = raw.clone()
    same[:, :4] = 2 * softplus.bound[:, None] * softplus.weights / 3.0 - 0.25  # |start + raw| · unit
    expected = anchored_law(same, unit=3.0, anchor=anchor, start=0.25)
    z = torch.linspace(-3, 3, 13)
    assert_close(softplus.at(z), expected.at(z))


def test_without_an_anchor_the_location_is_the_middle_of_the_support(double):
    raw = torch.randn(5, 13, generator=torch.Generator().manual_seed(0))
    law = script("benchmarks/ablation.py")["softplus_law"](raw, 3.0, None, 0.25)
    assert_close(law.center, 3.0 * raw[:, -1])


def test_the_ablation_climbs_from_the_paper_to_the_anchored_law(tmp_path):
    ablation = script("benchmarks/ablation.py")
    words = ["--envs", "cliff,mdp3", "--steps", "5", "--batch", "8", "--seeds", "2"]
    ablation["main"]([*words, "--cells", str(tmp_path / "cells"), "--out", str(tmp_path)])
    rows = read(tmp_path / "ablation.csv")
    assert [row["form"] for row in rows] == [*ablation["LADDER"]] * 2
    assert {row["outputs"] for row in rows} == {"13"}
    assert all(float(row["cramer"]) > 0 for row in rows)


def test_the_calibration_study_writes_a_row_per_method_and_a_figure_per_environment(tmp_path):
    main = script("benchmarks/calibration.py")["main"]
    folders = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path), "--smoke"]
    main(["--envs", "cliff", "--methods", "nfdrl,dqn", *folders])
    main(["--envs", "cartpole", "--methods", "dqn", *folders])
    rows = read(tmp_path / "calibration.csv")
    assert [(row["env"], row["method"]) for row in rows] == [("cliff", "nfdrl"), ("cliff", "dqn"), ("cartpole", "dqn")]
    assert {row["played_episodes"] for row in rows} == {"4"}
    assert (tmp_path / "cliff.png").is_file()
    assert (tmp_path / "cartpole.png").is_file()


def test_the_figures_of_the_law_are_drawn(tmp_path):
    script("docs/law.py")["main"](tmp_path, Fit(5))
    for name in ("numbers", "anchors", "rare"):
        image = matplotlib.image.imread(tmp_path / f"{name}.png")
        assert image.shape[1] > 1_000
        assert image.std() > 0.02


def test_the_study_of_rates_measures_each_of_them(tmp_path, monkeypatch):
    path = tmp_path / "rates.json"
    words = ["--envs", "mdp2", "--rates", "1e-3", "3e-2", "--seeds", "0", "1", "--steps", "200", "--batch", "8"]
    found = []
    for flags in ([], ["--plain"]):
        monkeypatch.setattr("sys.argv", ["rates.py", *words, *flags, "--out", str(path)])
        script("benchmarks/rates.py")["main"]()
        found.append(json.loads(path.read_text())["rows"])
    slow, fast = found[0]
    assert (slow["rate"], fast["rate"], fast["seeds"]) == (1e-3, 3e-2, [0, 1])
    assert fast["cramer"] < slow["cramer"]  # 200 updates are few
    assert all(own["cramer"] != plain["cramer"] for own, plain in zip(*found, strict=True))


def test_the_study_of_engines_times_both(tmp_path, monkeypatch):
    path = tmp_path / "engines.json"
    words = ["--methods", "dqn", "umdqn", "--rounds", "1", "--seconds", "0", "--out", str(path)]
    monkeypatch.setattr("sys.argv", ["engines.py", *words])
    script("benchmarks/engines.py")["main"]()
    rows = json.loads(path.read_text())["rows"]
    assert [(row["method"], row["torso"]) for row in rows] == [
        *(("dqn", "numbers"), ("dqn", "states"), ("umdqn", "numbers"), ("umdqn", "states")),
    ]
    for row in rows:  # one round, so the ratio is that of its two times
        assert row["ratio"] == pytest.approx(row["graph, ms"] / row["compiled, ms"])


def test_the_cliff_s_study_knows_the_truth_and_how_little_few_walks_tell(tmp_path, monkeypatch):
    path, study = tmp_path / "cliff.json", script("benchmarks/risky_cliff.py")
    assert study["short_cvar"]([0.03] * 3, 1.0) == pytest.approx(-1.184170)  # by hand, in nfdrl.envs.cliff
    # All three falls cost about 0.9 more than arriving, of a tenth: 9 · √(3 · 0.03 · 0.97 / n) within 15 %.
    for n in (100, 400):
        assert study["standard_error"]([n] * 3, 1.0) == pytest.approx(9 * (3 * 0.03 * 0.97 / n) ** 0.5, rel=0.15)
    words = ["--methods", "dqn", "--risks", "mean", "--seeds", "0", "--steps", "1500", "--out", str(path)]
    monkeypatch.setattr("sys.argv", ["risky_cliff.py", *words])
    study["main"]()
    (row,) = json.loads(path.read_text())["rows"]
    assert row["short, true"] == pytest.approx(-1.1842)
    assert row["walks"] > 50
    assert row["short, error"] == pytest.approx(9 * (3 * 0.03 * 0.97 / row["walks"]) ** 0.5, rel=0.2)
    assert -1.5 < row["short, taken"] <= -0.4


def test_the_study_of_gradients_compares_adam_s_own_sizes_with_its_eps(tmp_path, monkeypatch):
    path = tmp_path / "gradients.json"
    words = ["--envs", "cartpole", "--methods", "dqn", "nfdrl", "--steps", "1060", "--out", str(path)]
    monkeypatch.setattr("sys.argv", ["gradients.py", *words])
    script("benchmarks/gradients.py")["main"]()
    rows = json.loads(path.read_text())["rows"]
    assert [row["layer"] for row in rows] == 2 * [
        "torso.layers.0.weight",
        "torso.layers.1.weight",
        "head.linear.weight",
    ]
    assert {row["updates"] for row in rows} == {30}
    for dqn, flow in zip(rows[:3], rows[3:], strict=True):
        assert 0 < flow["mean"] < dqn["mean"]
        assert 0 <= dqn["below eps"] < flow["below eps"] <= 1


def test_the_returns_that_came_are_sums_to_the_end_of_a_game():
    replay = Replay(20, Box(0, 1, (1,), np.float32), discount=0.5, rng=np.random.default_rng(0))
    nothing = np.zeros((1, 1), np.float32)
    replay.start(nothing)
    for reward, ends in ((1, False), (2, False), (4, True), (3, False)):
        end = np.array([ends])
        replay.add(np.array([0]), Step(np.array([reward]), end, np.array([False]), nothing, nothing, end))
    # 4, 2 + 4/2, 1 + 4/2; the row of the final observation has none, and the last game goes on.
    expected = [3, 4, 4, np.nan, np.nan, *[np.nan] * 15]
    found = script("benchmarks/pixels.py")["returns_of"](replay)
    assert np.array_equal(found, np.float32(expected), equal_nan=True)


def test_the_study_of_frames_compares_means_with_the_returns_that_came(tmp_path, monkeypatch):
    path = tmp_path / "pixels.json"
    words = ["--methods", "nfdrl", "--steps", "5000", "--updates", "2", "--every", "1", "--out", str(path)]
    monkeypatch.setattr("sys.argv", ["pixels.py", *words])
    script("benchmarks/pixels.py")["main"]()
    (row,) = json.loads(path.read_text())["rows"]
    assert row["method"] == "nfdrl"
    assert len(row["correlation"]) == 2
    assert all(-1 <= value <= 1 for value in row["correlation"])
    assert 0.5 < row["difference"][0] < 4  # random play loses, and no law knows it yet
