"""The command line teaches, refuses in one line, and never shows a traceback for a user's mistake."""

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version

import pytest

import nfdrl
from nfdrl import cli
from nfdrl.cli import main
from nfdrl.cli.paper import Paper
from nfdrl.paper import EXPERIMENTS


def shell(*words):
    return subprocess.run([sys.executable, "-m", "nfdrl", *words], capture_output=True, text=True, check=False)


def refused(capsys, *words):
    """The one line on stderr of a command that exits 2."""
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("nfdrl: error: ")
    assert error.count("\n") == 1
    return error


def test_version_is_that_of_the_package():
    done = shell("--version")
    assert (done.returncode, done.stdout) == (0, f"nfdrl {version('nfdrl')}\n")


def test_help_names_each_verb_with_an_example():
    done = shell("--help")
    assert done.returncode == 0
    assert all(words in done.stdout for words in ("nfdrl paper list", "nfdrl bench losses --out", "--version"))


@pytest.mark.parametrize(("verb", "default"), [("paper", "out/paper/NAME"), ("bench", "out/bench")])
def test_help_of_a_verb_shows_an_example_and_the_defaults(capsys, verb, default):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert f"`nfdrl {verb}" in text
    assert "(default: 0)" in text
    assert default in text


def test_an_unknown_name_suggests_the_nearest(capsys):
    assert "did you mean 'theory'" in refused(capsys, "paper", "theroy")
    assert "did you mean 'losses'" in refused(capsys, "bench", "lossess")


def test_an_unknown_name_exits_2_without_traceback():
    done = shell("paper", "theroy")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [["papr"], ["paper"], ["paper", "theory", "--sed", "1"], ["paper", "theory", "--seed", "x"]]
)
def test_a_malformed_command_exits_2(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_list_names_every_experiment(capsys):
    assert main(["paper", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(f" {name} " in line for line in lines) for name in EXPERIMENTS)


@pytest.mark.parametrize("words", [["paper", "architecture"], ["bench", "losses"]])
def test_an_out_that_is_a_file_is_refused_before_any_work(capsys, tmp_path, words):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "cannot write" in refused(capsys, *words, "--smoke", "--out", str(blocked / "inside"))


def test_all_runs_every_experiment(capsys, tmp_path, monkeypatch):
    few = {name: EXPERIMENTS[name] for name in ("architecture", "alignment")}
    monkeypatch.setattr("nfdrl.cli.paper.EXPERIMENTS", few)
    assert main(["paper", "all", "--smoke", "--out", str(tmp_path)]) == 0
    assert "alignment" in capsys.readouterr().out
    for name in few:
        assert json.loads((tmp_path / name / "metrics.json").read_text())["experiment"] == name


def test_an_interrupt_exits_130(capsys, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Paper, "run", interrupted)
    assert main(["paper", "list"]) == cli.INTERRUPTED == 130
    assert capsys.readouterr().err == "nfdrl: interrupted\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "agent"
    with nfdrl.Agent("dqn", "CartPole-v1", config=nfdrl.TrainConfig(buffer_size=100)) as agent:
        agent.save(folder)
    return folder


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        ("", 0, ""),  # a terminal that has no ±
        (">&-", 0, ""),
        (">&- 2>&-", 0, ""),
        (">/dev/full", 1, "nfdrl: error: No space left on device\n"),
    ],
)
def test_a_result_is_written_though_it_cannot_be_printed(where, code, said, saved, tmp_path):
    out = tmp_path / "out.json"
    words = [sys.executable, "-m", "nfdrl", "evaluate", str(saved), "--episodes", "1", "--out", str(out)]
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    line = ["sh", "-c", f"{shlex.join(words)} {where}"]
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)
    assert len(json.loads(out.read_text())["returns"]) == 1


@pytest.mark.parametrize(("where", "said"), [(">/dev/full", "No space left on device"), ("| true", "Broken pipe")])
def test_help_that_cannot_be_printed_ends_in_one_line(where, said):
    line = f"{shlex.join([sys.executable, '-m', 'nfdrl', 'train', '--help'])} {where}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.stderr == f"nfdrl: error: {said}\n"
