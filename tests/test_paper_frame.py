"""Every experiment runs in its smallest form and leaves a figure and valid numbers."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from nfdrl.cli import main
from nfdrl.envs.toy import TOY_MDPS
from nfdrl.errors import NfdrlError
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.quantile import QuantileLaw
from nfdrl.paper import load
from nfdrl.paper.architecture import positions
from nfdrl.paper.base import Experiment, Result, run_experiment
from nfdrl.progress import Progress
from nfdrl.reports import ROW_KEYS, plain_row
from nfdrl.style import draw_law, draw_truth, figure

OWN = ["architecture", "params", "alignment", "c51-projection", "quantile-blur", "theory"]
FILES = {"figure.png", "figure.svg", "metrics.json"}


def run_in_process(name, out):
    assert main(["paper", name, "--smoke", "--out", str(out)]) == 0
    return json.loads((out / "metrics.json").read_text())


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Folder and metrics of an experiment in its smallest form, run once."""
    found = {}

    def run(name):
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            found[name] = folder, run_in_process(name, folder)
        return found[name]

    return run


@pytest.mark.parametrize("name", OWN)
def test_an_experiment_leaves_its_three_files_and_nothing_else(smoke, name):
    folder, metrics = smoke(name)
    assert {file.name for file in folder.iterdir()} == FILES
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "figure.svg").read_text()
    assert metrics["experiment"] == name
    assert metrics["seed"] == 0
    assert metrics["smoke"] is True
    assert metrics["seconds"] > 0
    assert {"version", "date", "command", "hardware"} <= metrics.keys()
    assert metrics["rows"]
    assert all(set(ROW_KEYS) <= row.keys() for row in metrics["rows"])


def test_the_command_in_metrics_reproduces_the_rows(smoke, tmp_path):
    _, metrics = smoke("alignment")
    words = metrics["command"].split()
    words[words.index("--out") + 1] = str(tmp_path)
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "metrics.json").read_text())["rows"] == metrics["rows"]


def test_distances_of_one_hot_spikes_are_the_printed_401_and_420(smoke):
    rows = {row["claim"]: row for row in smoke("theory")[1]["rows"]}
    assert rows["near spikes δ(−10), δ(−9)"]["measured"] == 401
    assert rows["far spikes δ(−10), δ(10)"]["measured"] == 420


def test_theory_tells_claims_that_hold_from_those_that_do_not(smoke):
    holds = {row["claim"]: row["holds"] for row in smoke("theory")[1]["rows"]}
    assert holds["D(w, u) ≤ D(w, v) + D(v, u)"]
    assert holds["one transition contracts D by √γ"]
    assert holds["D² has unbiased sample gradients"]
    assert holds["Σ(w−v)²|y−y′| bounds ℓ₂² from above"]
    assert not holds["D, rooted, has unbiased sample gradients"]
    assert not holds["the Bellman operator contracts D (two rewards)"]
    assert holds["the Bellman operator contracts exact Cramér (two rewards)"]
    assert not holds["smoothed D keeps growing with the gap (fixed grid)"]


def test_c51_splits_a_return_halfway_between_two_atoms_evenly(smoke):
    rows = [row for row in smoke("c51-projection")[1]["rows"] if row["method"] == "c51" and row["return"] == 1.5]
    assert rows[0]["masses"] == [0, 0.5, 0.5, 0, 0, 0]
    assert rows[0]["std"] == pytest.approx(0.5)


def test_four_components_have_as_many_outputs_as_thirteen_atoms(smoke):
    rows = [row for row in smoke("params")[1]["rows"] if row["method"] == "crossing" and row["size"] == 4]
    assert [row["crossing"] for row in rows] == [13, 13, 13]
    assert all(row["printed"] == 11 for row in rows)


def test_a_failed_experiment_leaves_its_folder_unchanged(tmp_path):
    def fail(result):
        raise RuntimeError("no figure")

    broken = Experiment("broken", "", lambda *_: Result([]), fail)
    (tmp_path / "metrics.json").write_text("old")
    with pytest.raises(RuntimeError):
        run_experiment(broken, 0, True, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.json"]
    assert (tmp_path / "metrics.json").read_text() == "old"


def test_rows_become_plain_json_values(tmp_path):
    row = plain_row({"state": np.int64(3), "value": torch.tensor([1.0, float("nan")]), "on": True, "x": float("inf")})
    assert row == {"method": None, "state": 3, "action": None, "value": [1.0, None], "on": True, "x": None}


def test_progress_yields_every_item_with_and_without_a_bar():
    for enabled in (False, True):
        with Progress(enabled=enabled) as progress:
            assert list(progress.track(iter("abc"), "letters")) == ["a", "b", "c"]


def test_an_unknown_experiment_suggests_the_nearest_name():
    with pytest.raises(NfdrlError, match="did you mean 'theory'"):
        load("theorie")


@pytest.mark.parametrize("view", ["density", "cdf", "quantile"])
def test_a_truth_of_atoms_and_gaussians_is_drawn_in_every_view(view):
    truth = MixtureLaw(*(torch.tensor(t, dtype=torch.float64) for t in ([0.5, 0.5], [0.0, 1.0], [0.0, 0.3])))
    made, axes = figure(4, 3)
    draw_truth(axes[0, 0], truth, view)
    assert isinstance(made, Figure)
    assert axes[0, 0].has_data()


def test_drawing_the_density_of_a_law_without_one_is_refused():
    _, axes = figure(4, 3)
    with pytest.raises(NfdrlError, match="no density"):
        draw_law(axes[0, 0], QuantileLaw(torch.zeros(3)), "qr-dqn", "density")


def test_a_state_is_drawn_in_the_column_of_its_distance_from_the_start():
    assert [x for x, _ in positions(TOY_MDPS["mdp3"]()).values()] == [0, 1, 2, 3]
    assert positions(TOY_MDPS["mdp2"]()) == {0: (0, 0), 1: (1, 0.5), 2: (1, -0.5)}
