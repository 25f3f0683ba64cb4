"""`nfdrl report` on real runs, and on runs whose numbers are written by hand."""

from __future__ import annotations

import csv
import io
import json

import matplotlib.pyplot as plt
import pytest
from rich.console import Console
from rich.table import Table

from nfdrl.cli import main
from nfdrl.evaluation.lines import columns_of, lines_of, setups_of
from nfdrl.paper.atari5 import GAMES, read_references
from nfdrl.progress import print_table
from nfdrl.runs.reading import find_runs, read_run
from written_runs import reported, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    small = ["--set", "learning_starts=40", "batch_size=8", "report_every=50", "--no-progress"]
    for method, env, episodes in (("dqn", "CartPole-v1", "3"), ("nfdrl-s", "FrozenLake-v1", "0")):
        command = ["train", "--method", method, "--env", env, "--steps", "200", "--evaluate", episodes]
        assert main([*command, "--out", str(folder / "deep" / method), *small]) == 0
    return folder


def test_a_report_has_every_run_with_its_measurements(runs, tmp_path, capsys):
    assert main(["report", str(runs), "--out", str(tmp_path)]) == 0
    assert "CartPole" in capsys.readouterr().out
    with (tmp_path / "report.csv").open(newline="") as file:
        cartpole, lake = csv.DictReader(file)
    evaluation = json.loads((runs / "deep/dqn/metrics.json").read_text())["evaluation"]
    assert (cartpole["env"], cartpole["steps"], cartpole["episodes"]) == ("CartPole-v1", "200", "3")
    assert float(cartpole["return"]) == pytest.approx(evaluation["mean"])
    assert (lake["method"], lake["return"]) == ("nfdrl-s", "")  # never evaluated: the cell is empty
    assert [row["seed"] for row in json.loads((tmp_path / "metrics.json").read_text())["runs"]] == [0, 0]
    picture = plt.imread(tmp_path / "curves.png")
    assert picture.shape[0] > 300
    assert picture.std() > 0.01


def test_a_folder_without_runs_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "no run in" in capsys.readouterr().err


def test_runs_that_differ_in_the_seed_alone_are_one_line(tmp_path):
    for seed, score in enumerate((100.0, 200.0, 600.0)):
        write_run(tmp_path / f"runs/{seed}", score, seed=seed, train={"report_every": 50 + seed})
    assert main(["report", str(tmp_path / "runs"), "--target", "CartPole-v1=400", "--out", str(tmp_path / "out")]) == 0
    (line,) = reported(tmp_path / "out", "lines")
    assert (line["seeds"], float(line["mean"]), float(line["median"]), float(line["iqm"])) == ("3", 300, 200, 300)
    assert 100 <= float(line["mean_low"]) < 300 < float(line["mean_high"]) <= 600
    assert float(line["gap"]) == pytest.approx((0.75 + 0.5 + 0) / 3)  # of 400, and 600 counts as 400
    rows = reported(tmp_path / "out", "report")
    assert [row["folder"] for row in rows] == [str(tmp_path / f"runs/{seed}") for seed in range(3)]


def test_settings_in_which_lines_differ_are_columns_and_labels_and_looks_are_distinct(tmp_path):
    write_run(tmp_path / "a", 1.0)
    write_run(tmp_path / "b", 2.0, risk="cvar:0.1")
    write_run(tmp_path / "c", 3.0, train={"learning_rate": 1e-4})
    write_run(tmp_path / "d", 4.0, method="c51", own={"atoms": 13})
    write_run(tmp_path / "e", 4.0, method="c51", own={"atoms": 51})
    lines, _ = lines_of(find_runs(tmp_path))
    setups = setups_of(lines)
    assert set(columns_of(lines)) == {"risk", "learning_rate", "atoms"}
    assert len(lines) == len({setup.label for setup in setups}) == 5
    assert len({(setup.colour, setup.style) for setup in setups}) == 5
    assert "C51, atoms=13" in {setup.label for setup in setups}
    assert "DQN, risk=cvar:0.1, learning_rate=0.001" in {setup.label for setup in setups}


