"""Train on the risky cliff with default settings and its own discount; compare the laws of both ways with the truth.

python benchmarks/risky_cliff.py --seeds 0 1 2 3 4 5 6 7 8 9 --risks cvar:0.1 mean --out results/cliff/control.json

The short way must be seen to be known: an agent that avoids it meets few falls. `seen` is the CVaR of the law with the
frequencies of falls in the agent's own replay, `error` the standard error that so many steps along the edge leave. Both
actions do the same there, and an agent prefers the one with the milder law, which is the one that has been luckier so
far: `taken` is the CVaR with the frequencies after those actions alone, all that its Bellman targets hold.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import nfdrl
from nfdrl.envs.cliff import LONG, SHORT
from nfdrl.provenance import hardware

CONFIG = nfdrl.TrainConfig(discount=1.0)  # the cliff's own
EDGES, FALL, COST, ALPHA = (1, 2, 3), -1.0, -0.1, 0.1
SLIP = 0.03


def tail_mean(returns: list[float], masses: list[float], alpha: float) -> float:
    """CVaR of atoms."""
    total, left = 0.0, alpha
    for value, mass in sorted(zip(returns, masses, strict=True)):
        used = min(mass, left)
        total, left = total + used * value, left - used
    return total / alpha


def short_cvar(falls: list[float], discount: float) -> float:
    """CVaR of the short way, where each step from an edge cell is a fall with the given probability."""
    returns, masses, alive, paid, factor = [], [], 1.0, COST, discount
    for fall in falls:
        paid += factor * COST
        returns.append(paid + factor * FALL)
        masses.append(alive * fall)
        alive *= 1 - fall
        factor *= discount
    return tail_mean([*returns, paid], [*masses, alive], ALPHA)


def seen_falls(agent: nfdrl.Agent, taken: bool = False) -> tuple[list[float], list[int]]:
    """The share of falls from each edge cell in the agent's replay, and how often each was left.

    With `taken`, after the actions that the agent now takes there.
    """
    replay = agent.trainer.replay
    states = replay.storage.gather(np.arange(len(replay.live))).numpy().ravel()
    falls = []
    for edge in EDGES:
        left = replay.live & (states == edge)
        if taken:
            left &= replay.action == agent.predict(edge)[0]
        falls.append(replay.reward[left] < COST + FALL / 2)
    return [float(fell.mean()) for fell in falls], [len(fell) for fell in falls]


def standard_error(steps: list[int], discount: float) -> float:
    """Of the CVaR of the short way, where so many steps from each edge cell were seen: to first order, at the truth."""
    true, variance = [SLIP] * len(EDGES), 0.0
    for k, count in enumerate(steps):
        moved = [fall + 1e-6 * (i == k) for i, fall in enumerate(true)]
        slope = (short_cvar(moved, discount) - short_cvar(true, discount)) / 1e-6
        variance += slope**2 * SLIP * (1 - SLIP) / count
    return float(np.sqrt(variance))


def row(method: str, risk: str, seed: int, steps: int, config: nfdrl.TrainConfig = CONFIG) -> dict[str, Any]:
    """One run: the way it takes, and the CVaR of both."""
    agent = nfdrl.Agent(method, "nfdrl/RiskyCliff-v0", seed=seed, risk=risk, config=config).learn(steps, progress=False)
    discount = agent.config.discount
    law = agent.returns(0)
    cvar, std = law.cvar(ALPHA).tolist(), law.std().tolist()
    (falls, steps_seen), (falls_taken, _) = seen_falls(agent), seen_falls(agent, taken=True)
    return {
        "method": method,
        "risk": risk,
        "explore_by_mean": config.explore_by_mean,
        "learning_rate": agent.config.learning_rate,
        "seed": seed,
        "way": "short" if int(agent.predict(0)[0]) == SHORT else "long",
        "way by cvar": "short" if cvar[SHORT] > cvar[LONG] else "long",
        "short": round(cvar[SHORT], 4),
        "short, true": round(short_cvar([SLIP] * len(EDGES), discount), 4),
        "short, seen": round(short_cvar(falls, discount), 4),
        "short, error": round(standard_error(steps_seen, discount), 4),
        "short, taken": round(short_cvar(falls_taken, discount), 4),
        "long": round(cvar[LONG], 4),
        "long, true": round(sum(COST * discount**k for k in range(6)), 4),
        "long, std": round(std[LONG], 5),
        "walks": steps_seen[0],
    }


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["nfdrl"])
    parser.add_argument("--risks", nargs="+", default=["cvar:0.1", "mean"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--explore-by-mean", nargs="+", type=float, default=[CONFIG.explore_by_mean], metavar="SHARE")
    parser.add_argument("--rates", nargs="+", type=float, default=[None], help="learning rates; the method's own")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for method, risk, rate, share, seed in product(
        options.methods, options.risks, options.rates, options.explore_by_mean, options.seeds
    ):
        config = replace(CONFIG, learning_rate=rate, explore_by_mean=share)
        rows.append(row(method, risk, seed, options.steps, config))
        print(rows[-1], flush=True)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(
            json.dumps({"rows": rows, "date": date.today().isoformat(), "hardware": hardware()}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
