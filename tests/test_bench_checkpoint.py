"""The benchmark of checkpoints in its small form: what it writes, not how fast anything is."""

from __future__ import annotations

import json
from pathlib import Path

from nfdrl.bench.checkpoint import Frames
from nfdrl.cli import main
from nfdrl.replay import row_bytes


def test_a_checkpoint_writes_only_the_rows_of_its_interval(tmp_path: Path) -> None:
    assert main(["bench", "checkpoint", "--smoke", "--out", str(tmp_path)]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    summary, row = metrics["summary"], row_bytes(Frames.observation_space)
    # 30 new rows, and the one at the cursor of the checkpoint before; weights and JSON are not counted
    assert 30 * row <= summary["rows_bytes"] <= 33 * row + 1_000
    assert summary["whole_bytes"] > 59 * row
    assert summary["share_of_training"] == summary["checkpoint"] / (summary["step"] * 30)
    assert [entry["what"] for entry in metrics["rows"]][1] == "a checkpoint"
    assert not (tmp_path / "run").exists()


def test_a_step_shifts_the_stack_by_one_frame() -> None:
    env = Frames()
    before, _ = env.reset(seed=0)
    after = env.step(0)[0]
    assert (after[..., :3] == before[..., 1:]).all()
    assert (after[..., 3] != before[..., 3]).any()
