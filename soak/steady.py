"""Train for a long time at small scale, checkpoints included, and watch memory, threads and open files.

Exit code 1 if resident memory grows by 2 % or more once the replay is full, or the number of threads or files grows.
Files of metrics are open only while a line is written: one that stays open fails as well. The result names whatever
else is open beyond the usual files.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import torch
from scenarios import SCENARIOS

from nfdrl.agent import Agent
from nfdrl.laws import find_method
from nfdrl.provenance import hardware
from nfdrl.runs.keeping import Checkpoints
from nfdrl.runs.layout import METRICS, TENSORBOARD
from nfdrl.settings import apply_settings
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import Pause, Report
from nfdrl.training.trackers import CsvTracker, TensorBoardTracker

STEADY = ("epsilon_start=0.05", "epsilon_end=0.05", "learning_rate_decay=constant", "report_every=100")
LIMIT = 0.02


def resident() -> tuple[int, int, list[str], int]:
    """Bytes of memory, threads, and open files of this process: their names, and the number of event files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed since: the listing's own, or another thread's
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    events = [name for name in names if "events.out.tfevents" in name]
    files = sorted(name for name in names if name not in events)
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/task")), files, len(events)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--method", default="nfdrl-s")
    parser.add_argument("--scenario", choices=SCENARIOS, default="cartpole")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/soak.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    kind = SCENARIOS[args.scenario]
    config, method = apply_settings([*kind.settings, *STEADY], TrainConfig(), find_method(args.method))
    agent = Agent(method, kind.env, seed=args.seed, config=config, device="cpu")
    samples, usual, unusual, started = [], [], set(), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoints = Checkpoints(folder)
        trackers = [CsvTracker(folder / METRICS), TensorBoardTracker(folder / TENSORBOARD)]
        for event in agent.events(10**9, trackers, pause_every=kind.interval):
            if isinstance(event, Pause):
                checkpoints.save(agent, regular=True)
            full = agent.trainer.replay.filled == agent.trainer.replay.length and checkpoints.best is not None
            # By the fourth checkpoint, everything that is made once has been made.
            if isinstance(event, Report) and full and agent.step > kind.warm:
                memory, threads, files, events = resident()
                usual = usual or files
                unusual.update(set(files) - set(usual))
                samples.append((round(time.monotonic() - started, 1), agent.step, memory, threads, len(files), events))
            if time.monotonic() - started > 60 * args.minutes:
                break
        disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if len(samples) < 20:
        print(f"too short: fewer than 20 samples after step {kind.warm:,}", file=sys.stderr)
        return 1
    tenth = max(1, len(samples) // 10)
    early, late = (sorted(s[2] for s in part)[tenth // 2] for part in (samples[:tenth], samples[-tenth:]))
    result = {
        "minutes": args.minutes,
        "scenario": args.scenario,
        "method": args.method,
        "seed": args.seed,
        "steps": agent.step,
        "checkpoints": agent.step // kind.interval,
        "samples": len(samples),
        "rss_bytes_first_tenth": early,
        "rss_bytes_last_tenth": late,
        "rss_growth": late / early - 1,
        "threads": sorted({s[3] for s in samples}),
        "open_files": sorted({s[4] for s in samples}),
        "unusual_files": sorted(unusual),
        "event_files": {str(n): sum(s[5] == n for s in samples) for n in sorted({s[5] for s in samples})},
        "disk_bytes": disk,
        "hardware": hardware(),
        "series": samples[:: max(1, len(samples) // 200)],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name != "series"}, indent=2))
    steady = len(result["threads"]) == 1 and len(result["open_files"]) == 1 and max(s[5] for s in samples) <= 1
    return 0 if result["rss_growth"] < LIMIT and steady else 1


if __name__ == "__main__":
    sys.exit(main())
