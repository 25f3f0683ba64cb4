"""Tuning with real Ray and real Optuna: what is chosen, what survives a kill, and what is refused."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.comparison import Problem
from nfdrl.evaluation.distances import distances
from nfdrl.evaluation.problems import finite_mdp
from nfdrl.files import read_toml
from nfdrl.laws import find_method
from nfdrl.reports import plain
from nfdrl.runs.claim import claimed
from nfdrl.runs.layout import LOCK
from nfdrl.runs.reading import find_runs
from nfdrl.settings import apply_settings
from nfdrl.sweeps.spec import SHIPPED, find_spec, listed
from nfdrl.sweeps.tuning import check_known, check_same
from nfdrl.sweeps.tuning_board import TuneBoard, best_of, preset_of, rows_of, table_of
from nfdrl.sweeps.tuning_objectives import Objective, miscalibration
from nfdrl.sweeps.tuning_spec import Choice, Range, TuneSpec, read_tune_spec
from nfdrl.sweeps.tuning_trial import Reading, Record, attempt, folder_of, read_record, read_records, write_record
from nfdrl.training.presets import find_preset, write_preset

ROOT = Path(__file__).parents[1]
SMOKE = find_spec("tune-smoke")
ON_RAY = pytest.mark.xdist_group("ray")
FOUND = {"learning_rate": 1e-3, "target_every": 50, "double_q": False}


@pytest.fixture
def spec() -> TuneSpec:
    return read_tune_spec(SMOKE)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "nfdrl", *words]


def until(what: Callable[[], bool], driver: subprocess.Popen[str], seconds: float = 900.0) -> None:
    """Wait until something has happened; a driver that ends before that has failed."""
    limit = time.monotonic() + seconds
    while not what():
        assert driver.poll() is None, "the driver ended"
        assert time.monotonic() < limit, "nothing happened"
        time.sleep(0.05)


def trial_on(out: Path, number: int, settings: dict[str, Any], spec: TuneSpec) -> Record:
    """A trial that runs here, undisturbed."""
    write_record(out, Record(number, settings))
    attempt(spec, out, number, lambda _: None)
    return read_record(out, number)


# A whole tuning, as the documentation has it.


@pytest.fixture(scope="module")
def documented() -> list[list[str]]:
    block = (ROOT / "docs" / "tuning.md").read_text().partition("```sh\n")[2].partition("```")[0]
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines() if line.startswith("nfdrl")]


@pytest.fixture(scope="module")
def tuned(documented: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the documented tuning ran, in small."""
    folder = tmp_path_factory.mktemp("tuned")
    words = next(words for words in documented if words[0] == "tune")
    own = folder / words[words.index("--out") + 1] / ".ray"
    own.mkdir(parents=True)
    (own / "notes.txt").write_text("not of this tuning")
    done = subprocess.run(command(*words, "--smoke"), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / words[words.index("--out") + 1]


@ON_RAY
def test_every_trial_ends_and_the_best_of_the_finished_is_the_preset(tuned: Path) -> None:
    spec, records = read_tune_spec(find_spec("tune-cartpole")).smaller(), read_records(tuned)
    assert [record.number for record in records] == list(range(spec.trials))
    assert all(record.status in ("finished", "stopped") for record in records)
    finished = {record.number: record.progress(spec.steps)[-1][1] for record in records if record.status == "finished"}
    best = best_of(spec, records)
    assert best is not None
    assert finished[best.number] == max(finished.values())
    assert find_preset(tuned / "best.toml").config == preset_of(spec, best.settings).resolved("").config
    assert len((tuned / "trials.csv").read_text().splitlines()) == 1 + spec.trials
    assert json.loads((tuned / "trials.json").read_text())["best"] == best.number
    assert (tuned / "figure.png").stat().st_size > 10_000
    assert not (tuned / ".nfdrl-ray-tune").exists()
    assert (tuned / ".ray" / "notes.txt").exists()


@ON_RAY
def test_trials_are_ordinary_runs_that_the_preset_repeats_bit_for_bit(tuned: Path, tmp_path: Path) -> None:
    spec, records = read_tune_spec(find_spec("tune-cartpole")).smaller(), read_records(tuned)
    best = best_of(spec, records)
    assert best is not None
    assert len(find_runs(tuned)) == len(records)
    out, every = tmp_path / "run", str(spec.checkpoint_every)
    words = ["train", "--preset", str(tuned / "best.toml"), "--env", spec.env, "--out", str(out), "--no-progress"]
    assert main([*words, "--checkpoint-every", every, "--evaluate", "2"]) == 0
    weights = [
        next(run.glob(f"checkpoints/step-*{spec.steps}/weights.safetensors")).read_bytes()
        for run in (out, folder_of(tuned, best.number) / "seed-0")
    ]
    assert weights[0] == weights[1]


@ON_RAY
def test_the_other_documented_commands_run(tuned: Path, documented: list[list[str]], monkeypatch: Any) -> None:
    monkeypatch.chdir(tuned.parents[2])
    others = [words for words in documented if words[0] != "tune"]
    assert others
    for words in others:
        assert main(words) == 0


@ON_RAY
def test_a_tuning_that_is_over_runs_nothing_again(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = [path.stat().st_mtime_ns for path in sorted(tuned.glob("trials/*/*"))]
    assert main(["tune", "tune-cartpole", "--smoke", "--out", str(tuned)]) == 0
    assert [path.stat().st_mtime_ns for path in sorted(tuned.glob("trials/*/*"))] == before
    assert "best: trial" in capsys.readouterr().out


@contextmanager
def driving(out: Path) -> Iterator[subprocess.Popen[str]]:
    """`nfdrl tune tune-smoke` in a process group of its own; what is still running in the end is killed."""
    driver = subprocess.Popen(
        command("tune", str(SMOKE), "--out", str(out)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test run in the background ignores it
    )
    with driver:
        try:
            yield driver
        finally:
            driver.kill()


def holders(out: Path) -> dict[Path, int]:
    """The processes that have locked runs."""
    found = {}
    for path in out.glob(f"trials/*/seed-*/{LOCK}"):
        with suppress(OSError, ValueError):  # gone, or not yet written
            found[path] = int(json.loads(path.read_text())["pid"])
    return found


def started(pid: int, driver: subprocess.Popen[str]) -> bool:
    """Whether a process is one of the driver's, which has a session of its own."""
    with suppress(ProcessLookupError):
        return os.getsid(pid) == driver.pid
    return False


@ON_RAY
def test_whoever_is_killed_no_trial_is_lost_or_run_twice_and_no_result_changes(spec: TuneSpec, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with driving(out) as driver:
        until(lambda: bool(holders(out)), driver)
        os.kill(next(iter(holders(out).values())), signal.SIGKILL)  # a worker
        until(lambda: any(record.status == "finished" for record in read_records(out)), driver)
        until(lambda: any(record.status == "running" and record.readings for record in read_records(out)), driver)
        driver.kill()
    before = read_records(out)
    files = {path: path.read_bytes() for path in out.glob("trials/*/trial.json")}
    ended = [folder_of(out, record.number) / "trial.json" for record in before if record.ended]
    with driving(out) as driver:
        until(lambda: any(started(pid, driver) for pid in holders(out).values()), driver)  # workers outlive a driver
        os.killpg(driver.pid, signal.SIGINT)  # Ctrl-C
        assert "the same command continues" in driver.communicate()[1]
        assert driver.returncode == 130
    with driving(out) as driver:
        said = driver.communicate()[1]
        assert driver.returncode == 0, said
    after = read_records(out)
    assert all(path.read_bytes() == files[path] for path in ended)
    assert [record.number for record in after] == list(range(spec.trials))
    assert all(record.status in ("finished", "stopped") for record in after)
    assert all(one.settings == two.settings for one, two in zip(before, after, strict=False))
    assert len({json.dumps(record.settings) for record in after}) == spec.trials  # no suggestion came twice
    for number in {0, next(one.number for one in before if not one.ended)}:  # trial 0 may be the one that was cut off
        record = after[number]
        calm = trial_on(tmp_path / "calm", number, record.settings, spec)
        assert record.readings == calm.readings[: len(record.readings)]


# What Optuna and ASHA know when a driver starts.


def records_of(values: list[list[float]], spec: TuneSpec) -> list[Record]:
    """Ended trials of one seed with these readings."""
    made = []
    for number, row in enumerate(values):
        readings = tuple(Reading(0, spec.every * (k + 1), value) for k, value in enumerate(row))
        status = "finished" if len(row) * spec.every == spec.steps else "stopped"
        made.append(Record(number, FOUND | {"target_every": 10 + number}, status, readings))  # type: ignore[arg-type]
    return made


def test_asha_decides_as_if_it_had_seen_all_trials_itself(spec: TuneSpec) -> None:
    from types import SimpleNamespace

    from nfdrl.sweeps.tuning_search import asha

    one_seed = replace(spec, seeds=(0,))
    rng = np.random.default_rng(0)
    records = records_of([list(rng.random(3)) for _ in range(5)], one_seed)
    told, live = asha(one_seed, records), asha(one_seed, [])
    for record in records:
        trial = SimpleNamespace(trial_id=str(record.number))
        live.on_trial_add(None, trial)
        for steps, value in record.progress(one_seed.steps):
            live.on_trial_result(None, trial, {"steps": steps, "objective": value})
    for scheduler in (told, live):
        for number in range(20):
            scheduler.on_trial_add(None, SimpleNamespace(trial_id=f"new-{number}"))
    decisions = [
        [
            scheduler.on_trial_result(
                None, SimpleNamespace(trial_id=f"new-{number}"), {"steps": spec.every, "objective": number / 20}
            )
            for number in range(20)
        ]
        for scheduler in (told, live)
    ]
    assert decisions[0] == decisions[1]
    assert set(decisions[0]) == {"CONTINUE", "STOP"}


def test_trials_that_were_cut_off_come_first_and_new_ones_are_new(spec: TuneSpec, tmp_path: Path) -> None:
    from nfdrl.sweeps.tuning_search import Suggestions

    class Silent:
        def update(self, record: Record) -> None:
            pass

    fresh = Suggestions(spec, tmp_path, [], Silent())
    assert [fresh.suggest(name) for name in "abc"] == [{"number": number} for number in range(3)]
    first = read_records(tmp_path)
    write_record(tmp_path, replace(first[1], status="stopped", readings=(Reading(0, spec.every, 0.5),)))
    later = Suggestions(spec, tmp_path, read_records(tmp_path), Silent())
    assert [later.suggest(name) for name in "defg"] == [{"number": number} for number in (0, 2, 3, 4)]
    after = read_records(tmp_path)
    assert [record.settings for record in after[:3]] == [record.settings for record in first]
    assert len({json.dumps(record.settings) for record in after}) == 5
    write_record(tmp_path, replace(after[0], readings=(Reading(0, spec.every, 0.3),)))
    later.on_trial_complete("d", {"objective": 0.3, "steps": spec.every, "training_iteration": 1})
    assert read_record(tmp_path, 0).status == "stopped"
    later.on_trial_complete("e", None, error=True)
    later.on_trial_complete("f")
    found = [read_record(tmp_path, number) for number in (2, 3)]
    assert [record.status for record in found] == ["failed", "failed"]
    assert [record.error for record in found] == ["its worker died too often", "it ended without a reading"]


def test_suggestions_lie_in_the_space(spec: TuneSpec, tmp_path: Path) -> None:
    from nfdrl.sweeps.tuning_search import Suggestions

    space = {"low": 3, "high": 9}, [[8], [16, 16]], {"low": 1e-4, "high": 1e-2, "log": True}
    wide = replace(spec, search={"n_step": space[0], "torso": {"mlp": space[1]}, "learning_rate": space[2]})
    source = Suggestions(wide, tmp_path, [], TuneBoard(wide, tmp_path, None))  # type: ignore[arg-type]
    for number in range(20):
        source.suggest(str(number))
    found = [record.settings for record in read_records(tmp_path)]
    assert all(type(one["n_step"]) is int and 3 <= one["n_step"] <= 9 for one in found)
    assert {json.dumps(one["torso.mlp"]) for one in found} == {"[8]", "[16, 16]"}
    assert all(1e-4 <= one["learning_rate"] <= 1e-2 for one in found)


# Trials and their records.


def test_a_trial_counts_the_seeds_that_are_done_with_their_last_value() -> None:
    readings = Reading(0, 50, 1.0), Reading(0, 100, 3.0), Reading(5, 50, 5.0), Reading(5, 100, 7.0)
    record = Record(0, {}, "finished", readings)
    assert record.progress(100) == [(50, 1.0), (100, 3.0), (150, 4.0), (200, 5.0)]


def test_what_was_measured_before_is_told_again_and_not_measured_again(spec: TuneSpec, tmp_path: Path) -> None:
    whole = trial_on(tmp_path / "a", 0, FOUND, spec)
    assert whole.status == "finished"
    assert len(whole.readings) == 2 * spec.steps // spec.every
    assert not list((tmp_path / "a").glob("trials/*/*/replay/*"))
    cut = replace(whole, status="running", readings=whole.readings[:-1])
    write_record(tmp_path / "a", cut)
    told: list[Record] = []
    attempt(spec, tmp_path / "a", 0, told.append)
    assert [record.readings for record in told] == [whole.readings[:k] for k in range(1, 1 + len(whole.readings))]
    assert read_record(tmp_path / "a", 0) == whole


def test_a_trial_that_fails_says_why_and_stays_failed(spec: TuneSpec, tmp_path: Path) -> None:
    odd = replace(spec, search={"n_step": [1, 90], "buffer_size": [50, 500]})
    odd.check()
    record = trial_on(tmp_path, 0, {"n_step": 90, "buffer_size": 50}, odd)
    assert record.status == "failed"
    assert record.error.startswith("buffer_size must be at least")
    assert trial_on(tmp_path, 1, {"n_step": 1, "buffer_size": 500}, odd).status == "finished"
    records = read_records(tmp_path)
    best = best_of(odd, records)
    assert best is not None
    assert best.number == 1
    assert [row["status"] for row in rows_of(odd, records)] == ["failed", "finished"]


def test_no_reading_of_a_setting_that_diverges_is_a_number_that_is_not(spec: TuneSpec, tmp_path: Path) -> None:
    record = trial_on(tmp_path, 0, {"learning_rate": 1e30}, replace(spec, search={}))
    assert record.status == "failed" or all(np.isfinite(reading.value) for reading in record.readings)


# Objectives.


def test_the_distance_is_the_mean_over_all_pairs_of_the_optimal_policy() -> None:
    agent = Agent("c51[atoms=5]", "nfdrl/MDP2-v0", seed=3, config={"discount": 0.9})
    problem = Problem.of("", finite_mdp("nfdrl/MDP2-v0"), 0.9)
    for name in ("cramer", "w1", "mean_error", "cvar_error"):
        by_hand = [
            distances(agent.returns(np.array(state)).select(torch.tensor(action)), law)[name]
            for (state, action), law in problem.truth.items()
        ]
        assert Objective(name).measure("nfdrl/MDP2-v0")(agent) == pytest.approx(np.mean(by_hand))  # type: ignore[arg-type]


def test_returns_and_calibrations_are_those_of_the_agent() -> None:
    agent = Agent("dqn", "CartPole-v1", seed=0)
    assert Objective("return", 3).measure("CartPole-v1")(agent) == agent.evaluate(3, progress=False).mean
    found = agent.calibration(3, progress=False)
    assert Objective("crps", 3).measure("CartPole-v1")(agent) == found.crps.value
    levels = [bar.value for bar in found.histogram]
    assert Objective("miscalibration", 3).measure("CartPole-v1")(agent) == miscalibration(levels)


def test_right_laws_have_no_miscalibration_and_one_sided_ones_have_the_most() -> None:
    assert miscalibration([1.0] * 10) == 0
    assert miscalibration([0.0] * 9 + [10.0]) == miscalibration([10.0] + [0.0] * 9) == pytest.approx(0.5)


def test_only_returns_are_to_be_large() -> None:
    assert Objective("return").better(2.0, 1.0)
    assert Objective("crps").better(1.0, 2.0)


# Specs and presets.


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("tune-*.toml")))
def test_the_specs_that_ship_are_valid(name: str) -> None:
    spec = read_tune_spec(find_spec(name))
    spec.smaller().check()
    assert spec.space()


def test_the_documented_spec_is_the_one_that_ships(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text((ROOT / "docs" / "tuning.md").read_text().partition("```toml\n")[2].partition("```")[0])
    assert read_toml(path) == read_toml(find_spec("tune-cartpole"))


def test_a_preset_has_the_settings_of_its_trial(spec: TuneSpec, tmp_path: Path) -> None:
    """Those of a preset file, then of the brackets, of `set`, and what was found, each over the one before."""
    base = tmp_path / "base.toml"
    write_preset(base, preset_of(replace(spec, preset="paper", method="dqn", set={}), {"n_step": 5, "train_every": 3}))
    layered = replace(spec, preset=str(base), method="c51[atoms=7,v_min=-3]", set={"v_min": -2, "train_every": 2})
    path = tmp_path / "best.toml"
    write_preset(path, preset_of(layered, {"learning_rate": 0.1 + 0.2}))
    preset = find_preset(path)
    method = find_method(preset.method, preset.adapt)
    assert method == find_method("c51[atoms=7,v_min=-2]")
    config = preset.config
    assert (config.n_step, config.train_every, config.learning_rate) == (5, 2, 0.1 + 0.2)
    trial = layered.trial("", 0, {"learning_rate": 0.1 + 0.2})
    assert trial.parts() == (config, method)
    assert preset.steps == spec.steps


def test_values_are_searched_by_what_they_are(spec: TuneSpec) -> None:
    table = {"a": [1, 2], "b": {"low": 1, "high": 2}, "c": {"d": {"low": 0.5, "high": 2, "log": True}}}
    assert replace(spec, search=table).space() == {
        "a": Choice({"1": 1, "2": 2}),
        "b": Range(1, 2),
        "c.d": Range(0.5, 2, log=True),
    }


LINES = SMOKE.read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('env = "nfdrl/RiskyCliff-v0"', "", "env is missing"),
        ('env = "nfdrl/RiskyCliff-v0"', 'env = "CartPole-v1"', "environment 'CartPole-v1' has no transition table"),
        ('env = "nfdrl/RiskyCliff-v0"', 'env = "CartPol-v1"', "did you mean 'CartPole-v1'"),
        ("steps = 600", "", "steps are missing"),
        ("steps = 600", "step = 600", "unknown key of spec.toml 'step': did you mean 'steps'?"),
        ("steps = 600", "steps = 100", "evaluate_every must be at most steps, got 200 and 100"),
        ("qr-dqn", "qrdqn", "unknown method 'qrdqn'"),
        ("seeds = [0, 1]", "seeds = []", "seeds must be a number of at least 1 or a list"),
        ("trials = 6", "trials = 0", "trials must be at least 1, got 0"),
        ('objective = "cramer"', 'objective = "score"', "unknown objective 'score'"),
        ("evaluate = 2", "evaluate = 0", "evaluate must be at least 1, got 0"),
        ("reduction = 2", "reduction = 1", "reduction must be greater than 1, got 1.0"),
        ("reduction = 2", "grace = 5000", "grace of asha must be at most the 1,200 steps of a trial, got 5,000"),
        ("[set]", "[set]\nlearning_rate = 1", "learning_rate is both set and searched"),
        ("[set]", '[set]\nrisk = "cvar:2"', "alpha"),
        ("discount = 1.0", "discont = 1.0", "unknown setting 'discont': did you mean 'discount'?"),
        ("double_q = [true, false]", "double_q = true", "search.double_q must be a list of values, or { low"),
        ("double_q = [true, false]", "double_q = [true]", "search.double_q must have at least two values"),
        ("double_q = [true, false]", "double_q = [true, 3]", "double_q cannot be '3'"),
        ("double_q = [true, false]", "discont = [0.9, 1.0]", "unknown setting 'discont'"),
        ("low = 10, high = 100", "low = 10", "search.target_every has no high"),
        ("low = 10, high = 100", "low = 100, high = 10", "low must be less than high, got 100 and 10"),
        ("low = 10, high = 100", "low = 0, high = 10, log = true", "with log, low must be positive, got 0"),
        ("low = 10, high = 100", "low = 0, high = 10", "target_every must be at least 1, got 0"),
        ("low = 10, high = 100", "low = 1.5, high = 2.5", "target_every cannot be '1.5'"),
        ("low = 10, high = 100", "low = 10, high = 100, logs = true", "unknown key of search.target_every 'logs'"),
    ],
)
def test_a_bad_spec_is_one_line_and_writes_nothing(
    old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in LINES
    path, out = tmp_path / "spec.toml", tmp_path / "out"
    path.write_text(LINES.replace(old, new))
    assert main(["tune", str(path), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not out.exists()


def test_discounts_are_not_compared_by_errors_of_returns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(
        LINES.replace("discount = 1.0", "").replace("double_q", "discount").replace("[true, false]", "[0.9, 1]")
    )
    assert main(["tune", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "discount cannot be searched by cramer" in capsys.readouterr().err


def test_a_folder_belongs_to_one_spec_but_may_get_more_trials(spec: TuneSpec, tmp_path: Path) -> None:
    check_same(spec, tmp_path)
    check_same(replace(spec, trials=99), tmp_path)
    with pytest.raises(ValueError, match=r"steps is 700 in the spec, but .* was begun with 600: change it back"):
        check_same(replace(spec, steps=700), tmp_path)


def test_a_record_with_any_other_field_is_read_or_refused_in_one_line(spec: TuneSpec, tmp_path: Path) -> None:
    from nfdrl.sweeps.tuning_figure import draw
    from nfdrl.sweeps.tuning_search import Suggestions, asha

    readings = tuple(Reading(seed, spec.steps, 9.0) for seed in listed(spec.seeds))
    write_record(tmp_path, Record(0, FOUND, "finished", readings))
    path = folder_of(tmp_path, 0) / "trial.json"
    told = json.loads(path.read_text())
    places = [(told, name) for name in told] + [(told["settings"], name) for name in FOUND]
    places += [(told["readings"][0], name) for name in ("seed", "step", "value")]
    refused: list[str] = []
    for holder, name in places:
        before = holder[name]
        for value in (None, "x", [], {}, [3], -1, 1e308, 10**400, "stopped", "failed", False):
            holder[name] = value
            path.write_text(json.dumps(told))
            try:
                records = read_records(tmp_path)
                check_known(spec, records, tmp_path)
                Suggestions(spec, tmp_path, records, TuneBoard(spec, tmp_path, Console(file=io.StringIO())))
                asha(spec, records)
                best_of(spec, records)
                json.dumps(plain(rows_of(spec, records)))
                draw(spec, records).draw_without_rendering()
                Console(file=io.StringIO()).print(table_of(spec, records))
            except NfdrlError as error:
                refused.append(str(error))
        holder[name] = before
    assert len(refused) > len(places)
    assert not any("\n" in line for line in refused)


@ON_RAY
def test_a_second_driver_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with claimed(tmp_path):
        assert main(["tune", str(SMOKE), "--out", str(tmp_path)]) == 2
    assert "is in use by process" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["ray", "optuna"])
def test_without_the_extra_it_is_named(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["tune", str(SMOKE), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "pip install nfdrl[sweep]" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_client_outside_the_cluster_is_told_where_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", str(SMOKE), "--out", str(tmp_path), "--address", "ray://host:10001"]) == 2
    assert "start it on one of its machines, with --address auto" in capsys.readouterr().err


def test_settings_of_a_trial_reach_its_run(spec: TuneSpec) -> None:
    config, method = spec.trial("", 0, FOUND).parts()
    words = ["discount=1.0", "learning_starts=100", "report_every=100", "mlp=16", "learning_rate=1e-3"]
    preset = find_preset("default")
    expected = apply_settings(
        [*words, "target_every=50", "double_q=false"], preset.config, find_method("qr-dqn[quantiles=20]")
    )
    assert (config, method) == expected
