"""One process writes to a run at a time, and nothing is deleted that is not the run's own."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.runs import layout
from nfdrl.runs.claim import claimed
from nfdrl.runs.session import Run
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig

SMALL = TrainConfig(
    learning_starts=40, batch_size=8, report_every=50, buffer_size=200, epsilon_start=0.1, epsilon_end=0.1,
    learning_rate_decay="constant", torso=TorsoSizes(mlp=(8, 8)),
)  # fmt: skip
WORDS = ["--set", "learning_starts=40", "batch_size=8", "report_every=50", "buffer_size=200", "mlp=(8,8)"]


def new(folder: Path, **settings: Any) -> Run:
    return Run(folder, "dqn", "CartPole-v1", config=SMALL, **{"checkpoint_every": 100, **settings})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def holding(lock: Path) -> subprocess.Popen[str]:
    """Another process that holds a run's lock until it is killed."""
    code = "import sys, time; from pathlib import Path; from nfdrl.runs.claim import claimed\n"
    code += "with claimed(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code, str(lock.parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A finished run in `run`, which another process has locked."""
    new(tmp_path / "run").train(150, progress=False)
    with holding(tmp_path / "run" / layout.LOCK) as process:
        yield process
        process.kill()


def test_a_second_process_ends_at_once_and_loses_nothing(
    other: subprocess.Popen[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    before = contents(run)
    for words in (["--resume", str(run), "--steps", "300"], ["--resume", str(run), "--steps", "300", "--force"]):
        assert main(["train", "--no-progress", *words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"in use by process {other.pid} on {socket.gethostname()!r}" in error
    assert main(["train", "--no-progress", "--out", str(run), "--overwrite", "--steps", "60", *WORDS]) == 2
    assert str(other.pid) in capsys.readouterr().err
    assert contents(run) == before
    other.kill()  # the operating system releases the lock of a process that is gone
    other.wait()
    assert Run.resume(run).train(200, progress=False).agent.step == 200
    assert layout.LOCK not in contents(run)


def test_two_trainings_of_one_folder_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    line = ["train", "--no-progress", "--method", "dqn", "--env", "CartPole-v1", "--evaluate", "0", "--out", str(out)]
    line += ["--checkpoint-every", "100"]
    process = subprocess.Popen([sys.executable, "-m", "nfdrl", *line, "--steps", "1000000", *WORDS])
    try:
        while not layout.checkpoints(out):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)  # still the holder
        os.waitpid(process.pid, os.WUNTRACED)
        before = contents(out)
        for words in (line + WORDS, ["train", "--no-progress", "--resume", str(out)]):
            capsys.readouterr()
            assert main(words) == 2
            error = capsys.readouterr().err
            assert error.count("\n") == 1
        assert f"process {process.pid}" in error
        assert contents(out) == before
    finally:
        process.kill()
        process.wait()
    done = Run.resume(out)
    assert done.train(done.agent.step + 100, progress=False).summary["failed_checkpoints"] == 0


def test_a_lock_of_another_machine_is_broken_only_by_force(other: subprocess.Popen[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    stale = json.dumps({"pid": 7, "host": "elsewhere", "since": "2026-01-01"})
    (run / layout.LOCK).write_text(stale)
    with pytest.raises(NfdrlError, match=r"process 7 on 'elsewhere' since 2026-01-01: .*--force"):
        Run.resume(run)
    assert Run.resume(run, force=True).train(200, progress=False).agent.step == 200


def test_a_run_taken_over_by_force_stops_at_its_next_checkpoint(tmp_path: Path) -> None:
    with claimed(tmp_path) as claim:
        claim.check()
        (tmp_path / layout.LOCK).unlink()
        with claimed(tmp_path), pytest.raises(NfdrlError, match="taken over"):
            claim.check()


def test_a_lock_is_exclusive_within_a_process(tmp_path: Path) -> None:
    with claimed(tmp_path):
        with pytest.raises(NfdrlError, match=str(os.getpid())), claimed(tmp_path):
            pass
        with pytest.raises(NfdrlError, match=str(os.getpid())), claimed(tmp_path):  # nor did that release it
            pass
    with claimed(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_children_of_a_killed_process_do_not_keep_its_lock(tmp_path: Path) -> None:
    code = "import os, signal, sys; from pathlib import Path; from nfdrl.runs.claim import claimed\n"
    code += "with claimed(Path(sys.argv[1])):\n"
    code += "    child = os.fork()\n    os.write(1, b'%d\\n' % child)\n    signal.pause()"  # the child writes 0
    line = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = sum(int(parent.stdout.readline()) for _ in range(2))  # once both have passed the fork
        with pytest.raises(NfdrlError, match=str(parent.pid)), claimed(tmp_path):
            pass
        parent.kill()
        parent.wait()
        try:
            with claimed(tmp_path):
                os.kill(child, 0)  # it lives
        finally:
            os.kill(child, signal.SIGKILL)


def test_without_locks_in_the_file_system_the_name_of_the_holder_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*args: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for pid, host, free in (
        (ended.pid, socket.gethostname(), True),
        (1, socket.gethostname(), False),
        (ended.pid, "elsewhere", False),
    ):
        (tmp_path / layout.LOCK).write_text(json.dumps({"pid": pid, "host": host, "since": "now"}))
        if free:
            with claimed(tmp_path):
                pass
            continue
        with pytest.raises(NfdrlError, match=f"process {pid} on {host!r}"), claimed(tmp_path):
            pass


def test_a_run_that_another_used_since_must_be_resumed_again(tmp_path: Path) -> None:
    new(tmp_path).train(150, progress=False)
    idle = Run.resume(tmp_path)
    Run.resume(tmp_path).train(300, progress=False)
    before = contents(tmp_path)
    with pytest.raises(NfdrlError, match="resume it again"):
        idle.train(400, progress=False)
    assert contents(tmp_path) == before


MINE = [
    "checkpoints/my-backup/weights.safetensors",
    "checkpoints/step-mine/manifest.json",
    "checkpoints/step-0001/manifest.json",
    "checkpoints/.DS_Store",
    "checkpoints/.step-000000000100.notes",
    "checkpoints/step-000000000100/notes.txt",
    "replay/rows-mine.npy",
    "replay/rows-000000000100.npy",
    "replay/rows-000000000100-0123abcd.npy.bak",
    "replay/.DS_Store",
    "tensorboard/notes.txt",
    "diagnostic/notes.txt",
    "notes.txt",
]


def test_pruning_and_overwriting_delete_nothing_that_is_not_the_runs_own(tmp_path: Path) -> None:
    run = new(tmp_path, keep=1).train(150, progress=False)
    for name in MINE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    run.train(520, progress=False)
    best = run._checkpoints.best
    kept = {520} | ({best["step"]} if best else set())
    assert {int(path.name.removeprefix("step-")) for path in layout.checkpoints(tmp_path)} == kept
    new(tmp_path, overwrite=True).train(60, progress=False)
    assert [path.name for path in layout.checkpoints(tmp_path)] == ["step-000000000060"]
    found = contents(tmp_path)
    assert {name: found[name] for name in MINE} == dict.fromkeys(MINE, b"mine")
    assert len(layout.segments(tmp_path / "replay")) == 1


@pytest.mark.parametrize("name", ["checkpoints", "replay", "tensorboard", "best", "metrics.csv", "evaluations.csv"])
def test_nothing_is_written_or_deleted_through_a_symbolic_link(name: str, tmp_path: Path) -> None:
    run, away = tmp_path / "run", tmp_path / "away"
    new(run, tensorboard=True, evaluate=1, evaluate_every=50).train(150, progress=False)
    (run / name).rename(away)
    (run / name).symlink_to(away)
    files = {away: away.read_bytes()} if away.is_file() else contents(away)
    with pytest.raises(NfdrlError, match=f"{name}' is a symbolic link"):
        Run.resume(run)
    new(run, overwrite=True).train(60, progress=False)
    assert ({away: away.read_bytes()} if away.is_file() else contents(away)) == files
    assert not (run / name).is_symlink()
    assert Agent.load(run).step == 60


def test_a_link_made_while_a_run_trains_is_not_pruned_through(tmp_path: Path) -> None:
    run, away = tmp_path / "run", tmp_path / "away"
    started = new(run, keep=1).train(350, progress=False)
    for name in ("checkpoints", "replay"):
        (run / name).rename(tmp_path / f"away-{name}")
        (run / name).symlink_to(tmp_path / f"away-{name}")
    before = contents(tmp_path / "away-checkpoints"), contents(tmp_path / "away-replay")
    started._checkpoints._prune()
    assert (contents(tmp_path / "away-checkpoints"), contents(tmp_path / "away-replay")) == before
    assert not away.exists()


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.json", "evaluation.json", "config.json", "checkpoints/x"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_foreign_files_is_refused(name: str, overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(NfdrlError, match="but no run of nfdrl: name another folder"):
        new(tmp_path, overwrite=overwrite).train(60, progress=False)
    assert contents(tmp_path) == {name: b'{"mine": 1}'}


def test_an_overwritten_folder_loads_the_new_run_only(tmp_path: Path) -> None:
    Agent("dqn", "CartPole-v1", config=SMALL).learn(70, progress=False).save(tmp_path, replay=True)
    with pytest.raises(NfdrlError, match="holds a run"):
        new(tmp_path)
    new(tmp_path, overwrite=True).train(60, progress=False)
    assert Agent.load(tmp_path).step == 60
    with pytest.raises(NfdrlError, match="holds a run: save the agent in another folder"):
        Agent.load(tmp_path).save(tmp_path)
    assert Agent.load(tmp_path).step == 60


def test_a_loaded_agent_makes_no_folder_that_it_names(tmp_path: Path) -> None:
    named, given = tmp_path / "named", tmp_path / "given"
    run = Run(
        tmp_path / "run", "dqn", "CartPole-v1", config=TrainConfig(**vars(SMALL) | {"replay_on_disk": str(named)})
    )
    run.train(150, progress=False)
    assert named.is_dir()
    named.rmdir()
    assert len(Agent.load(tmp_path / "run").trainer.replay) > 100
    assert main(["train", "--no-progress", "--resume", str(tmp_path / "run"), "--steps", "160"]) == 0
    assert not named.exists()
    line = ["train", "--no-progress", "--resume", str(tmp_path / "run"), "--steps", "170"]
    assert main([*line, "--set", f"replay_on_disk={given}"]) == 0
    assert given.is_dir()
    assert not named.exists()
    assert main([*line, "--set", f"replay_on_disk={given}", "batch_size=3"]) == 2
