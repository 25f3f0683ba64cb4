"""Every experiment runs in its smallest form and leaves a figure and valid numbers."""

import json
import runpy
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.envs.toy import TOY_MDPS
from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.quantile import QuantileLaw
from nfdrl.paper import literal_path, load
from nfdrl.paper.architecture import positions
from nfdrl.paper.base import Experiment, Result, run_experiment
from nfdrl.progress import Progress
from nfdrl.reports import ROW_KEYS, plain_row, provenance, write_report
from nfdrl.settings import apply_settings, changed
from nfdrl.style import draw_law, draw_truth, figure
from nfdrl.training.config import TrainConfig
from nfdrl.training.presets import find_preset

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
    assert holds["the practical loss keeps growing with the gap (at samples)"]
    assert not holds["the practical loss keeps growing with the gap (at samples, wide laws)"]
    assert not holds["D, rooted: sampled transitions are fitted by their law"]
    assert all(row["measured"] is not None and row["threshold"] for row in smoke("theory")[1]["rows"])


def test_every_step_from_the_paper_to_ours_is_measured(smoke):
    rows = smoke("literal")[1]["rows"]
    found = list(literal_path.trials())
    assert [trial.step.label for trial in found] == [row["step"] for row in rows]
    assert [trial.step.tabular for trial in found] == [row["mdp2_below"] is not None for row in rows]
    assert [trial.step.played for trial in found] == [row["cartpole_return"] is not None for row in rows]


def test_the_way_from_the_paper_begins_at_the_literal_preset_and_ends_at_our_defaults():
    kept = [trial for trial in literal_path.trials() if not trial.step.aside]
    preset, scaled = find_preset("paper-literal"), literal_path.SCALED
    assert (kept[0].method, kept[0].config) == (
        preset.adapt(METHODS["nfdrl-s"]),
        changed(preset.config, scaled, "run"),
    )
    assert (kept[-1].method, kept[-1].config) == (METHODS["nfdrl-s"], changed(TrainConfig(), scaled, "run"))
    for before, after in pairwise(kept):
        assert (before.method, before.config) != (after.method, after.config)


def test_the_table_of_deviations_says_what_the_results_say():
    root = Path(__file__).parents[1]
    written = runpy.run_path(str(root / "docs" / "deviations.py"))
    assert (root / "docs" / "deviations.md").read_text() == written["page"](), "run: python docs/deviations.py"
    assert all(row["step"] in written["table"]() for row in written["found"]()[0]["rows"])


def test_an_interrupted_experiment_keeps_its_parts(smoke, tmp_path, monkeypatch):
    folder, metrics = smoke("literal")
    shutil.copytree(folder / "cells", tmp_path / "cells")
    monkeypatch.setattr("nfdrl.paper.literal.learn_policy_laws", None)
    monkeypatch.setattr("nfdrl.paper.literal.learn_pair", None)
    monkeypatch.setattr("nfdrl.paper.literal.Agent", None)
    assert run_in_process("literal", tmp_path)["rows"] == metrics["rows"]


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
    write_report(tmp_path, provenance("an earlier experiment"))
    before = (tmp_path / "metrics.json").read_bytes()
    with pytest.raises(RuntimeError):
        run_experiment(broken, 0, True, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.json"]
    assert (tmp_path / "metrics.json").read_bytes() == before


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


def test_the_literal_preset_trains_on_cartpole():
    preset = find_preset("paper-literal")
    words = ["learning_starts=12", "buffer_size=400", "batch_size=4", "num_envs=1"]
    config, method = apply_settings(words, preset.config, preset.adapt(METHODS["nfdrl-s"]))
    agent = Agent(method, "CartPole-v1", seed=0, config=config, device="cpu")
    agent.learn(40, progress=False)
    assert agent.trainer.learner.updates > 0
    assert agent.trainer.learner.skipped == 0
