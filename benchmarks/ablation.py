"""From the paper's form to the anchored law, one change at a time, measured against exact laws.

Usage: `python benchmarks/ablation.py --out results/ablation`. Writes ablation.csv and ablation.json; finished cells are
kept under --cells. A softplus amplitude, which the package does not have, is defined here and learned through PyTorch's
graph.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nfdrl.errors import NfdrlError
from nfdrl.evaluation.comparison import DISTANCES, Budget, Contender, Problem, Store, stored_cell
from nfdrl.evaluation.problems import discount_for, finite_mdp
from nfdrl.laws import METHODS
from nfdrl.laws.anchored import AnchoredMethod, anchored_law
from nfdrl.laws.base import Law, LinearHead, Method, TabularDecay
from nfdrl.laws.flow import FlowLaw, inverse_softplus
from nfdrl.losses.exact import Exact
from nfdrl.progress import Progress
from nfdrl.reports import provenance, write_report

ENVS = "FrozenLake-v1,cliff,mdp3"


def softplus_law(raw: Tensor, unit: float, anchor: float | None, start: float) -> FlowLaw:
    """y(z) = c + Σᵢ aᵢ[Φ((z − μᵢ)/σᵢ) − κᵢ] with aᵢ = softplus(raw) · unit; without an anchor, κᵢ = ½.

    Zeros give amplitudes of `start` units.

    Shapes: (..., 3n + 1) → batch shape (...)
    """
    n = raw.shape[-1] // 3
    sizes = nn.functional.softplus(raw[..., :n] + inverse_softplus(start)) - start  # anchored_law takes |start + raw|
    law = anchored_law(torch.cat([sizes, raw[..., n:]], -1), unit, anchor or 0.0, start)
    if anchor is None:
        return FlowLaw(law.weights, law.locations, law.scales, law.bound, unit * raw[..., -1], validate=False)
    return law


class SoftplusHead(LinearHead):
    """A linear layer read as a flow law with softplus amplitudes."""

    def __init__(self, features: int, actions: int, inner: AnchoredMethod, anchor: float | None) -> None:
        super().__init__(features, actions, 3 * inner.components + 1)
        self.inner, self.anchor = inner, anchor
        nn.init.normal_(self.linear.weight, std=0.01 / features**0.5)
        nn.init.zeros_(self.linear.bias)

    def read(self, raw: Tensor) -> FlowLaw:
        """The laws of all actions."""
        return softplus_law(self.by_action(raw), self.inner.unit, self.anchor, self.inner.start)


@dataclass(frozen=True)
class SoftplusMethod(Method):
    """The anchored method with softplus amplitudes; `anchor` None puts the location in the middle of the support."""

    anchor: float | None = None
    inner: AnchoredMethod = field(default_factory=lambda: ANCHORED)

    @property
    def tabular_rate(self) -> float:
        """The anchored law's."""
        return self.inner.tabular_rate

    @property
    def tabular_decay(self) -> TabularDecay:
        """The anchored law's."""
        return self.inner.tabular_decay

    @property
    def tabular_forgets(self) -> bool:
        """The anchored law's."""
        return self.inner.tabular_forgets

    def head(self, features: int, actions: int) -> SoftplusHead:
        """A head with softplus amplitudes."""
        return SoftplusHead(features, actions, self.inner, self.anchor)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:
        """The anchored law's."""
        return self.inner.loss(predicted, target, generator)


Rung = Callable[[float, float], Method]  # lowest and highest return → method

ANCHORED = AnchoredMethod(comparison=Exact())
LADDER: dict[str, Rung] = {
    "paper's form": lambda low, high: METHODS["nfdrl-e"].within(low, high),
    "free location": lambda low, high: SoftplusMethod(None, replace(ANCHORED, unit=high - low)),
    "anchor s = 1": lambda low, high: SoftplusMethod(1.0, replace(ANCHORED, unit=high - low)),
    "|raw|": lambda low, high: replace(ANCHORED, anchor=1.0, unit=high - low),
    "s = ½": lambda low, high: replace(ANCHORED, anchor=0.5, unit=high - low),
    "unit = range/4": lambda low, high: ANCHORED.within(low, high),
    "continuous": lambda low, high: METHODS["nfdrl"].within(low, high),
    "s = 0 instead": lambda low, high: AnchoredMethod(anchor=0.0).within(low, high),
    "s = 1 instead": lambda low, high: AnchoredMethod(anchor=1.0).within(low, high),
}


def measure(problem: Problem, label: str, seeds: int, budget: Budget, store: Store, bars: Progress) -> dict[str, Any]:
    """One rung on one problem: mean distances over all pairs, and their spread over seeds."""
    method = LADDER[label](*problem.returns())

    def track(steps: Iterable[int], text: str) -> Iterable[int]:
        return bars.track(steps, text)

    contender = Contender(label, method)
    cells = [stored_cell(store, problem, contender, seed, budget, track) for seed in range(seeds)]
    row: dict[str, Any] = {"env": problem.label, "form": label, "seeds": seeds, "updates": budget.updates}
    for name in DISTANCES:
        means = np.array([np.mean(cell["distances"][name]) for cell in cells])
        row |= {name: means.mean(), f"{name}_std": means.std(ddof=1) if seeds > 1 else None}
        row |= {f"{name}_of_seeds": means.tolist()}
    return row | {"outputs": cells[0]["outputs"], "rate": method.tabular_rate, "settings": repr(method)}


def main(argv: list[str]) -> None:
    """Climb the ladder on every problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", default=ENVS)
    parser.add_argument("--steps", type=int, default=15_000, help="updates")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cells", type=Path, default=Path("out/ablation"))
    parser.add_argument("--out", type=Path, default=Path("results/ablation"))
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    budget, store = Budget(given.steps, given.batch), Store(given.cells)
    command = shlex.join(["python", "benchmarks/ablation.py", *argv])
    begun, rows = time.perf_counter(), []
    with Progress() as bars:
        for word in given.envs.split(","):
            mdp = finite_mdp(word)
            problem = Problem.of(word, mdp, discount_for(mdp, None))
            for label in LADDER:
                rows.append(row := measure(problem, label, given.seeds, budget, store, bars))
                found = ", ".join(f"{name} {row[name]:.4f}" for name in DISTANCES)
                print(f"{word:14} {label:15} {found}", flush=True)
            metrics = {**provenance(command, time.perf_counter() - begun), "rows": rows}
            write_report(given.out, metrics, tables={"ablation": rows}, name="ablation")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NfdrlError as error:
        raise SystemExit(f"error: {error}") from None
