"""The scripts behind the documentation run in a small form, and what they add to the package does what it says."""

import csv
import runpy
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from nfdrl.laws.anchored import anchored_law
from nfdrl.laws.fitting import Fit

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


def test_the_exact_laws_are_the_fixed_point_of_the_targets_of_all_outcomes():
    lake = script("benchmarks/history.py")["Lake"]()
    target = lake.bootstrapped(None, exact=True)(lake.exact[64])
    assert target.shape == (44, 3 * 64)
    apart = np.abs(target.reshape(44, 64, 3) - lake.exact[64][:, :, None]).mean((1, 2))  # Wasserstein distances
    assert apart.max() < 0.01
    sampled = lake.bootstrapped(np.random.default_rng(0), exact=True)
    means = np.mean([sampled(lake.exact[64]).mean(1) for _ in range(400)], 0)
    assert np.abs(means - lake.exact[64].mean(1)).max() < 0.05
