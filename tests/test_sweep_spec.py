"""What a spec means, what it may not say, and what a trial does without Ray."""

import io
import json
import os
import socket
import sys
import threading
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from rich.console import Console

from nfdrl import Agent, cli
from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.comparison import DISTANCES
from nfdrl.runs.claim import claimed
from nfdrl.sweeps import trial
from nfdrl.sweeps.board import Board, glimpse
from nfdrl.sweeps.driver import Place, demands, started
from nfdrl.sweeps.spec import SHIPPED, check_trials, find_spec, read_spec, select
from nfdrl.sweeps.trial import Resources, TrainTrial, attempt, check_begun, ended

TINY = """
methods = ["dqn"]
envs = ["CartPole-v1"]
steps = 300
evaluate = 2
checkpoint_every = 100
set.learning_starts = 100
set.report_every = 50
set.torso.mlp = [8]
"""
TRUTH = """
kind = "truth"
methods = ["c51[atoms=13]"]
envs = ["mdp2"]
updates = 20
batch_size = 16
"""


def spec_of(tmp_path, text):
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return read_spec(path)


def trials_of(tmp_path, text):
    found = spec_of(tmp_path, text).trials()
    check_trials(found)
    return found


def test_a_spec_stands_for_every_combination_once(tmp_path):
    found = trials_of(
        tmp_path,
        """
        methods = ["dqn", { id = "c51[atoms=13]", seeds = [0, 7], set.learning_rate = 1e-4 }]
        envs = ["CartPole-v1", { id = "nfdrl/RiskyCliff-v0", steps = 200, set.discount = 1.0 }]
        seeds = [0, 1, 7]
        steps = 100
        set.risk = "cvar:0.5"
        grid.n_step = [1, 3]
        grid.torso.mlp = [[8], [8, 8]]
        """,
    )
    assert len(found) == len({one.name for one in found}) == 2 * 4 * (3 + 2)
    assert [one.seed for one in found] == sorted(one.seed for one in found)
    by_name = {one.name: one for one in found}
    one = by_name["nfdrl-RiskyCliff-v0/c51-atoms=13/n_step=3-torso.mlp=-8-8/seed-7"]
    settings = one.settings()
    assert (settings["steps"], settings["risk"], settings["seed"]) == (200, "cvar:0.5", 7)
    train = settings["train"]
    assert (train["discount"], train["n_step"], train["learning_rate"]) == (1.0, 3, 1e-4)
    assert train["torso"]["mlp"] == [8, 8]
    assert settings["method"]["settings"]["atoms"] == 13
    assert by_name["CartPole-v1/dqn/n_step=1-torso.mlp=-8/seed-1"].steps == 100


def test_a_trial_learns_at_the_rate_of_an_agent_in_its_environment(tmp_path):
    for one in trials_of(tmp_path, TINY.replace('"CartPole-v1"', '"CartPole-v1", "MinAtar/Breakout-v1"')):
        agent = Agent(one.method, one.env)
        assert one.settings()["train"]["learning_rate"] == agent.config.learning_rate
        assert agent.trainer.config == agent.config


def test_the_spec_in_the_docs_is_valid(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "sweeps.md").read_text()
    found = spec_of(tmp_path, page.partition("```toml\n")[2].partition("```")[0]).trials()
    assert len(found) == 4 * (5 + 5 + 3 + 3 + 3 + 3)  # four combinations; LunarLander and IQN have three seeds
    assert {one.risk for one in found} == {"mean", "cvar:0.1"}


def test_a_preset_file_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "best.toml").write_text("set.n_step = 7\n")
    (one,) = trials_of(tmp_path, TINY + 'preset = "best.toml"')
    monkeypatch.chdir("/")
    assert one.settings()["train"]["n_step"] == 7


def test_the_order_of_trials_can_be_chosen(tmp_path):
    text = 'methods = ["dqn", "c51"]\nenvs = ["CartPole-v1"]\nsteps = 9\nseeds = 2\norder = '
    by_method = [(one.method, one.seed) for one in trials_of(tmp_path, text + '["method", "seed"]')]
    assert by_method == [("dqn", 0), ("dqn", 1), ("c51", 0), ("c51", 1)]
    by_seed = [(one.method, one.seed) for one in trials_of(tmp_path, text + '["seed"]')]
    assert by_seed == [("dqn", 0), ("c51", 0), ("dqn", 1), ("c51", 1)]


