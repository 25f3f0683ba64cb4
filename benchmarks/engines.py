"""How much faster the compiled engine is than PyTorch's graph: an update of each method with its default settings.

python benchmarks/engines.py --out results/bench/engines.json

Batch 64 and Double-Q, as in training, on one thread: on the torso for eight numbers (two layers of 128 units), and on
one of 16 states as one-hot rows. The engines take turns, and ratios are medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
import torch

from nfdrl.engines import EngineName
from nfdrl.laws import METHODS
from nfdrl.learner import Learner, Optimisation
from nfdrl.networks import network_for
from nfdrl.progress import Progress
from nfdrl.provenance import hardware
from nfdrl.replay import Batch
from nfdrl.threads import threads
from nfdrl.torsos import TorsoSizes

ACTIONS, ROWS = 4, 64
SPACES: dict[str, gymnasium.Space[Any]] = {
    "numbers": gymnasium.spaces.Box(-1, 1, (8,), np.float32),
    "states": gymnasium.spaces.Discrete(16),
}
ENGINES: tuple[EngineName, ...] = ("compiled", "graph")


def batch_of(space: gymnasium.Space[Any], seed: int) -> Batch:
    """Random transitions."""
    rng = np.random.default_rng(seed)
    space.seed(seed)
    before, after = (torch.from_numpy(np.stack([space.sample() for _ in range(ROWS)])) for _ in range(2))
    action = torch.from_numpy(rng.integers(ACTIONS, size=ROWS))
    reward = torch.from_numpy(rng.normal(size=ROWS).astype(np.float32))
    return Batch(before, action, reward, torch.full((ROWS,), 0.97), after)


def seconds(learner: Learner, batch: Batch, least: float) -> float:
    """Per update, over at least so many seconds."""
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < least or not done:
        learner.update(batch)
        done += 1
    return (time.perf_counter() - started) / done


def measure(name: str, space: str, rounds: int, least: float) -> dict[str, Any]:
    """Milliseconds per update on each engine, and their ratio."""
    settings = {"adam_eps": 1e-5, "max_grad_norm": 10.0, "target_every": 250, "double_q": True}
    learners, batch = [], batch_of(SPACES[space], 0)
    for engine in ENGINES:
        network = network_for(METHODS[name], SPACES[space], ACTIONS, TorsoSizes(), seed=0)
        generator = torch.Generator().manual_seed(0)
        optimisation = Optimisation(METHODS[name].learning_rate, engine=engine, **settings)
        learners.append(Learner(METHODS[name], network, optimisation, generator=generator))
        learners[-1].update(batch)  # what is compiled at first use is compiled now
    times = [[seconds(learner, batch, least) for learner in learners] for _ in range(rounds)]
    compiled, graph = (1e3 * median(column) for column in zip(*times, strict=True))
    ratio = median(slow / fast for fast, slow in times)
    return {"method": name, "torso": space, "compiled, ms": compiled, "graph, ms": graph, "ratio": ratio}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of one turn")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    cells = [(name, space) for name in given.methods for space in SPACES]
    with threads(1), Progress() as bars:
        for name, space in bars.track(cells, "engines"):
            rows.append(measure(name, space, given.rounds, given.seconds))
            times = f"{rows[-1]['compiled, ms']:7.2f} ms, graph {rows[-1]['graph, ms']:7.2f} ms"
            print(f"{name:8} {space:8} compiled {times}: {rows[-1]['ratio']:.1f} ×", flush=True)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        made = {"date": date.today().isoformat(), "hardware": hardware(), "rounds": given.rounds, "rows": rows}
        given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
