"""Train several methods on several environments, and hold the laws of each against the returns that came.

Usage: `python benchmarks/calibration.py --envs cartpole,cliff --out results/calibration`.
Writes calibration.csv, calibration.json and a figure per environment. Runs are kept under --runs: finished ones are not
trained again, interrupted ones are resumed. Earlier rows of other environments stay in the table.
"""

from __future__ import annotations

import argparse
import io
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib
import torch

import nfdrl
from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.evaluation.calibration import Calibration
from nfdrl.evaluation.calibration_report import draw, said_of
from nfdrl.files import read_json, replace_file
from nfdrl.reports import DPI, provenance, write_report
from nfdrl.style import STYLE, color_of, label_of

METHODS = "nfdrl,nfdrl-s,c51,qr-dqn"


@dataclass(frozen=True)
class Study:
    """An environment, how long to train and to play in it, and which differences in the return do not count."""

    env: str
    steps: int
    episodes: int
    resolution: float
    discount: float = 0.99


STUDIES = {
    "cartpole": Study("CartPole-v1", 50_000, 200, resolution=1.0),  # one step's reward
    "cliff": Study("nfdrl/RiskyCliff-v0", 15_000, 1_000, resolution=0.02, discount=1.0),  # a fifth of a step's cost
    "lunarlander": Study("LunarLander-v3", 250_000, 200, resolution=0.0),
}


def trained(study: Study, method: str, seed: int, folder: Path) -> nfdrl.Agent:
    """The agent of a finished run, which is trained first if it has to be."""
    if not (folder / "config.json").exists():
        run = nfdrl.Run(
            folder, method, study.env, seed=seed, config=nfdrl.TrainConfig(discount=study.discount), evaluate=0
        )
    else:
        run = nfdrl.Run.resume(folder)
    if run.agent.step < study.steps:
        run.train(study.steps)
    return run.agent


def row_of(name: str, method: str, agent: nfdrl.Agent, found: Calibration) -> dict[str, object]:
    """A line of the table; bounds are those of a bootstrap over episodes."""
    row: dict[str, object] = {"env": name, "method": method, "settings": repr(agent.method), "seed": agent.seed}
    row |= {"steps": agent.step, **{f"played_{key}": value for key, value in found.counts.items()}}
    row |= {"states": len(found.episode), "uniformity": found.uniformity, "skill": found.skill}
    row |= {"crps_pooled": found.crps_pooled, "predicted_std": found.scores.std.mean()}
    estimates = {f"coverage_{level:g}": share for level, share in found.coverage.items()}
    estimates |= {"crps": found.crps, "bias": found.bias}
    for tail in found.tails:
        estimates |= {
            f"{part}_{tail.alpha:g}": getattr(tail, part) for part in ("below", "returns", "cvar", "shortfall")
        }
    for key, estimate in estimates.items():
        row |= {key: estimate.value, f"{key}_low": estimate.low, f"{key}_high": estimate.high}
    return row


def write_figure(path: Path, title: str, found: dict[str, Calibration]) -> None:
    """The figure of one environment: a row per method."""
    image = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        labelled = {label_of(method): (calibration, color_of(method)) for method, calibration in found.items()}
        draw(labelled, title).savefig(image, format="png", dpi=DPI)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, image.getvalue())


def earlier_rows(out: Path, again: list[str]) -> list[dict[str, object]]:
    """Rows of the table that this call does not compute again."""
    path = out / "calibration.json"
    return [row for row in read_json(path)["rows"] if row["env"] not in again] if path.exists() else []


def main(argv: list[str]) -> None:
    """Train, calibrate, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", default="cartpole,cliff")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("out/calibration"))
    parser.add_argument("--out", type=Path, default=Path("results/calibration"))
    parser.add_argument("--smoke", action="store_true", help="the same code in its smallest form")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    names = given.envs.split(",")
    for name in names:
        if name not in STUDIES:
            raise unknown_name("environment", name, STUDIES)
    rows = earlier_rows(given.out, names)
    for name in names:
        study = STUDIES[name]
        if given.smoke:
            study = replace(study, steps=1_100, episodes=4)
        found: dict[str, Calibration] = {}
        for method in given.methods.split(","):
            agent = trained(study, method, given.seed, given.runs / name / f"{method}-{given.seed}")
            found[method] = agent.calibration(study.episodes, resolution=study.resolution)
            rows.append(row_of(name, method, agent, found[method]))
            print(f"{name}, {method}: {said_of(found[method])}; p = {found[method].uniformity:.2g}", flush=True)
        title = f"{study.env}, {study.steps:,} steps, seed {given.seed}"
        write_figure(given.out / f"{name}.png", title, found)
        command = shlex.join(["python", "benchmarks/calibration.py", *argv])
        write_report(given.out, {**provenance(command), "rows": rows}, tables={"calibration": rows}, name="calibration")
    print(f"written: {given.out}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NfdrlError as error:
        raise SystemExit(f"error: {error}") from None
