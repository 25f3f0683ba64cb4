"""This checkout's speed against another commit's: contestants of `nfdrl bench` take turns, each in its own process.

Usage: `python benchmarks/against.py --base REV --bench train --rounds 15 --out results/bench/against/train.json`.
Only our own contestants that both commits have are raced; a ratio above 1 means that this checkout is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent

WORKER = """
import importlib, sys, time
import torch
torch.set_num_threads(1)
bench = importlib.import_module(f"nfdrl.bench.{sys.argv[1]}")
ours = {c.what: c for c in bench.CONTESTANTS if c.what.startswith("ours")}
print("\\t".join(ours), flush=True)
runs = {}
for line in sys.stdin:
    what, steps = line.rstrip("\\n").split("\\t")
    if what not in runs:
        runs[what] = ours[what].make(0)
        runs[what](bench.COURSE.warm_up + 10 * bench.COURSE.train_every)
    begun = time.perf_counter()
    runs[what](int(steps))
    print(time.perf_counter() - begun, flush=True)
"""


class Side:
    """A process with one version of the package."""

    def __init__(self, source: Path, bench: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, bench],
            env=os.environ | {"PYTHONPATH": str(source / "src")}, cwd=source, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.contestants = self._read().split("\t")

    def _read(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a contestant's process ended with code {self.process.wait()}")
        return line.rstrip("\n")

    def seconds(self, what: str, steps: int) -> float:
        """How long `steps` more steps take."""
        self.process.stdin.write(f"{what}\t{steps}\n")
        self.process.stdin.flush()
        return float(self._read())


@contextmanager
def checkout(revision: str):
    """A temporary working tree of another commit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", "--quiet", path, revision], check=True)
        try:
            yield path
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", path], check=True)


def main() -> None:
    """Race both versions and print the ratios; with `--out`, write them too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--bench", default="train", choices=("train", "atari", "minatar"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=400, help="per contestant and round")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with checkout(args.base) as base:
        here, there = Side(ROOT, args.bench), Side(base, args.bench)
        shared = [what for what in here.contestants if what in there.contestants]
        times = {what: ([], []) for what in shared}
        for side in (here, there):  # made, warmed up and compiled
            for what in shared:
                side.seconds(what, args.steps // 4)
        for k in range(args.rounds):
            for what in shared:
                for side, into in ((here, 0), (there, 1)) if k % 2 else ((there, 1), (here, 0)):
                    times[what][into].append(side.seconds(what, args.steps))
            print(f"round {k + 1} of {args.rounds}", file=sys.stderr, flush=True)
        rows = [
            {
                "what": what,
                "steps_per_second": args.steps / median(ours),
                "base_steps_per_second": args.steps / median(theirs),
                "ratio": median(b / a for a, b in zip(ours, theirs, strict=True)),
            }
            for what, (ours, theirs) in times.items()
        ]
    for row in rows:
        print(f"{row['what']:40} {row['steps_per_second']:9,.0f} steps/s  {row['ratio']:.3f} × the base's")
    if args.out is not None:
        sys.path.insert(0, str(ROOT / "src"))
        from nfdrl.provenance import hardware

        named = {"bench": args.bench, "rounds": args.rounds, "steps": args.steps, "base": args.base}
        found = named | {"date": time.strftime("%Y-%m-%d"), "hardware": hardware(), "rows": rows}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
