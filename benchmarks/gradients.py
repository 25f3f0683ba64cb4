"""How large gradients are beside Adam's ε: below it, a weight moves more slowly than Adam means it to.

python benchmarks/gradients.py --out results/bench/gradients.json

Trains each method for a while on Pong with the preset `atari`, on MinAtar's Breakout with the preset `minatar`, and on
CartPole with default settings. For each layer: the mean over its weights of √v, Adam's own estimate of the size of a
gradient, and the share of weights where it is below ε.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

import nfdrl
from nfdrl.laws import find_method
from nfdrl.progress import Progress
from nfdrl.provenance import hardware
from nfdrl.training.presets import find_preset

METHODS = ("nfdrl", "nfdrl[gain=1]", "nfdrl-s", "nfdrl-e", "c51", "qr-dqn", "dqn")
# A small replay and an early start: sizes of gradients need no memory of their own.
STUDIES = {
    "pong": ("ALE/Pong-v5", "atari", {"learning_starts": 800, "buffer_size": 4_000, "double_q": False}),
    "minatar": ("MinAtar/Breakout-v1", "minatar", {"learning_starts": 800, "buffer_size": 4_000}),
    "cartpole": ("CartPole-v1", "default", {}),
}


def measure(study: str, name: str, steps: int, seed: int) -> list[dict[str, Any]]:
    """A row per layer."""
    env, preset_name, changed = STUDIES[study]
    preset = find_preset(preset_name)
    method = find_method(name, preset.adapt)
    config = replace(preset.config, **changed)
    agent = nfdrl.Agent(method, env, seed=seed, config=config, device="cpu")
    agent.learn(steps, total_steps=100_000, progress=False)
    learner, done = agent.learner, agent.learner.optimizer.state["step"].item()
    # Adam's means start from zero; divided by 1 − β₂ᵗ they are free of that.
    size = (learner.optimizer.state["square"] / (1 - 0.999**done)).sqrt()
    learner._gradient.zero_()
    learner._gradient[: len(size)] = size  # in the order of the parameters, each of which has its view of it
    rows = []
    for layer, parameter in learner.online.named_parameters():
        if parameter.ndim > 1 and parameter.grad is not None:
            sizes = parameter.grad
            found = {"mean": float(sizes.mean()), "below eps": float((sizes < config.adam_eps).float().mean())}
            rows.append({"env": env, "method": name, "layer": layer, "updates": learner.updates, **found})
    agent.close()
    return rows


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(STUDIES), choices=list(STUDIES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--steps", type=int, default=2_400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    cells = [(study, name) for study in given.envs for name in given.methods]
    with Progress() as bars:
        for study, name in bars.track(cells, "gradients"):
            found = measure(study, name, given.steps, given.seed)
            rows += found
            layers = ", ".join(f"{row['mean']:.1e} ({row['below eps']:.0%})" for row in found)
            print(f"{study:9} {name:13} {layers}", flush=True)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        made = {"date": date.today().isoformat(), "hardware": hardware(), "seed": given.seed, "steps": given.steps}
        given.out.write_text(json.dumps(made | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