def test_a_setting_of_none_is_told_from_a_number(tmp_path):
    write_run(tmp_path / "a", 1.0, own={"grid": None})
    write_run(tmp_path / "b", 2.0, own={"grid": 32}, seed=1)
    assert len(lines_of(find_runs(tmp_path))[0]) == 2


def test_a_setting_that_older_runs_do_not_record_does_not_divide_them_and_is_said(tmp_path):
    write_run(tmp_path / "old", 1.0)
    write_run(tmp_path / "new", 2.0, seed=1, own={"newer": True})
    lines, notes = lines_of(find_runs(tmp_path))
    assert [len(line.runs) for line in lines] == [2]
    assert "do not record newer" in notes[0]


def test_a_seed_that_occurs_twice_counts_once_and_is_said(tmp_path, capsys):
    for name in ("a", "b"):
        write_run(tmp_path / "runs" / name, 1.0)
    folders = [str(tmp_path / "runs"), str(tmp_path / "runs/a")]  # the second adds nothing
    assert main(["report", *folders, "--out", str(tmp_path / "out")]) == 0
    assert reported(tmp_path / "out", "lines")[0]["seeds"] == "1"
    assert "has the settings and the seed of" in capsys.readouterr().out
    command = json.loads((tmp_path / "out/metrics.json").read_text())["command"]
    assert command == f"nfdrl report {folders[0]} {folders[1]} --out {tmp_path / 'out'}"


def test_few_seeds_missing_cells_and_unfinished_runs_are_said_everywhere(tmp_path, capsys):
    write_run(tmp_path / "runs/a", 1.0, steps=900)
    write_run(tmp_path / "runs/b", None, seed=1, steps=900)
    write_run(tmp_path / "runs/c", 1.0, method="c51", env="Own/Game-v0")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    for text in (
        capsys.readouterr().out,
        *((tmp_path / "out" / name).read_text() for name in ("report.md", "report.tex")),
    ):
        assert "fewer than 3 evaluated seeds in CartPole-v1: DQN (1" in text
        assert "not run in CartPole-v1: C51" in text
        assert "not evaluated, 200 of 900 steps: DQN" in text
        assert "no target score for Own/Game-v0" in text


def test_trials_of_a_sweep_that_failed_or_have_not_reported_are_said(tmp_path, capsys):
    sweep = tmp_path / "sweep"
    write_run(sweep / "dqn-CartPole-0", 100.0, checkpoint_every=10)
    write_run(sweep / "dqn-CartPole-1", 200.0, seed=1, checkpoint_every=20)  # which changes nothing that is learned
    (sweep / "dqn-Broken-0").mkdir()
    (sweep / "dqn-Broken-0/failed.json").write_text(json.dumps({"trial": "dqn-Broken-0", "error": "no such game"}))
    (sweep / "dqn-CartPole-2").mkdir()
    (sweep / "dqn-CartPole-2/config.json").write_text((sweep / "dqn-CartPole-0/config.json").read_text())
    assert main(["report", str(sweep), "--out", str(tmp_path / "out")]) == 0
    assert [row["seeds"] for row in reported(tmp_path / "out", "lines")] == ["2"]
    text = capsys.readouterr().out
    assert f"failed: {sweep}/dqn-Broken-0: no such game" in text
    assert f"begun, and nothing measured yet: {sweep}/dqn-CartPole-2" in text


