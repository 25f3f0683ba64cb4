from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from nfdrl.cli import main

QUICK = ["--no-progress", "--set", "learning_starts=64", "batch_size=16", "report_every=50", "mlp=(16,16)"]


def train(out: Path, *words: str, settings: list[str] = QUICK) -> int:
    return main(["train", "--method", "nfdrl-e", "--env", "CartPole-v1", "--out", str(out), *words, *settings])


def test_a_run_leaves_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert train(out, "--steps", "150", "--evaluate", "2", "--seed", "4", "--tensorboard") == 0
    assert "over 2 episodes" in capsys.readouterr().out
    names = sorted(path.name for path in out.iterdir())
    assert names == ["checkpoints", "config.json", "metrics.csv", "metrics.json", "replay", "tensorboard"]
    config = json.loads((out / "config.json").read_text())
    assert (config["method"]["name"], config["env"], config["steps"], config["seed"]) == (
        "nfdrl-e",
        "CartPole-v1",
        150,
        4,
    )
    assert config["train"]["batch_size"] == 16
    with (out / "metrics.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == [50, 100, 150]
    summary = json.loads((out / "metrics.json").read_text())
    assert len(summary["evaluation"]["returns"]) == 2
    assert summary["training"]["updates"] > 0

    assert main(["evaluate", str(out), "--episodes", "2", "--out", str(tmp_path / "e.json")]) == 0
    assert json.loads((tmp_path / "e.json").read_text())["returns"] == summary["evaluation"]["returns"]
    assert main(["evaluate", str(out), "--episodes", "2", "--risk", "cvar:0.2"]) == 0
    assert main(["evaluate", str(out), "--out", str(tmp_path / "e.json")]) == 2
    assert "exists" in capsys.readouterr().err


def test_settings_may_be_spread_over_several_options(tmp_path: Path) -> None:
    spread = ["--set", "discount=0.9", "--steps", "20", "--evaluate", "0", "--set=double_q=false"]
    assert train(tmp_path, *spread) == 0  # and a third in QUICK
    config = json.loads((tmp_path / "config.json").read_text())["train"]
    assert (config["discount"], config["double_q"], config["batch_size"]) == (0.9, False, 16)


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("auto", "compiled engine: layers and loss in NumPy and Numba on the CPU"),
        ("graph", "graph engine: asked for"),
    ],
)
def test_the_first_line_says_which_engine_runs_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str, line: str
) -> None:
    assert train(tmp_path, "--steps", "100", "--evaluate", "0", settings=[*QUICK, f"engine={engine}"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == line
    assert main(["train", "--resume", str(tmp_path), "--steps", "120", "--no-progress"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == line


def test_a_run_is_not_overwritten_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--steps", "100", "--evaluate", "0") == 0
    (tmp_path / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert train(tmp_path, "--steps", "100") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--resume" in error
    assert "--overwrite" in error
    assert main(["train", "--resume", str(tmp_path), "--overwrite"]) == 2
    assert main(["train", "--resume", str(tmp_path), "--steps", "80"]) == 2
    assert main(["train", "--resume", str(tmp_path), "--seed", "5"]) == 2
    assert "keeps its own seed" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert train(tmp_path, "--steps", "60", "--evaluate", "0", "--overwrite") == 0
    assert json.loads((tmp_path / "metrics.json").read_text())["step"] == 60
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_run_is_resumed(tmp_path: Path) -> None:
    assert train(tmp_path, "--steps", "100", "--evaluate", "0") == 0
    assert main(["train", "--resume", str(tmp_path), "--steps", "250", "--no-progress"]) == 0
    with (tmp_path / "metrics.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == [50, 100, 150, 200, 250]
    assert json.loads((tmp_path / "metrics.json").read_text())["step"] == 250


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert train(tmp_path / name, "--steps", "120", "--evaluate", "0") == 0
    first, second = (
        load_file(tmp_path / name / "checkpoints" / "step-000000000120" / "weights.safetensors") for name in ("a", "b")
    )
    assert first.keys() == second.keys()
    assert all(bool((value == second[name]).all()) for name, value in first.items())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "nfdrl-x"], "did you mean 'nfdrl-s'"),
        (["--env", "CartPol-v1"], "did you mean 'CartPole-v1'"),
        (["--env", "Pendulum-v1"], "discretise"),
        (["--env", "no_such_module:Env-v0"], "no_such_module"),
        (["--preset", "papr"], "did you mean 'paper'"),
        (["--steps", "0"], "steps must be at least 1"),
        (["--seed", "-1"], "seed"),
        (["--risk", "cvar:2"], "alpha"),
        (["--device", "gpu"], "unknown device"),
        (["--evaluate", "-1"], "evaluate"),
        (["--set", "batch_siz=3"], "did you mean 'batch_size'"),
        (["--set", "batch_size=big"], "batch_size cannot be 'big'"),
        (["--set", "batch_size=0.5"], "cannot be '0.5'"),
        (["--set", "batch_size=0"], "at least 1"),
        (["--set", "buffer_size=2"], "buffer_size must be at least"),
        (["--set", "discount=2"], r"\[0, 1\]"),
        (["--set", "batch_size"], "NAME=VALUE"),
        (["--resume", "nowhere"], "keeps its own out"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "--out", str(out), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("nfdrl: error: ")
    assert error.count("\n") == 1
    assert re.search(message, error), error
    assert not out.exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert train(tmp_path / "file" / "run", "--steps", "10") == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_dead_network_is_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ruinous = ["--set", "learning_starts=64", "learning_rate=10", "mlp=(4,4)", "--evaluate", "0", "--no-progress"]
    assert train(tmp_path / "run", "--method", "dqn", "--steps", "800", settings=ruinous) == 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line for line in lines if "no unit of the layer" in line] == lines[-1:]
    assert lines[-1].startswith("nfdrl: at step 800 ")
