from __future__ import annotations

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
    with pytest.raises(NfdrlError, match=r"needs 0.01 GB.*buffer_size may be at most 1,000"):
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
    assert "needs 3.15e+04 GB" in error
    assert "buffer_size may be at most" in error
    assert not out.exists()


def test_disk_is_checked_where_the_run_will_be(tmp_path: Path) -> None:
    check_disk(tmp_path / "not" / "yet", 1_000, 100)
    with pytest.raises(NfdrlError, match="is free in"):
        check_disk(tmp_path / "not" / "yet", 1 << 50, 100)
