"""Time a sweep against the same runs started by hand, two at a time.

python benchmarks/sweep.py --runs 12 --steps 30000 --rounds 3 --out results/bench/sweep.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from nfdrl.provenance import hardware

NFDRL = (sys.executable, "-m", "nfdrl")


def run(*words: str) -> None:
    """One command, on one thread."""
    subprocess.run([*NFDRL, *words], check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def by_hand(folder: Path, method: str, runs: int, steps: int, at_once: int) -> None:
    """Every run with `nfdrl train`, as many at once as there are cores."""

    def one(seed: int) -> None:
        words = ("--method", method, "--steps", str(steps), "--seed", str(seed), "--out", str(folder / f"seed-{seed}"))
        run("train", "--env", "CartPole-v1", *words, "--no-progress")

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, range(runs)))


def by_sweep(folder: Path, method: str, runs: int, steps: int, at_once: int) -> None:
    """The same runs with `nfdrl sweep`."""
    spec = folder / "spec.toml"
    spec.write_text(f'methods = ["{method}"]\nenvs = ["CartPole-v1"]\nseeds = {runs}\nsteps = {steps}\n')
    run("sweep", str(spec), "--out", str(folder / "out"), "--cpus", str(at_once))


def seconds(way: Callable[..., None], *settings: object) -> float:
    """The time of one way, starts and ends included."""
    with TemporaryDirectory() as folder:
        begun = time.perf_counter()
        way(Path(folder), *settings)
        return time.perf_counter() - begun


def main() -> None:
    """Take turns, and write the ratio of each round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="nfdrl")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/bench/sweep.json"))
    given = parser.parse_args()
    settings = given.method, given.runs, given.steps, given.at_once
    seconds(by_hand, given.method, 1, 1_200, 1)  # compiles what Numba has not compiled here yet
    rounds = []
    for _ in range(given.rounds):
        taken = {way.__name__: round(seconds(way, *settings), 2) for way in (by_hand, by_sweep)}
        rounds.append(taken | {"throughput": round(taken["by_hand"] / taken["by_sweep"], 3)})
        print(rounds[-1], flush=True)
    middle = median(one["throughput"] for one in rounds)
    print(f"throughput of a sweep over that of runs by hand: {middle:.3f}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    command = {name: value for name, value in vars(given).items() if name != "out"}
    content = {**command, "date": str(date.today()), "hardware": hardware(), "rounds": rounds, "throughput": middle}
    given.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
