"""How much the learning rate matters to the default law: every problem of `nfdrl compare` with several rates.

python benchmarks/rates.py --rates 3e-3 4e-3 6e-3 1e-2 2e-2 --seeds 12 --out results/rates.json
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nfdrl.evaluation.comparison import Problem
from nfdrl.evaluation.distances import batch_distances
from nfdrl.evaluation.problems import discount_for, finite_mdp
from nfdrl.laws import METHODS
from nfdrl.progress import Progress
from nfdrl.provenance import hardware
from nfdrl.training.policy_laws import PolicyLearning, learn_policy_laws

METHOD = METHODS["nfdrl"]


def measure(problem: Problem, rate: float, seed: int, given: argparse.Namespace, bars: Progress) -> dict[str, float]:
    """Mean distances over all pairs."""
    learning = PolicyLearning.of(METHOD, given.steps, given.batch, rate)
    if given.plain:
        learning = replace(learning, usual_rate=None)
    learned = learn_policy_laws(
        problem.mdp, problem.policy, METHOD.within(*problem.returns()), learning,
        discount=problem.discount, seed=seed,
        track=lambda steps: bars.track(steps, f"{problem.label}, rate {rate:g}, seed {seed}"),
    )  # fmt: skip
    measured = batch_distances(learned.laws(problem.truth.pairs), problem.truth.laws)
    return {name: float(measured[name].mean()) for name in ("cramer", "cvar_error")}


def main() -> None:
    """Learn with each rate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=["FrozenLake-v1", "mdp1", "mdp2", "mdp3", "cliff"])
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-3, 4e-3, 6e-3, 1e-2, 2e-2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[12])
    parser.add_argument("--steps", type=int, default=15_000, help="updates")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--plain", action="store_true", help="a rate that does not forget where it began")
    parser.add_argument("--out", type=Path, default=Path("out/rates.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with Progress() as bars:
        for env in given.envs:
            mdp = finite_mdp(env)
            problem = Problem.of(env, mdp, discount_for(mdp, None))
            for rate in given.rates:
                found = [measure(problem, rate, seed, given, bars) for seed in given.seeds]
                row = {name: np.mean([one[name] for one in found]) for name in found[0]}
                rows.append({"env": env, "rate": rate, "seeds": given.seeds, **row})
                print(f"{env:14} {rate:g}  cramer {row['cramer']:.4f}  cvar_error {row['cvar_error']:.4f}", flush=True)
    made = {
        "date": date.today().isoformat(),
        "hardware": hardware(),
        "updates": given.steps,
        "plain": given.plain,
        "rows": rows,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
