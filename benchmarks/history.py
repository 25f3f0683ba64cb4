"""What keeps a learned law from the best of its family: the noise of samples, or targets that are learned themselves?

python benchmarks/history.py --seeds 0 1 2 --out results/history.json

A table of anchored laws learns FrozenLake's from four kinds of targets, with the same start, loss, rates and updates:
the exact laws; sampled outcomes whose following laws are exact; all outcomes, whose following laws are the table's own;
and sampled outcomes with the table's own, which is what `nfdrl compare` does with a batch of 128.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import torch

from nfdrl.engines.compiled import flow
from nfdrl.engines.compiled.jit import Array
from nfdrl.engines.compiled.kernels import FlowKernel, kernel_of
from nfdrl.evaluation.comparison import Problem
from nfdrl.evaluation.distances import batch_distances
from nfdrl.evaluation.problems import discount_for, finite_mdp
from nfdrl.laws.anchored import AnchoredMethod, anchored_law
from nfdrl.laws.fitting import quantiles_of
from nfdrl.numerics.base_points import base_points
from nfdrl.progress import Progress
from nfdrl.provenance import hardware
from nfdrl.training.schedules import decay

OUTCOMES = 3  # sampled per pair and update: 132 transitions for 44 pairs
LEVELS = 1_024  # quantiles of an exact law

Target = Callable[[Array], Array]  # the table's returns (pairs, N) → sorted returns (pairs, M)


class Lake:
    """FrozenLake with what a table of its live pairs needs."""

    def __init__(self) -> None:
        mdp = finite_mdp("FrozenLake-v1")
        self.problem = Problem.of("FrozenLake-v1", mdp, discount_for(mdp, None))
        self.pairs = np.asarray(self.problem.truth.pairs)
        self.index = {tuple(pair): row for row, pair in enumerate(self.pairs.tolist())}
        self.exact = {count: self._quantiles(count) for count in (64, LEVELS)}

    def _quantiles(self, count: int) -> Array:
        return np.asarray(quantiles_of(self.problem.truth.laws, count).float())

    def outcomes(self, rng: np.random.Generator | None) -> tuple[Array, Array, Array]:
        """Following pairs, rewards and discounts (pairs, K): sampled, or each of three equally likely ones."""
        mdp = self.problem.mdp
        if rng is not None:
            state, action = np.repeat(self.pairs, OUTCOMES, 0).T
            after, reward, ended = mdp.sample(state, action, rng)
        else:
            rows = [np.flatnonzero((mdp.state == s) & (mdp.action == a)) for s, a in self.pairs]
            flat = np.concatenate([np.repeat(row, np.rint(3 * mdp.probability[row]).astype(int)) for row in rows])
            after, reward, ended = mdp.next_state[flat], mdp.reward[flat], mdp.terminated[flat]
        chosen = self.problem.policy[after]
        following = [self.index.get(pair, 0) for pair in zip(after.tolist(), chosen.tolist(), strict=True)]
        kept = np.where(ended, 0.0, self.problem.discount)
        shape = (len(self.pairs), -1)
        return tuple(np.asarray(x, t).reshape(shape) for x, t in ((following, int), (reward, "f4"), (kept, "f4")))

    def bootstrapped(self, rng: np.random.Generator | None, exact: bool) -> Target:
        """r + γZ over outcomes, with the exact laws as Z or the table's own."""
        fixed = None if rng is not None else self.outcomes(None)

        def target(returns: Array) -> Array:
            following, reward, kept = fixed or self.outcomes(rng)
            after = (self.exact[64] if exact else returns)[following]
            moved = reward[:, :, None] + kept[:, :, None] * after
            return np.sort(moved.reshape(len(self.pairs), -1), 1)

        return target


def learn(
    lake: Lake, method: AnchoredMethod, target: Target, updates: int, seed: int, bars: Progress, text: str
) -> float:
    """The mean Cramér distance after that many updates of Adam on the whole table."""
    generator = torch.Generator().manual_seed(seed)
    kernel = kernel_of(method, generator)
    assert isinstance(kernel, FlowKernel)
    rows = len(lake.pairs)
    raw = np.zeros((rows, 3 * method.components + 1), np.float32)
    first, second = np.zeros_like(raw), np.zeros_like(raw)
    middles = base_points(method.samples, like=torch.empty(0)).numpy()
    for step in bars.track(range(updates), text, updates):
        z = base_points(method.samples, method.points, like=torch.empty(0), generator=generator).numpy()
        own, _ = flow.returns(raw, kernel._law, middles, 0)
        y, saved = flow.returns(raw, kernel._law, z, rows)
        _, slope = flow.merge(y, target(own).astype(np.float32))
        gradient = flow.gradient(slope * kernel._gain, raw, kernel._law, z, saved)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        rate = method.tabular_rate * decay(method.tabular_decay, step / updates)
        moved = first / (1 - 0.9 ** (step + 1)) / (np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8)
        raw = (raw - rate * moved).astype(np.float32)
    law = anchored_law(torch.from_numpy(raw), method.unit, method.anchor, method.start)
    return float(batch_distances(law, lake.problem.truth.laws)["cramer"].mean())


def main() -> None:
    """Learn from each kind of target with each seed, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=15_000)
    parser.add_argument("--out", type=Path, default=Path("out/history.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    lake = Lake()
    method = AnchoredMethod().within(*lake.problem.returns())
    kinds: dict[str, Callable[[np.random.Generator], Target]] = {
        "the exact laws": lambda _: lambda _: lake.exact[LEVELS],
        "sampled outcomes, exact laws after them": lambda rng: lake.bootstrapped(rng, exact=True),
        "all outcomes, learned laws after them": lambda _: lake.bootstrapped(None, exact=False),
        "sampled outcomes, learned laws after them": lambda rng: lake.bootstrapped(rng, exact=False),
    }
    rows = []
    with Progress() as bars:
        for kind, make in kinds.items():
            found = []
            for seed in given.seeds:
                target = make(np.random.default_rng(seed))
                found.append(learn(lake, method, target, given.updates, seed, bars, f"{kind}, seed {seed}"))
            rows.append({"targets": kind, "cramer": np.mean(found), "seeds": given.seeds, "of_seeds": found})
            print(f"{kind:42} {np.mean(found):.4f}  {', '.join(f'{value:.4f}' for value in found)}", flush=True)
    made = {"date": date.today().isoformat(), "hardware": hardware(), "updates": given.updates, "rows": rows}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
