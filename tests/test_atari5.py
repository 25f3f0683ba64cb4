"""The Atari tables follow from the paper's raw scores, or are marked; our own columns come only from run folders."""

import csv
import json
import math
from pathlib import Path

import pytest

from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.lines import differences
from nfdrl.paper import load, pong
from nfdrl.paper.atari5 import GAMES, References, atari5_score, contradictions, read_references
from nfdrl.paper.base import NoRunsError, run_experiment
from nfdrl.paper.human import random_and_human
from nfdrl.paper.pong import largest_fall
from nfdrl.progress import Progress
from nfdrl.runs.reading import find_runs, read_run

QUICK = ["--no-progress", "--set", "learning_starts=64", "batch_size=16", "report_every=50", "mlp=(16,16)"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, torch_stays_as_it_is):
    """Two real runs of different methods."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("nfdrl-e", "dqn"):
        words = ["train", "--env", "CartPole-v1", "--method", method, "--steps", "200", "--evaluate", "2"]
        assert main([*words, "--out", str(folder / method), *QUICK]) == 0
    return folder


@pytest.fixture(scope="module")
def atari(runs, tmp_path_factory):
    """The same runs under the names of Atari games: only files are read, and emulators take minutes."""
    folder = tmp_path_factory.mktemp("atari")
    for seed, (game, mean) in enumerate([("BattleZone", 19_773.75), ("BattleZone", 2_360.0), ("Qbert", 163.9)]):
        out = folder / f"{game}-{seed}"
        out.mkdir()
        config = json.loads((runs / "dqn" / "config.json").read_text())
        (out / "config.json").write_text(json.dumps(config | {"env": f"ALE/{game}-v5[sticky=0.25]", "seed": seed}))
        (out / "metrics.csv").write_text((runs / "dqn" / "metrics.csv").read_text())
        (out / "evaluation.json").write_text(json.dumps({"mean": mean, "std": 0.0, "returns": [mean]}))
    return folder


def run(name, out, folder=None):
    return run_experiment(load(name), 0, False, out, Progress(enabled=False), folder)


def test_human_scores_in_all_games_give_101_to_the_sum_of_the_weights_minus_1():
    weights = 0.3819751237831753 + 0.0679099488887574 + 0.310804148620847 + 0.12412619402774641 + 0.08048518286466755
    assert atari5_score((100.0,) * 5) == pytest.approx(101**weights - 1)
    assert atari5_score((-30.0,) * 5) == 0.0
    assert atari5_score((100.0, None, 100.0, 100.0, 100.0)) is None


def test_atari5_scores_follow_from_the_raw_table_of_the_paper():
    lines, references = read_references()
    scores = {line.method: atari5_score(references.normalise(line.raw)) for line in lines if line.source == "paper"}
    rounded = {method: round(score) for method, score in scores.items()}
    assert rounded == {"dqn": 90, "c51": 126, "iqn": 216, "nfdrl-e": 148, "nfdrl-s": 159}


def test_exactly_the_known_contradictions_are_found():
    lines, references = read_references()
    rows = contradictions({line.method: line for line in lines if line.source == "paper"}, references)
    broken = {(row["claim"], row["printed"], row["recomputed"]) for row in rows if not row["holds"]}
    frames = "frames: nfdrl-e 40M; nfdrl-s 40M; dqn 200M; c51 200M; iqn 200M"
    assert broken == {
        ("nfdrl-s, BattleZone", 95, 92.4),
        ("nfdrl-s, DoubleDunk", 1243, 1190.9),
        ("nfdrl-s, NameThisGame", 259, 260.9),
        ("nfdrl-s, Phoenix", 301, 297.5),
        ("nfdrl-s, mean", 418, 407.0),
        ("c51, mean", 320, 329.7),
        ("best in DoubleDunk", "nfdrl-s", "nfdrl-e"),
        ("nfdrl-e outperforms c51 on all games", "yes", "not on Qbert"),
        ("the baselines were trained as NFDRL was", "yes", frames),
    }


def test_normalised_scores_are_0_at_random_and_100_at_human():
    _, references = read_references()
    assert references.normalise(references.random) == (0.0,) * 5
    assert references.normalise(references.human) == pytest.approx((100.0,) * 5)
    assert References((0.0,), (2.0,)).normalise((None,)) == (None,)


def test_the_tables_are_written_and_printed(tmp_path, capsys):
    assert main(["paper", "atari5", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("contradictions", "Dopamine", "raw.csv"))
    with (tmp_path / "normalised.csv").open() as file:
        rows = {(row["source"], row["method"], float(row["frames_millions"])): row for row in csv.DictReader(file)}
    assert rows["paper", "nfdrl-s", 40.0]["DoubleDunk"] == "1190.9"
    assert rows["printed", "nfdrl-s", 40.0]["DoubleDunk"] == "1243"
    assert ("DQN Zoo", "iqn", 40.0) in rows
    assert not any(source == "ours" for source, _, _ in rows)
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_our_runs_fill_their_own_columns_and_games_not_run_stay_empty(atari, tmp_path):
    metrics = run("atari5", tmp_path, atari)
    own = {row["game"]: row for row in metrics["rows"] if row.get("source") == "ours"}
    assert own.keys() == set(GAMES)
    assert own["BattleZone"]["raw"] == pytest.approx((19_773.75 + 2_360.0) / 2)
    assert own["BattleZone"]["normalised"] == pytest.approx(25.0)
    assert own["Qbert"]["normalised"] == pytest.approx(0.0)
    assert own["Phoenix"]["raw"] is None
    assert own["Phoenix"]["frames_millions"] == pytest.approx(800 / 1e6)
    line = next(row for row in metrics["tables"]["normalised"] if row["source"] == "ours")
    assert (line["mean"], line["atari5"]) == (None, None)


def test_runs_of_other_games_are_refused(runs, tmp_path):
    with pytest.raises(NoRunsError, match="no evaluated run on BattleZone"):
        run("atari5", tmp_path, runs)


def test_pong_reports_steps_last_return_and_evaluation_of_each_run(runs, tmp_path):
    assert main(["paper", "pong", "--runs", str(runs), "--out", str(tmp_path)]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    rows = {row["method"]: row for row in metrics["rows"]}
    summary = json.loads((runs / "dqn" / "metrics.json").read_text())
    assert rows["dqn"]["steps"] == rows["dqn"]["frames"] == 200
    assert rows["dqn"]["evaluation"] == summary["evaluation"]["mean"]
    assert rows["dqn"]["last"] == pytest.approx(summary["training"]["episode_return"], abs=1e-3)
    assert rows["dqn"]["of_paper"] is None
    assert (tmp_path / "runs.csv").exists()
    assert f"--runs {runs}" in metrics["command"]


def test_frames_include_the_skipped_ones(atari):
    assert {(run.step, run.frames) for run in find_runs(atari)} == {(200, 800)}


@pytest.mark.parametrize(("env", "skip"), [("ALE/Pong-v5", 4), ("ALE/Pong-v5[sticky=0.25,frame_skip=3]", 3), ("X", 1)])
def test_the_frame_skip_is_read_from_the_environment_s_settings(runs, tmp_path, env, skip):
    config = json.loads((runs / "dqn" / "config.json").read_text()) | {"env": env}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "metrics.csv").write_text((runs / "dqn" / "metrics.csv").read_text())
    found = read_run(tmp_path)
    assert (found.frame_skip, found.evaluation) == (skip, None)


def test_a_run_lists_the_steps_at_which_it_was_resumed(runs, tmp_path):
    lines = (runs / "dqn" / "metrics.csv").read_text().splitlines()
    later = [line.split(",") for line in lines[1:]]
    again = [",".join([str(200 + int(row[0])), row[1], "0", *row[3:]]) for row in later]
    (tmp_path / "config.json").write_text((runs / "dqn" / "config.json").read_text())
    (tmp_path / "metrics.csv").write_text("\n".join([*lines, *again]) + "\n")
    assert read_run(tmp_path).resumed == [200]
    (tmp_path / "metrics.json").write_text(json.dumps({"resumed": [50, 150]}))
    assert read_run(tmp_path).resumed == [50, 150]


def test_the_largest_fall_is_measured_from_the_preceding_peak():
    assert largest_fall([0.0, 5.0, 2.0, 9.0, 8.0]) == 3.0
    assert largest_fall([1.0, 2.0, 3.0]) == 0.0
    assert math.isclose(largest_fall([-21.0]), 0.0)


def test_pong_without_runs_names_the_command_that_makes_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["paper", "pong"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nfdrl train --env ALE/Pong-v5" in error


def test_paper_all_skips_pong_where_there_are_no_runs(tmp_path, monkeypatch, capsys):
    from nfdrl.paper import EXPERIMENTS

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nfdrl.cli.paper.EXPERIMENTS", {name: EXPERIMENTS[name] for name in ("pong", "atari5")})
    assert main(["paper", "all", "--smoke", "--out", "all"]) == 0
    assert "left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "there is no folder"),
        ({}, "no run in"),
        ({"config.json": "{", "metrics.csv": "step\n"}, "is not valid JSON"),
        ({"config.json": "{}", "metrics.csv": "step\n"}, "does not describe a run"),
        ({"config.json": '{"method": {"name": "dqn"}, "env": "X", "seed": 0}', "metrics.csv": "a,b\n1,2\n"}, "metrics"),
    ],
)
def test_a_folder_without_a_valid_run_is_refused(tmp_path, files, message):
    folder = tmp_path / "runs"
    for name, text in (files or {}).items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    if files is not None:
        folder.mkdir(exist_ok=True)
    with pytest.raises(NfdrlError, match=message):
        find_runs(folder)


def test_an_experiment_that_reads_no_runs_refuses_a_runs_folder(tmp_path):
    with pytest.raises(NfdrlError, match="reads no runs"):
        run("alignment", tmp_path, tmp_path)


def run_with(runs, folder, seed=0, **settings):
    """A copy of a run, as if it had been trained with other settings."""
    config = json.loads((runs / "dqn" / "config.json").read_text())
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | {"seed": seed, "train": config["train"] | settings}))
    (folder / "metrics.csv").write_text((runs / "dqn" / "metrics.csv").read_text())


def test_runs_of_one_method_are_told_apart_by_the_settings_in_which_they_differ(runs, tmp_path):
    run_with(runs, tmp_path / "falling", learning_rate_decay="linear", n_step=2, only_here=1)
    run_with(runs, tmp_path / "fixed", learning_rate_decay="constant", n_step=3)
    found = find_runs(tmp_path)
    assert differences(found) == [
        {"learning_rate_decay": "linear", "n_step": 2},
        {"learning_rate_decay": "constant", "n_step": 3},
    ]
    result = pong.compute(0, False, Progress(), tmp_path)
    assert [row["variant"] for row in result.rows] == ["rate falls to 0, n_step=2", "constant rate, n_step=3"]
    curves = [line for line in pong.draw(result).axes[0].lines if "rate" in str(line.get_label())]
    assert len({(line.get_label(), line.get_linestyle()) for line in curves}) == 2
    assert len({line.get_linestyle() for line in curves}) == 2


def test_runs_that_differ_in_their_seed_alone_have_lines_of_their_own(runs, tmp_path):
    for seed in (0, 1):
        run_with(runs, tmp_path / f"run-{seed}", seed)
    curves = [
        line
        for line in pong.draw(pong.compute(0, False, Progress(), tmp_path)).axes[0].lines
        if len(line.get_xdata()) > 2
    ]
    assert ["seed 0" in curves[0].get_label(), "seed 1" in curves[1].get_label()] == [True, True]
    assert curves[0].get_linestyle() != curves[1].get_linestyle()


def test_human_scores_agree_with_those_of_the_paper_and_of_atari_100k():
    known, references = random_and_human(), read_references()[1]
    assert len(known) == 57
    assert [known[game] for game in GAMES] == list(zip(references.random, references.human, strict=True))
    with (Path(__file__).parent / "atari100k.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            assert known[row["game"]] == (float(row["random"]), float(row["human"]))


def test_a_single_run_needs_no_settings_in_its_name(runs, tmp_path):
    run_with(runs, tmp_path / "one", learning_rate_decay="constant")
    assert pong.compute(0, False, Progress(), tmp_path).rows[0]["variant"] is None