@pytest.mark.parametrize(
    "path", sorted(set(SHIPPED.glob("*.toml")) - set(SHIPPED.glob("tune*"))), ids=lambda path: path.stem
)
def test_every_spec_that_ships_is_valid(path):
    found = read_spec(find_spec(path.stem)).trials()
    for one in found:  # every method and setting exists; environments need not be installed
        assert one.parts() if isinstance(one, TrainTrial) else one.settings()


def test_the_table_of_the_paper_is_complete():
    spec = read_spec(find_spec("paper-atari5"))
    found = spec.trials()
    assert len(found) == 5 * 9 * 5
    assert {one.steps for one in found} == {10_000_000}
    (_, memory), *_ = demands(found[:1], spec.resources)
    assert 7e9 < memory < 9e9  # a replay of a million transitions


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sedes = 3", "unknown key of spec.toml 'sedes': did you mean 'seeds'?"),
        ('seeds = "x"', "spec.toml: seeds cannot be 'x': it must be an integer"),
        ("seeds = 0", "seeds must be a number of at least 1 or a list, got 0"),
        ("seeds = [-1]", "seed must be a whole number from 0"),
        ("steps = 0", "CartPole-v1/dqn/seed-0: steps must be at least 1, got 0"),
        ('set.lr = "x"', "CartPole-v1/dqn/seed-0: unknown setting 'lr'"),
        ("set = 3", "set must be a table of settings, got 3"),
        ("set.n_step = 2020-01-01", "n_step cannot be datetime.date(2020, 1, 1): it must be a number"),
        ('set.risk = "cvra"', "CartPole-v1/dqn/seed-0: unknown risk 'cvra': did you mean 'cvar'?"),
        ("grid.n_step = 3", "grid.n_step must be a list of values, got 3"),
        ("grid.n_step = [3, 3]", "grid.n_step must not have a value twice, got [3, 3]"),
        ('preset = "minatari"', "unknown preset 'minatari': did you mean 'minatar'?"),
        ("resources.cpu = 1", "unknown key of resources of spec.toml 'cpu': did you mean 'cpus'?"),
        ("resources.cpus = 0", "resources of spec.toml: cpus must be positive, got 0"),
        ("resources = 1", "resources of spec.toml must be a table, got 1"),
        (
            "batch_size = 32",
            "batch_size means nothing in a spec of kind 'train': settings of training are written set.",
        ),
        ('kind = "truth"', "spec.toml: steps means nothing in a spec of kind 'truth'"),
        ('order = ["seeds"]', "spec.toml: unknown order 'seeds': did you mean 'seed'?"),
        ("evaluate_every = 5\nevaluate = 0", "evaluate_every needs evaluate"),
        ("x =", "is not valid TOML"),
    ],
)
def test_a_mistake_in_a_spec_is_named_in_one_line(text, said, tmp_path):
    key = text.partition(" ")[0]
    kept = [
        line
        for line in TINY.splitlines()
        if not line.startswith((f"{key} ", "evaluate " if "evaluate" in key else "#"))
    ]
    kept = [line for line in kept if key != "set" or not line.startswith("set.")]
    with pytest.raises(NfdrlError) as refused:
        trials_of(tmp_path, "\n".join([text, *kept]))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value).removesuffix("\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('methods = "dqn"\nenvs = []', "methods of spec.toml must be a list of words or tables, got 'dqn'"),
        ('methods = [{}]\nenvs = ["CartPole-v1"]', "methods[0] of spec.toml has no id"),
        (
            'methods = ["dqn"]\nenvs = [{ id = "x", stepz = 3 }]',
            "unknown key of envs[0] of spec.toml 'stepz': did you mean",
        ),
        ('methods = ["dqn"]\nenvs = ["CartPole-v1"]', "steps are missing: give them to CartPole-v1"),
        ('methods = ["dqn", "dqn"]\nenvs = ["CartPole-v1"]\nsteps = 5', "2 trials would share the folder"),
        ("methods = []\nenvs = []", "methods and envs must name at least one each"),
        ('kind = "truth"\nmethods = ["dqn"]\nenvs = ["mdp9"]', "mdp9/dqn/seed-0: unknown environment 'mdp9'"),
        (
            'kind = "truth"\nmethods = ["dqn"]\nenvs = [{ id = "mdp2", steps = 5 }]',
            "spec.toml: steps means nothing in a spec of kind 'truth'",
        ),
    ],
)
def test_what_is_missing_from_a_spec_is_named(text, said, tmp_path):
    with pytest.raises(NfdrlError) as refused:
        trials_of(tmp_path, text)
    assert said in str(refused.value)


def test_a_spec_that_is_not_there_is_an_error_with_the_ones_that_are(capsys):
    assert cli.main(["sweep", "nonesuch.toml"]) == 2
    said = capsys.readouterr().err
    assert "there is no spec 'nonesuch.toml'" in said
    assert "control, minatar, minatar-short, paper-atari5, smoke, truth" in said


