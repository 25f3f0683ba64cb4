"""Kill a training process again and again, resume it each time, and compare the end with an undisturbed run.

Three kinds of kill, all by SIGKILL: at a random moment of training, in the middle of writing a checkpoint (its
temporary folder exists), and while the process starts. Exit code 1 if a bit differs, a row of metrics is repeated or
missing, or more was lost than the work since the last checkpoint.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scenarios import SCENARIOS

from nfdrl.provenance import hardware
from nfdrl.runs.checkpoint import read
from nfdrl.runs.layout import CHECKPOINTS, CONFIG, METRICS, SUMMARY, WEIGHTS, checkpoints

TIMED = "steps_per_second"
PATIENCE = 1_800  # seconds for a start and a checkpoint, on a machine that is busy with other work


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "nfdrl", "train", "--no-progress", *words]


def fresh(out: Path, args: argparse.Namespace) -> list[str]:
    kind = SCENARIOS[args.scenario]
    every = ["--checkpoint-every", str(kind.every), "--evaluate", "0", "--seed", str(args.seed)]
    line = ["--method", args.method, "--env", kind.env, "--steps", str(args.steps), *every, "--out", str(out)]
    return command(*line, "--set", *kind.settings)


def newest_step(out: Path) -> int:
    found = checkpoints(out)
    return int(found[0].name.removeprefix("step-")) if found else 0


def writing(out: Path) -> bool:
    return any((out / CHECKPOINTS).glob(".step-*.tmp"))


def kill_once(line: list[str], out: Path, kind: str, rng: random.Random) -> dict[str, object] | None:
    """Start, wait for the moment, kill; None if the run ended first."""
    before = newest_step(out)
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        if kind == "start":
            time.sleep(rng.uniform(0.2, 2.5))
        else:
            wait_until = time.monotonic() + PATIENCE
            while newest_step(out) <= before and process.poll() is None and time.monotonic() < wait_until:
                time.sleep(0.002)
            if kind == "training":
                time.sleep(rng.uniform(0.0, 0.8))
            else:
                while not writing(out) and process.poll() is None:
                    time.sleep(0.0005)
                time.sleep(rng.choice([0.0, 0.0, 0.001, 0.003, 0.01]))
        over = process.poll() is not None
        process.kill()
        _, error = process.communicate()
    if over:
        if process.returncode:
            raise SystemExit(f"a run ended with {process.returncode}: {error}")
        return None
    return {"kind": kind, "before": before, "after": newest_step(out), "left_half_written": writing(out)}


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / METRICS).open() as file:
        return [{name: value for name, value in row.items() if name != TIMED} for row in csv.DictReader(file)]


def last_row(out: Path) -> int:
    try:
        return int(rows_of(out)[-1]["step"])
    except (OSError, IndexError, ValueError, TypeError, KeyError):
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=36)
    parser.add_argument("--minutes", type=float, help="stop killing after these, with fewer kills")
    parser.add_argument("--scenario", choices=SCENARIOS, default="cartpole")
    parser.add_argument("--steps", type=int, help="by default the scenario's")
    parser.add_argument("--method", default="iqn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/soak-kills.json"))
    args = parser.parse_args()
    kind = SCENARIOS[args.scenario]
    args.steps = args.steps or kind.steps
    rng, kills, started = random.Random(args.seed), [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run, whole = Path(folder) / "run", Path(folder) / "whole"
        line, lost = fresh(run, args), 0
        until = math.inf if args.minutes is None else started + 60 * args.minutes
        while len(kills) < args.kills and time.monotonic() < until:
            when = rng.choice(["training", "training", "checkpoint", "checkpoint", "start"] if kills else ["training"])
            made = kill_once(line, run, when, rng)
            if made is None:
                break
            kills.append(made)
            if (run / CONFIG).exists():
                line = command("--resume", str(run))
            lost = max(lost, last_row(run) - newest_step(run))
            print(f"kill {len(kills)}: {made}", flush=True)
        if not (run / SUMMARY).exists():  # a kill on its way out finds a finished run
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(fresh(whole, args), check=True, stdout=subprocess.DEVNULL)
        first, second = (checkpoints(out)[0] for out in (run, whole))
        states = [read(path).state for path in (first, second)]
        result = {
            "kills": len(kills),
            "by_kind": {when: sum(k["kind"] == when for k in kills) for when in ("training", "checkpoint", "start")},
            "half_written_checkpoints_left": sum(
                bool(k["left_half_written"]) for k in kills if k["kind"] == "checkpoint"
            ),
            "most_steps_lost": lost,
            "scenario": args.scenario,
            "checkpoint_every": kind.every,
            "steps": args.steps,
            "method": args.method,
            "seed": args.seed,
            "same_weights": (first / WEIGHTS).read_bytes() == (second / WEIGHTS).read_bytes(),
            "same_metrics": rows_of(run) == rows_of(whole),
            "same_generator": states[0]["rng"] == states[1]["rng"],
            "rows": len(rows_of(run)),
            "seconds": round(time.monotonic() - started),
            "hardware": hardware(),
        }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    whole_enough = (len(kills) >= args.kills or args.minutes is not None) and lost <= kind.every + 16
    return 0 if whole_enough and all(result[f"same_{name}"] for name in ("weights", "metrics", "generator")) else 1


if __name__ == "__main__":
    sys.exit(main())
