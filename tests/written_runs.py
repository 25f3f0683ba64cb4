"""Runs whose numbers are written by hand."""

import csv
import json

HEAD = "step,episodes,episode_return,steps_per_second\n"


def write_run(folder, score, *, env="CartPole-v1", method="dqn", seed=0, own=None, **changed):
    """A run of 200 steps in two lines, 1 second each, with an evaluation of two episodes; no score: not evaluated."""
    train = {"learning_rate": 1e-3, "report_every": 100} | changed.pop("train", {})
    config = {"method": {"name": method, "settings": own or {}}, "env": env, "seed": seed, "risk": "mean", "steps": 200}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config | {"train": train} | changed))
    (folder / "metrics.csv").write_text(HEAD + f"100,2,{score or 1},100\n200,4,{score or 2},100\n")
    if score is not None:
        evaluation = {"mean": score, "std": 1.0, "returns": [score - 1, score + 1]}
        (folder / "metrics.json").write_text(json.dumps({"evaluation": evaluation}))


def reported(out, name):
    """The rows of a table that `nfdrl report` wrote."""
    with (out / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))