def test_a_trial_is_finished_once_and_keeps_its_settings(tmp_path):
    (one,) = trials_of(tmp_path, TINY)
    out = tmp_path / "out"
    assert ended(one, out) is None
    first = attempt(one, out, Resources())
    assert first["result"]["episodes"] == 2
    assert ended(one, out) == json.loads((out / one.name / "result.json").read_text()) == first
    check_begun([one], out)
    for name, other in (("steps", 400), ("evaluate", 3), ("checkpoint_every", 50)):
        changed = [f"{name} = {other}" if line.startswith(f"{name} ") else line for line in TINY.splitlines()]
        with pytest.raises(NfdrlError, match=f"^{name} of CartPole-v1/dqn/seed-0 is {other} in the spec"):
            check_begun(trials_of(tmp_path, "\n".join(changed)), out)
    with pytest.raises(NfdrlError, match=r"train.torso.mlp of .* is \[16\] in the spec.*begun with \[8\]"):
        check_begun(trials_of(tmp_path, TINY.replace("[8]", "[16]")), out)
    check_begun(trials_of(tmp_path, TINY + "seeds = 3\ngrid.n_step = [1]"), out)  # new cells


def test_a_run_that_ended_before_its_result_was_written_is_not_run_again(tmp_path):
    (one,) = trials_of(tmp_path, TINY + "keep_replay = false")
    out = tmp_path / "out"
    first = attempt(one, out, Resources())
    weights = next((out / one.name).glob("checkpoints/step-*300/weights.safetensors"))
    before = weights.stat().st_mtime_ns
    (out / one.name / "result.json").unlink()
    assert attempt(one, out, Resources()) == first
    assert weights.stat().st_mtime_ns == before
    assert not list((out / one.name / "replay").glob("*"))
    assert cli.main(["evaluate", str(out / one.name), "--episodes", "1"]) == 0  # without its replay


def test_a_run_with_no_regular_checkpoint_begins_again(tmp_path):
    (one,) = trials_of(tmp_path, TINY)
    out = tmp_path / "out"
    expected = attempt(one, out, Resources())["result"]
    folder = out / one.name
    for name in ("result.json", "metrics.json"):
        (folder / name).unlink()
    for state in folder.glob("checkpoints/step-*/state.json"):
        content = json.loads(state.read_text())
        state.write_text(json.dumps(content | {"run": content["run"] | {"regular": False}}))
    again = attempt(one, out, Resources())["result"]
    assert {**again, "seconds": 0} == {**expected, "seconds": 0}


def test_a_truth_trial_is_a_cell_of_compare(tmp_path, capsys):
    (one,) = trials_of(tmp_path, TRUTH)
    out = tmp_path / "out"
    result = attempt(one, out, Resources())["result"]
    (cell,) = (out / "cells").glob("*.json")
    before = cell.stat().st_mtime_ns
    words = ["--envs", "mdp2", "--methods", "c51[atoms=13]", "--steps", "20", "--batch", "16", "--seeds", "1"]
    assert cli.main(["compare", *words, "--out", str(out)]) == 0
    (row,) = json.loads((out / "metrics.json").read_text())["rows"]
    assert row["cramer"] == pytest.approx(result["cramer"], rel=1e-12)
    assert cell.stat().st_mtime_ns == before
    with pytest.raises(NfdrlError, match=r"^updates of mdp2/c51-atoms=13/seed-0 is 30 in the spec"):
        check_begun(trials_of(tmp_path, TRUTH.replace("20", "30")), out)