def test_aggregates_and_improvement_follow_from_the_scores(tmp_path):
    for seed, (ours, theirs) in enumerate(((10.0, 10.0), (20.0, 10.0), (30.0, 40.0))):
        for env in ("A-v0", "B-v0"):
            write_run(tmp_path / f"runs/{env}/dqn-{seed}", ours, env=env, seed=seed)
            write_run(tmp_path / f"runs/{env}/c51-{seed}", theirs, env=env, seed=seed, method="c51")
    targets = ["--target", "A-v0=0:100", "B-v0=10:20"]
    assert main(["report", str(tmp_path / "runs"), *targets, "--out", str(tmp_path / "out")]) == 0
    _, dqn = reported(tmp_path / "out", "aggregate")
    assert float(dqn["mean"]) == pytest.approx((0.2 + 1.0) / 2)  # 0.1 0.2 0.3, and 0 1 2
    assert float(dqn["iqm"]) == pytest.approx((0.1 + 0.2 + 0.3 + 1.0) / 4)  # without 0 and 2
    assert float(dqn["gap"]) == pytest.approx((0.8 + (1 + 0 + 0) / 3) / 2)
    (pair,) = (row for row in reported(tmp_path / "out", "improvement") if row["env"] == "all")
    # C51's 10 10 40 against 10 20 30: 40 wins all three, each 10 ties with 10 and loses twice: (3 + ½ + ½)/9.
    assert (pair["label"], pair["other"], pair["environments"]) == ("C51", "DQN", "2")
    assert float(pair["probability"]) == pytest.approx(4 / 9)
    for name in ("statistics", "profiles", "improvement"):
        assert plt.imread(tmp_path / f"out/{name}.png").std() > 0.01


def test_atari_games_are_normalised_by_human_scores_and_five_give_an_atari5_score(tmp_path):
    human = read_references()[1].human
    for game, score in zip(GAMES, human, strict=True):
        for seed in range(2):
            write_run(tmp_path / f"runs/{game}-{seed}", score, env=f"ALE/{game}-v5", seed=seed)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    (row,) = reported(tmp_path / "out", "aggregate")
    assert float(row["mean"]) == pytest.approx(1)  # a human everywhere
    assert float(row["atari5"]) == pytest.approx(85.1, abs=0.05)  # of 100 % in all games (atari5_score)


@pytest.mark.parametrize("width", [50, 80, 120, 300])
def test_a_table_in_a_narrow_terminal_has_all_digits(width):
    table = Table(title="scores")
    numbers = ["-123.4", "[-1,000,000,", "0.987]", "200,000", "1,456"]
    for name in ("environment", *numbers):
        table.add_column(name, justify="left" if name == "environment" else "right")
    table.add_row("nfdrl/RiskyCliff-v0", *numbers)
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_table(table, console)
    words = console.file.getvalue().replace("│", " ").split()
    assert all(words.count(number) >= 1 for number in numbers)
    assert "…" not in console.file.getvalue()


def test_the_last_known_share_of_dormant_units_is_told_and_old_runs_have_none(tmp_path, capsys):
    for seed, share in enumerate(("0.2", "0.4")):
        folder = tmp_path / f"runs/c51-{seed}"
        write_run(folder, 100.0, method="c51", seed=seed)
        head, first, last = (folder / "metrics.csv").read_text().splitlines()
        (folder / "metrics.csv").write_text(f"{head},dormant\n{first},{share}\n{last},\n")
    write_run(tmp_path / "runs/dqn", 50.0)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    assert "dormant" in capsys.readouterr().out
    assert [row["dormant"] for row in reported(tmp_path / "out", "report")] == ["0.2", "0.4", ""]
    c51, dqn = reported(tmp_path / "out", "lines")
    assert (float(c51["dormant"]), float(c51["training_return"])) == (pytest.approx(0.3), 100)
    assert (dqn["dormant"], float(dqn["training_return"])) == ("", 50)
    assert main(["report", str(tmp_path / "runs/dqn"), "--out", str(tmp_path / "old")]) == 0
    assert "dormant" not in capsys.readouterr().out  # no column without numbers


def test_seconds_are_those_of_all_resumes(tmp_path):
    write_run(tmp_path / "whole", 1.0)
    write_run(tmp_path / "resumed", 1.0, resumed=[150])
    assert read_run(tmp_path / "whole").seconds == 2.0
    assert read_run(tmp_path / "resumed").seconds == 1.5  # the second line counts from step 150


@pytest.mark.parametrize(
    ("target", "message"),
    [("CartPole-v1", "must be written ENV=SCORE"), ("CartPole-v1=5:1", "higher than"), ("Cart=1", "did you mean")],
)
def test_a_target_that_makes_no_sense_is_refused(tmp_path, capsys, target, message):
    write_run(tmp_path / "runs", 1.0)
    assert main(["report", str(tmp_path), "--target", target, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
