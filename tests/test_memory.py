from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.memory import RESERVE, available_memory, check_disk, check_memory
from nfdrl.replay import Replay, row_bytes

GIB = 1 << 30


def machine(root: Path, free: int, groups: str, files: dict[str, int | str]) -> Path:
    """The files in which Linux reports its memory."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {free // 1024} kB\n")
    (root / "proc/self/cgroup").write_text(groups)
    for name, value in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


def test_without_limits_all_free_memory_is_available(tmp_path: Path) -> None:
    files: dict[str, int | str] = {"a/memory.max": "max", "a/memory.current": GIB}
    assert available_memory(machine(tmp_path, 8 * GIB, "0::/a\n", files)) == 8 * GIB
    assert available_memory(tmp_path / "nothing") is None


def test_the_tightest_control_group_limits_what_is_available(tmp_path: Path) -> None:
    files: dict[str, int | str] = {
        "a/b/memory.max": 6 * GIB,
        "a/b/memory.current": GIB,
        "a/memory.max": 4 * GIB,
        "a/memory.current": 3 * GIB,
        "a/memory.stat": f"anon 5\ninactive_file {GIB}",
    }
    # the outer one allows 4 and has 3 in use, of which 1 is cached files
    assert available_memory(machine(tmp_path, 8 * GIB, "0::/a/b\n", files)) == 2 * GIB


def test_version_one_control_groups_are_understood(tmp_path: Path) -> None:
    files: dict[str, int | str] = {
        "memory/x/memory.limit_in_bytes": 3 * GIB,
        "memory/x/memory.usage_in_bytes": GIB,
        "memory/memory.limit_in_bytes": 9223372036854771712,
        "memory/memory.usage_in_bytes": 5 * GIB,
    }
    groups = "5:cpu,cpuacct:/x\n4:memory:/x\n"
    assert available_memory(machine(tmp_path, 8 * GIB, groups, files)) == 2 * GIB


def test_this_machine_reports_its_memory() -> None:
    found = available_memory()
    assert found is not None
    assert found > 1 << 24


def test_the_largest_replay_that_fits_is_named_and_fits() -> None:
    check_memory(1_000, 10_000, RESERVE + 10_000_000)
    with pytest.raises(NfdrlError, match=r"needs 10 MB.*buffer_size may be at most 1,000"):
        check_memory(1_001, 10_000, RESERVE + 10_009_999)


@pytest.mark.parametrize("space", [gymnasium.spaces.Box(0, 255, (5, 7), np.uint8), gymnasium.spaces.Discrete(3)])
def test_row_bytes_counts_every_array(space: gymnasium.Space) -> None:
    replay = Replay(100, space, rng=np.random.default_rng(0))
    arrays = (
        replay.action,
        replay.reward,
        replay.kept,
        replay.ended,
        replay.explored,
        replay.live,
        replay.storage.array,
    )
    assert sum(array.nbytes for array in arrays) == 100 * row_bytes(space)


def test_a_run_that_cannot_fit_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "--out", str(out), "--set", "buffer_size=900000000000"]) == 2
    error = capsys.readouterr().err
    assert "needs 31,500 GB" in error
    assert "buffer_size may be at most" in error
    assert not out.exists()


def test_disk_is_checked_where_the_run_will_be(tmp_path: Path) -> None:
    check_disk(tmp_path / "not" / "yet", 1_000, 100)
    with pytest.raises(NfdrlError, match="is free in"):
        check_disk(tmp_path / "not" / "yet", 1 << 50, 100)


LIMITED = """
import contextlib, io, os, resource, sys
os.environ["OMP_NUM_THREADS"] = "1"
from nfdrl.cli import main

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30),) * 2)
for k, words in enumerate(sys.argv[1:]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(["train", "--no-progress", "--evaluate", "0", "--out", f"run-{k}", "--set", "learning_starts=50",
                     *words.split()])
    print(code, os.path.exists(f"run-{k}"), said.getvalue().strip(), flush=True)

import torch
from nfdrl.runs.checkpoint import serialised
try:
    serialised({"weights": torch.zeros(150_000_000)})
except OSError as error:
    print(error)
"""
TOO_LARGE = {  # with 2 GiB left
    "buffer_size=100000000 --steps 60": "a replay of 100,000,000 transitions needs .* of memory is free",
    "buffer_size=900000 --env ALE/Pong-v5 --steps 60": "buffer_size may be at most",
    "batch_size=100000000 --steps 60": "a batch of 100,000,000 transitions needs",
    "mlp=(20000,20000) --steps 60": "a network of .* weights needs .* to learn, and .* of memory is free",
    "batch_size=8 --steps 60 --method iqn[samples=2000000000]": "out of memory",
    "batch_size=3000000 --steps 60": "out of memory|does not fit into memory|a batch of",
}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_what_does_not_fit_under_a_limit_of_addresses_is_refused_in_one_line(tmp_path: Path) -> None:
    line = [sys.executable, "-c", LIMITED, *TOO_LARGE, "mlp=(8,) --steps 60"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    for (words, message), found in zip(TOO_LARGE.items(), said[:-2], strict=True):
        assert re.match(r"[12] (True|False) nfdrl: error: ", found), (words, found)
        assert re.search(message, found), (words, found)
    assert said[0].startswith("2 False"), "refused before anything is written"
    assert said[-2] == "0 True ", "what fits is trained"
    assert said[-1].endswith("Cannot allocate memory"), "a checkpoint that cannot be written is like a full disk"