HOLD = """
import sys
from pathlib import Path
from nfdrl.runs.claim import claimed
with claimed(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_an_attempt_waits_for_the_process_that_still_has_its_folder(tmp_path, monkeypatch):
    (one,) = trials_of(tmp_path, TINY)
    folder = tmp_path / "out" / one.name
    folder.mkdir(parents=True)
    with Popen([sys.executable, "-c", HOLD, str(folder)], stdin=PIPE, stdout=PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        monkeypatch.setattr(trial, "PATIENCE", 0.3)
        refused = attempt(one, tmp_path / "out", Resources())
        assert f"is in use by process {holder.pid} " in refused["error"]  # alive on this machine: no force takes it
        monkeypatch.setattr(trial, "PATIENCE", 60.0)
        threading.Timer(0.5, holder.stdin.close).start()
        assert "result" in attempt(one, tmp_path / "out", Resources())
    assert not (folder / "failed.json").exists()


def test_memory_is_that_of_the_replay_or_what_the_spec_says(tmp_path):
    text = TINY.replace("steps = 300", "steps = 30_000_000") + "set.buffer_size = "
    small, large = (demands(trials_of(tmp_path, text + size), Resources())[0][1] for size in ("1000", "30_000_000"))
    assert small >= 512 << 20
    assert large - small >= 30_000_000 * 4 * 4  # four numbers of four bytes each, and more
    (_, given), *_ = demands(trials_of(tmp_path, TINY), Resources(memory_gb=2.0))
    assert 2e9 <= given < 2.5e9


def test_cores_are_those_of_this_machine():
    with pytest.raises(NfdrlError, match="with an address"):
        Place("auto", 2)
    with pytest.raises(NfdrlError, match="cpus must be at least 1, got 0"):
        Place(None, 0)


@pytest.mark.parametrize("address", ["rubbish", "ray://", "ray://host", "host:port", "http://host:80", ""])
def test_an_address_that_names_no_machine_is_refused(address):
    with pytest.raises(NfdrlError, match=r"^address must be auto, HOST:PORT or ray://HOST:PORT, got"):
        Place(address)


@pytest.mark.parametrize("start", ["", "ray://"])
def test_an_address_where_nobody_listens_is_refused_before_ray_tries_for_minutes(start, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (tmp_path / "spec.toml").write_text(TINY)
    words = ["--out", str(tmp_path / "out"), "--address", f"{start}127.0.0.1:{port}"]
    assert cli.main(["sweep", str(tmp_path / "spec.toml"), *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"nfdrl: error: no Ray answers at '{start}127.0.0.1:{port}' (Connection refused)")
    assert said.count("\n") == 1


def test_a_ray_that_does_not_start_in_time_is_started_again_and_a_cluster_is_not(capsys):
    tried = []

    def start():
        tried.append(len(tried))
        if len(tried) < 3:
            raise TimeoutError("timed out\nduring startup")

    started(start, "on this machine", 5)
    assert tried == [0, 1, 2]
    assert capsys.readouterr().err == 2 * "nfdrl: Ray has not started yet, trying again: timed out during startup\n"
    tried.clear()
    with pytest.raises(NfdrlError, match="cannot be reached at 'here:1': timed out during startup"):
        started(start, "at 'here:1'", 1)
    assert tried == [0]


def test_ray_that_is_not_installed_is_named_with_its_extra_before_anything_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["sweep", "smoke", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said == "nfdrl: error: sweeps run on Ray, which is not installed: pip install nfdrl[sweep]\n"
    assert not (tmp_path / "out").exists()


def finished(folder, text, **result):
    """The folder of a sweep with one trial, which has ended; `main` then needs no Ray."""
    (folder / "spec.toml").write_text(text)
    (one,) = trials_of(folder, text)
    ended = folder / "out" / one.name / "result.json"
    ended.parent.mkdir(parents=True)
    numbers = {"mean": 9.0, "std": 0.5, "episodes": 2, "steps": 300, "seconds": 3.0, "resumed": []} | result
    ended.write_text(json.dumps({"trial": one.name, "result": numbers, "settings": one.settings(), "host": "here"}))
    return ["sweep", str(folder / "spec.toml"), "--out", str(folder / "out")], ended


def test_a_sweep_that_is_refused_leaves_the_table_as_it_was(tmp_path, capsys):
    command, ended = finished(tmp_path, TINY)
    assert main(command) == 0
    out = tmp_path / "out"
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert {path.name for path in before} == {"sweep.csv", "sweep.json"}
    with claimed(out):  # another driver
        assert main(command) == 2
    (ended.parent / "config.json").write_text('{"steps": 1}')  # other settings
    assert main(command) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert {path: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("kind", ["train", "truth"])
def test_a_result_with_any_other_field_is_shown_or_refused_in_one_line(kind, tmp_path, capsys):
    text = TINY if kind == "train" else 'kind = "truth"\nmethods = ["dqn"]\nenvs = ["mdp2"]\n'
    command, ended = finished(tmp_path, text, **({} if kind == "train" else dict.fromkeys(DISTANCES, 0.1)))
    told = json.loads(ended.read_text())
    for key in told["result"]:
        for value in (None, "x", [], {}, True, -1, 1e308, 10**400):
            ended.write_text(json.dumps(told | {"result": told["result"] | {key: value}}))
            code, said = main(command), capsys.readouterr().err
            assert (code, said.count("\n")) in ((0, 0), (2, 1)), (key, value, said)
    for content in ({}, {"result": 3}, {"result": {}}, {"result": {"seconds": 1}}, {"settings": 3, "result": {}}):
        ended.write_text(json.dumps(content))
        code, said = main(command), capsys.readouterr().err
        assert (code, said.count("\n")) in ((0, 0), (2, 1)), (content, said)


def test_a_table_that_cannot_be_written_does_not_end_the_sweep(tmp_path):
    out, said = tmp_path / "out", io.StringIO()
    out.write_text("in the way, as a full disk would be")
    board = Board(trials_of(tmp_path, TINY), out, {}, Console(file=said, width=200))
    board.tick()
    board.tick()
    assert said.getvalue().count("warning: the table cannot be written") == 1  # at most every few seconds
    out.unlink()
    board.write()
    assert (out / "sweep.csv").is_file()


def test_every_trial_stays_in_the_folder_of_the_sweep(tmp_path):
    text = TINY.replace("CartPole-v1", "\u73af\u5883")
    assert [one.name for one in spec_of(tmp_path, text).trials()] == ["_/dqn/seed-0"]


def test_the_board_knows_what_is_left(tmp_path):
    found = trials_of(tmp_path, TINY + "seeds = 4")
    out = tmp_path / "out"
    board = Board(found, out, {}, Console(file=io.StringIO()))
    assert board.seconds_left() is None
    board.end(found[0], {"result": {"seconds": 30.0, "mean": 1.0, "std": 0.0}})
    folder = out / found[1].name
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    (folder / "metrics.csv").write_text("step,steps_per_second,episode_return\n50,10,\n100,20,9.5\n150,2")
    assert glimpse(folder).step == 100  # the last whole line
    board.tick()
    assert board.seconds_left() == pytest.approx(0.1 * (200 + 300 + 300))  # 0.1 s per step, one at a time
    assert "1 done, 1 running, 2 waiting, 0 failed" in str(board._shown().renderables[0])
    board.end(found[1], {"error": "it broke"})
    board.write()
    rows = json.loads((out / "sweep.json").read_text())["trials"]
    assert [row["status"] for row in rows] == ["done", "failed", "unfinished", "unfinished"]


@pytest.mark.parametrize("width", [40, 70, 100])
def test_the_live_table_tells_trials_apart_in_a_narrow_terminal(width, tmp_path):
    found = trials_of(tmp_path, TINY + "seeds = 12")
    console = Console(file=io.StringIO(), width=width)
    board = Board(found, tmp_path / "out", {}, console)
    for one in found:
        (tmp_path / "out" / one.name).mkdir(parents=True)
        (tmp_path / "out" / one.name / ".lock").touch()
    board.tick()
    console.print(board._shown())
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    first = [line[: width // 2].split()[0] for line in lines if line.strip() and not line.startswith("0 done")]
    assert "".join(first[1:]) == "".join(one.name for one in found)  # below the heads, in one line each or in two


def test_an_estimate_covers_every_trial_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nfdrl.sweeps.estimate.SECONDS", 0.1)
    for text, trials in ((TINY + "seeds = 3", 3), (TRUTH + "seeds = 2", 2)):
        (tmp_path / "spec.toml").write_text(text)
        assert cli.main(["sweep", "spec.toml", "--estimate"]) == 0
        assert f"{trials} trials: " in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["spec.toml"]


def test_a_part_of_a_sweep_needs_nothing_that_only_the_rest_needs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nfdrl.sweeps.estimate.SECONDS", 0.1)
    (tmp_path / "spec.toml").write_text(TINY.replace('["CartPole-v1"]', '["CartPole-v1", "Missing-v1"]'))
    assert cli.main(["sweep", "spec.toml", "--estimate"]) == 2
    assert "Missing-v1" in capsys.readouterr().err
    assert cli.main(["sweep", "spec.toml", "--estimate", "--only", "CartPole-v1/*"]) == 0


def test_a_part_of_a_sweep_is_chosen_by_the_names_of_its_folders():
    trials = read_spec(find_spec("control")).trials()
    assert len(select(trials, ["CartPole-v1/*"])) == 7 * 5 + 3 * 3
    assert {trial.method for trial in select(trials, ["*/dqn/*", "*/iqn/*"])} == {"dqn", "iqn"}
    assert [trial.name for trial in select(trials, ["*/er-dqn/seed-4"])] == [
        trial.name for trial in trials if (trial.method, trial.seed) == ("er-dqn", 4)
    ]
    with pytest.raises(
        NfdrlError, match=r"^only 'dqn': no trial fits, they are named like 'CartPole-v1/nfdrl/seed-0'$"
    ):
        select(trials, ["CartPole-v1/*", "dqn"])
