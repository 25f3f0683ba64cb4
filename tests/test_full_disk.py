"""On a full disk training continues, and whatever could not be written is written when there is room."""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.files import Appender
from nfdrl.runs import layout
from nfdrl.runs.session import Run
from nfdrl.torsos import TorsoSizes
from nfdrl.training import trackers
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import Pause, Report
from nfdrl.training.trackers import CsvTracker, TensorBoardTracker

SMALL = TrainConfig(
    learning_starts=40, batch_size=8, report_every=20, buffer_size=200, epsilon_start=0.1, epsilon_end=0.1,
    learning_rate_decay="constant", torso=TorsoSizes(mlp=(8, 8)),
)  # fmt: skip
LINE = Report(0, 10, 3, 1.5, 20.0, 0.25, 0.1, 1e-3, 4000.0)


@contextmanager
def no_room(folder: Path) -> Iterator[None]:
    """Fill the file system that the folder is on, if it is a small one of its own; otherwise, files may not grow."""
    if os.path.ismount(folder):
        with (folder / "filler").open("wb", buffering=0) as file:
            for size in (4096, 1):
                with suppress(OSError):
                    while file.write(b"x" * size):
                        pass
        yield
        (folder / "filler").unlink()
        return
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # Python ignores the signal, and writing fails
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture(params=["small file system", "limit of this process"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder that can be filled: on a file system of one megabyte where one may be made."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = False
    if request.param == "small file system" and os.geteuid() == 0 and shutil.which("mount"):
        line = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
        mounted = subprocess.run(line, capture_output=True, check=False).returncode == 0
    yield folder
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [{k: v for k, v in row.items() if k != "steps_per_second"} for row in csv.DictReader(file)]


def steps_in(folder: Path) -> list[int]:
    found = EventAccumulator(str(folder))
    found.Reload()
    return [scalar.step for scalar in found.Scalars("train/loss")]


def test_a_piece_is_written_whole_or_not_at_all(disk: Path) -> None:
    file = Appender(disk / "log", b"header\n")
    file.waiting.append(b"one\n")
    file.flush()
    with no_room(disk):
        for piece in (b"two\n" * 3000, b"three\n"):  # longer than a page, so that a part of it may fit
            file.waiting.append(piece)
            with pytest.raises(OSError, match=r"space|large"):
                file.flush()
            assert (disk / "log").read_bytes() == b"header\none\n"
    file.flush()
    file.flush()
    assert (disk / "log").read_bytes() == b"header\none\n" + b"two\n" * 3000 + b"three\n"


def test_nothing_is_appended_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "log").symlink_to(tmp_path / "target")
    file = Appender(tmp_path / "log")
    file.waiting.append(b"x")
    with pytest.raises(OSError, match="symbolic"):
        file.flush()
    assert (tmp_path / "target").read_text() == "mine"


@pytest.mark.parametrize("kind", ["csv", "tensorboard"])
def test_reports_wait_for_room_and_warn_once_a_minute(
    kind: str, disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(trackers.time, "monotonic", lambda: now)
    tracker = CsvTracker(disk / "metrics.csv") if kind == "csv" else TensorBoardTracker(disk / "tb")
    for step in range(1, 401):
        now += 1.0
        if step == 101:
            full = no_room(disk)
            full.__enter__()
        if step == 301:
            full.__exit__(None, None, None)
        tracker.track(replace(LINE, step=step))
    tracker.close()
    found = [int(row["step"]) for row in rows_of(disk / "metrics.csv")] if kind == "csv" else steps_in(disk / "tb")
    assert found == list(range(1, 401))
    warned = capsys.readouterr().err.splitlines()
    assert 1 <= len(warned) <= 4
    assert all("training continues" in line for line in warned)


def test_a_run_on_a_full_disk_is_the_undisturbed_run_once_there_is_room(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def new(folder: Path) -> Run:
        often = replace(SMALL, report_every=2)  # more than fits the page that metrics.csv has begun
        return Run(folder, "dqn", "CartPole-v1", config=often, checkpoint_every=100, tensorboard=True)

    whole = new(tmp_path / "whole").train(600, progress=False)
    run = new(disk / "run")
    full, events = no_room(disk), run.agent.events
    states = []

    def watched(*args: Any, **settings: Any) -> Iterator[Any]:
        for event in events(*args, **settings):
            if isinstance(event, Report) and event.step == 220:
                full.__enter__()
            yield event
            if isinstance(event, Pause):
                states.append((event.step, [path.name[-3:] for path in layout.checkpoints(disk / "run")]))
            if isinstance(event, Report) and event.step == 440:
                full.__exit__(None, None, None)

    run.agent.events = watched  # type: ignore[method-assign]
    run.train(600, progress=False)
    by_step = dict(states)
    assert by_step[200][0] == "200"
    assert by_step[300][0] == by_step[400][0] == "200"
    assert by_step[500][0] == "500"
    assert rows_of(disk / "run" / "metrics.csv") == rows_of(tmp_path / "whole" / "metrics.csv")
    assert steps_in(disk / "run" / "tensorboard") == steps_in(tmp_path / "whole" / "tensorboard")
    ours, theirs = (layout.checkpoints(path)[0] / "weights.safetensors" for path in (run.folder, whole.folder))
    assert ours.read_bytes() == theirs.read_bytes()
    assert run.summary["failed_checkpoints"] == 2
    said = capsys.readouterr().err
    assert said.count("no checkpoint at step") == 2
    assert said.count("metrics.csv cannot be written") == 1


def test_a_checkpoint_never_leaves_waiting_rows_behind(disk: Path) -> None:
    """It says how far metrics.csv goes: a resume from it would lose them."""
    run = Run(disk / "run", "dqn", "CartPole-v1", config=SMALL, checkpoint_every=100)
    run.train(100, progress=False)
    run._metrics.track(replace(LINE, step=120))
    with no_room(disk):
        for step in range(140, 240):  # more than fits the page that the file has begun
            run._metrics.track(replace(LINE, step=step))
        assert not run._checkpoints.save(run.agent, regular=True, after=run._metrics.sync)
    assert run._checkpoints.save(run.agent, regular=True, after=run._metrics.sync)
    state = json.loads((layout.checkpoints(disk / "run")[0] / "state.json").read_text())
    assert state["run"]["metrics_bytes"] == (disk / "run" / "metrics.csv").stat().st_size
    assert [row["step"] for row in rows_of(disk / "run" / "metrics.csv")][-2:] == ["238", "239"]


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "resume": lambda disk: ["train", "--no-progress", "--resume", str(disk / "run"), "--steps", "200"],
    "train": lambda disk: ["train", "--no-progress", "--steps", "100", "--out", str(disk / "new"), "--evaluate", "0"],
    "evaluate": lambda disk: ["evaluate", str(disk / "run"), "--episodes", "1", "--out", str(disk / "e.json")],
    "report": lambda disk: ["report", str(disk), "--out", str(disk / "report")],
    "paper": lambda disk: ["paper", "architecture", "--smoke", "--out", str(disk / "paper")],
}


PICTURES: dict[str, Callable[[Path], list[str]]] = {
    "gif": lambda disk: ["evaluate", str(disk / "run"), "--episodes", "1", "--video", str(disk / "v.gif")],
    "page": lambda disk: ["page", str(disk / "run"), "--episodes", "1", "--out", str(disk / "p.html")],
    "export": lambda disk: ["export", str(disk / "run"), "--onnx", str(disk / "x.onnx")],
}


@pytest.mark.parametrize("verb", [*COMMANDS, *PICTURES])
def test_commands_on_a_full_disk_say_so_in_one_line(verb: str, disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(disk / "run", "dqn", "CartPole-v1", config=SMALL).train(60, progress=False)
    before = {path: path.read_bytes() for path in (disk / "run").rglob("*") if path.is_file()}
    capsys.readouterr()
    with no_room(disk):
        assert main((COMMANDS | PICTURES)[verb](disk)) in (1, 2)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "No space left" in error or "File too large" in error or "B is free" in error
    assert {path.name for path in disk.iterdir() if path.is_file()} <= {"filler"}
    assert {path: path.read_bytes() for path in (disk / "run").rglob("*") if path.is_file()} == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # ffmpeg's pipe, which imageio forgets
def test_an_mp4_on_a_full_disk_is_refused_in_one_line(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(disk / "run", "dqn", "CartPole-v1", config=SMALL).train(60, progress=False)
    capsys.readouterr()
    with no_room(disk):
        assert main(["evaluate", str(disk / "run"), "--episodes", "1", "--video", str(disk / "v.mp4")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "ffmpeg has stopped: is there room on the disk?" in error
    assert {path.name for path in disk.iterdir() if path.is_file()} <= {"filler"}


@pytest.mark.parametrize("verb", COMMANDS)
def test_commands_in_a_read_only_folder_say_so_in_one_line(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Run(tmp_path / "run", "dqn", "CartPole-v1", config=SMALL).train(60, progress=False)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    capsys.readouterr()
    for folder in (tmp_path / "run", tmp_path):
        folder.chmod(0o555)
    try:
        if os.geteuid() == 0:  # who may do anything
            tmp_path.parent.chmod(0o755)
            os.seteuid(65534)
        assert main(COMMANDS[verb](tmp_path)) in (1, 2)
    finally:
        if os.geteuid() == 65534:
            os.seteuid(0)
        for folder in (tmp_path / "run", tmp_path):
            folder.chmod(0o755)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "ermission denied" in error
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_tensorboard_hides_what_a_killed_process_wrote_before_its_first_checkpoint(tmp_path: Path) -> None:
    for _ in range(2):  # the second time as after a kill: config.json is there and no checkpoint
        tracker = TensorBoardTracker(tmp_path / "tb")
        for step in (10, 20, 30):
            tracker.track(replace(LINE, step=step))
        tracker.close()
    assert steps_in(tmp_path / "tb") == [10, 20, 30]
    later = TensorBoardTracker(tmp_path / "tb", 20)
    later.track(replace(LINE, step=30))
    later.track(replace(LINE, step=40))
    assert steps_in(tmp_path / "tb") == [10, 20, 30, 40]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"my,own,columns\n1,2,3\n", b"\n"])
def test_metrics_that_are_not_the_runs_own_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(NfdrlError, match="the metrics of a run"):
        CsvTracker(tmp_path / "metrics.csv")
    assert (tmp_path / "metrics.csv").read_bytes() == content
