"""A run from Python: everything the command line does with one."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from safetensors.torch import load_file

import nfdrl
from nfdrl.agent import Agent
from nfdrl.errors import NfdrlError
from nfdrl.runs import layout
from nfdrl.runs.reading import read_run
from nfdrl.runs.session import Interrupted, Run
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig
from nfdrl.training.trackers import read_evaluations

# Schedules that do not depend on the length of the run: half a run is then the first half of a whole one.
STEADY = TrainConfig(
    learning_starts=64,
    batch_size=8,
    report_every=100,
    buffer_size=400,
    learning_rate_decay="constant",
    epsilon_start=0.1,
    epsilon_end=0.1,
    torso=TorsoSizes(mlp=(8, 8)),
)


def new(folder: Path, method: str = "c51", **settings: Any) -> Run:
    return Run(folder, method, "CartPole-v1", seed=2, config=STEADY, **{"checkpoint_every": 250, **settings})


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return [
            {name: cell for name, cell in row.items() if name != "steps_per_second"} for row in csv.DictReader(file)
        ]


def assert_same_runs(first: Path, second: Path) -> None:
    assert rows_of(first) == rows_of(second)
    ours, theirs = (load_file(layout.checkpoints(run)[0] / "weights.safetensors") for run in (first, second))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new(tmp_path_factory.mktemp("runs") / "whole").train(1000, progress=False).folder


def test_a_run_writes_what_the_command_line_writes(whole: Path) -> None:
    names = sorted(path.name for path in whole.iterdir())
    assert names == ["checkpoints", "config.json", "metrics.csv", "metrics.json", "replay"]
    record = read_run(whole)
    assert (record.method, record.env, record.seed, record.step) == ("c51", "CartPole-v1", 2, 1000)
    assert Agent.load(whole).step == 1000


def test_a_run_resumed_with_more_steps_is_the_undisturbed_run(whole: Path, tmp_path: Path) -> None:
    new(tmp_path).train(500, progress=False)
    resumed = nfdrl.Run.resume(tmp_path)
    assert resumed.agent.step == 500
    assert resumed.train(1000, progress=False).summary["step"] == 1000
    assert_same_runs(whole, tmp_path)
    assert read_run(tmp_path).resumed == [500]


def test_a_run_extended_in_the_same_process_is_the_undisturbed_run(whole: Path, tmp_path: Path) -> None:
    run = new(tmp_path).train(500, progress=False)
    assert run.train(1000, progress=False).agent.step == 1000
    assert_same_runs(whole, tmp_path)
    assert read_run(tmp_path).resumed == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_run_stopped_by_a_signal_resumes_to_its_own_number_of_steps(
    number: signal.Signals, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(number, signal.default_int_handler)  # a shell's background jobs ignore it
    run = new(tmp_path)
    stream = run.agent.trainer.stream
    step = stream.step
    taken = 0

    def interrupted(action: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken == 600:
            os.kill(os.getpid(), number)
        return step(action)

    monkeypatch.setattr(stream, "step", interrupted)
    try:
        with pytest.raises(Interrupted, match=f"step 600 by {number.name}; resume with: nfdrl train --resume"):
            run.train(1000, progress=False)
    finally:
        signal.signal(number, before)
    assert not (tmp_path / "metrics.json").exists()
    assert Run.resume(tmp_path).agent.step == 600
    assert Run.resume(tmp_path, exact=True).train(progress=False).agent.step == 1000
    assert_same_runs(whole, tmp_path)


def test_evaluations_during_a_run_change_no_bit_and_survive_a_resume(whole: Path, tmp_path: Path) -> None:
    settings = {"evaluate": 2, "evaluate_every": 200}
    new(tmp_path / "watched", **settings).train(1000, progress=False)
    assert_same_runs(whole, tmp_path / "watched")
    expected = read_evaluations(tmp_path / "watched" / "evaluations.csv")
    assert [row.step for row in expected] == [200, 400, 600, 800, 1000]
    best = max(expected, key=lambda row: row.mean)
    assert Agent.load(tmp_path / "watched" / "best").step == best.step
    # As if the process had died after another evaluation: its line is not from the checkpoint's past.
    new(tmp_path / "killed", **settings).train(500, progress=False)
    with (tmp_path / "killed" / "evaluations.csv").open("a") as file:
        file.write("700,2,9000.0,0.0,9000.0,9000.0,9.0,True\n")
    resumed = Run.resume(tmp_path / "killed").train(1000, progress=False)
    assert read_evaluations(tmp_path / "killed" / "evaluations.csv") == expected
    assert_same_runs(whole, tmp_path / "killed")
    assert resumed.upkeep.evaluate_every == 200
    assert Agent.load(tmp_path / "killed" / "best").step == best.step


def test_a_run_stops_at_a_return_and_can_be_resumed(tmp_path: Path) -> None:
    run = new(tmp_path, evaluate=2, evaluate_every=100, stop_at=1.0).train(1000, progress=False)
    assert run.agent.step == run.summary["step"] == 100
    assert Run.resume(tmp_path, stop_at=1e9).train(progress=False).agent.step == 1000
    seen: list[int] = []

    def stop(agent: Agent, event: Any) -> bool:
        seen.append(event.step)
        return agent.step < 150

    assert new(tmp_path / "own").train(1000, progress=False, callbacks=[stop]).agent.step == seen[-1] < 1000
    with pytest.raises(NfdrlError, match="evaluate_every needs evaluate"):
        new(tmp_path / "none", evaluate_every=100)


@pytest.mark.parametrize(("every", "times"), [(250, 0), (5, 1)])  # a pole takes eight steps to fall
def test_checkpoints_that_cut_off_every_episode_are_mentioned_once(
    every: int, times: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new(tmp_path, checkpoint_every=every).train(500 if every > 8 else 30, progress=False)
    assert capsys.readouterr().err.count("let --checkpoint-every be larger") == times


def test_a_folder_that_holds_a_run_is_refused_and_left_as_it_is(whole: Path, tmp_path: Path) -> None:
    files = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    with pytest.raises(NfdrlError, match=r"holds a run: resume it .*Run.resume.*overwrite=True"):
        new(whole)
    with pytest.raises(NfdrlError, match="already has 1,000 steps: ask for more"):
        Run.resume(whole).train(progress=False)
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == files
    with pytest.raises(NfdrlError, match=r"no run in .*config.json is missing"):
        Run.resume(tmp_path)


def test_a_new_run_is_written_only_when_it_is_trained(tmp_path: Path) -> None:
    run = new(tmp_path / "run", evaluate=1)
    assert run.agent.predict([0.0, 0.0, 0.0, 0.0])[0].shape == ()
    assert run.evaluate(1).returns.shape == (1,)
    with pytest.raises(NfdrlError, match="pass `steps`"):
        run.train()
    assert not (tmp_path / "run").exists()


def test_an_evaluation_is_kept_until_the_agent_learns_more(tmp_path: Path) -> None:
    run = new(tmp_path, evaluate=2).train(100, progress=False)
    at_the_end = read_run(tmp_path).evaluation
    assert at_the_end is not None
    assert at_the_end["episodes"] == len(at_the_end["returns"]) == 2
    result = run.evaluate(3)
    kept = read_run(tmp_path).evaluation
    assert kept is not None
    assert kept["returns"] == result.returns.tolist()
    assert (kept["step"], kept["risk"]) == (100, "mean")
    assert at_the_end["returns"] == result.returns.tolist()[:2]
    Run.resume(tmp_path, evaluate=0).train(200, progress=False)
    assert read_run(tmp_path).evaluation is None


def test_an_overwritten_run_leaves_nothing_behind(tmp_path: Path) -> None:
    new(tmp_path).train(300, progress=False).evaluate(1)
    (tmp_path / "notes.txt").write_text("mine")
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 300
    new(tmp_path, "dqn", overwrite=True).train(60, progress=False)
    assert [path.name for path in layout.checkpoints(tmp_path)] == ["step-000000000060"]
    assert not (tmp_path / "evaluation.json").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": gymnasium.make("CartPole-v1")}, "must be an id"),
        ({"risk": lambda law: law.mean()}, "not a function"),
        ({"keep": 0}, "keep must be at least 1, got 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"evaluate": -1}, "evaluate must be at least 0"),
        ({"seed": -1}, "seed"),
    ],
    ids=lambda case: str(case)[:20] if isinstance(case, str) else next(iter(case)),
)
def test_a_run_that_could_not_be_resumed_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(NfdrlError, match=message):
        Run(tmp_path / "run", **{"method": "dqn", "env": "CartPole-v1", **settings})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("env", None), ("env", 3), ("resumed", 4), ("keep", "x"), ("keep", 0), ("steps", 0.5)]
)
def test_settings_that_describe_no_run_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    new(tmp_path).train(60, progress=False)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(NfdrlError):
        Run.resume(tmp_path).train(progress=False)
