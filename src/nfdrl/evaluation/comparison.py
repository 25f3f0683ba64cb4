"""Every method on one finite MDP: how far its learned laws are from the exact ones, and how near they could be.

All methods evaluate the same policy from equally many sampled transitions. What stays between a learned law and the
truth has two parts. The family's limit is the distance of the best law that the representation can hold; the rest is
what learning left.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from nfdrl.envs.finite import FiniteMDP, Floats, Ints
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.distances import batch_distances
from nfdrl.evaluation.limits import FIT_LEVELS, REFINING, Fit, Track, family_limits
from nfdrl.evaluation.truth import ReturnTruth, exact_returns
from nfdrl.laws.base import Method
from nfdrl.laws.dirac import DQN
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.fraction import FQF
from nfdrl.laws.implicit import IQN
from nfdrl.laws.quantile import QRDQN
from nfdrl.losses.exact import Exact
from nfdrl.networks import Network, table
from nfdrl.training.policy_evaluation import Evaluation, embedded_table, evaluate_policy
from nfdrl.training.ranges import within

Build = Callable[[Method, int, int], Network]

DISTANCES = ("cramer", "w1", "mean_error", "cvar_error")
RANGE_SETTINGS = frozenset({"v_min", "v_max", "initial_bound"})
REACH = 4.0  # standard deviations of a Gaussian that a support has to hold
FIT_PAIRS = 64  # a limit is the mean over at most so many pairs, evenly picked

# Adam's first rate, which falls linearly to 0: for each the best of a small grid, 128 transitions an update.
# FrozenLake: C51, QR-DQN, ER-DQN and DQN (by its mean) of 5e-3, 2e-2, 5e-2 after 2,500 to 4,000 updates; FQF of 3e-4,
# 1e-3, 3e-3 after 500; UMDQN of 1e-3, 3e-3 after 200; NFDRL-E of 1e-2, 2e-2, 5e-2 after 2,500. MDP3: IQN of 1e-3, 3e-3
# after 1,000. NFDRL-S was not searched.
LEARNING_RATES: dict[str, float] = {
    "dqn": 2e-2,
    "c51": 5e-3,
    "qr-dqn": 5e-2,
    "iqn": 3e-3,
    "fqf": 3e-3,
    "er-dqn": 5e-3,
    "umdqn": 1e-3,
    "nfdrl-s": 2e-2,
    "nfdrl-e": 1e-2,
}
# Methods whose head multiplies features, for which one-hot rows are too poor; all others are plain tables.
EMBEDDED = ("iqn", "fqf")


@dataclass(frozen=True)
class Budget:
    """How much every method may learn, and how well the limits are fitted."""

    updates: int = 15_000
    batch_size: int = 128
    fit_updates: int = 2_000
    fit_restarts: int = 16

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        for name, value in asdict(self).items():
            if value < 1:
                raise NfdrlError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True)
class Contender:
    """A method under the name it was asked for; settings that were `given` are left alone."""

    label: str
    name: str
    method: Method
    given: frozenset[str] = frozenset()

    @property
    def learning_rate(self) -> float:
        """The rate of its family."""
        return LEARNING_RATES[self.name]

    @property
    def build(self) -> Build:
        """The network that its family learns with."""
        return embedded_table if self.name in EMBEDDED else table

    def for_returns(self, low: float, high: float) -> Contender:
        """The same, ready for returns in [low, high]: a support or an initial bound that holds them, no Huber part.

        The published κ = 1 suits returns much larger than 1. On smaller ones it turns quantiles into expectiles.
        """
        method: Any = self.method if RANGE_SETTINGS & self.given else within(self.method, low, high)
        if "huber_threshold" not in self.given:
            if isinstance(method, DQN):
                method = replace(method, huber_threshold=None)
            elif isinstance(method, (QRDQN, IQN, FQF)):
                method = replace(method, huber_threshold=0.0)
        return replace(self, method=method)


@dataclass(frozen=True)
class Problem:
    """A finite MDP with its optimal policy and the exact law of every live pair."""

    label: str
    mdp: FiniteMDP
    discount: float
    policy: Ints
    truth: ReturnTruth

    @classmethod
    def of(cls, label: str, mdp: FiniteMDP, discount: float) -> Problem:
        """Solve the MDP."""
        policy = mdp.optimal_policy(discount)
        return cls(label, mdp, discount, policy, exact_returns(mdp, policy, discount))

    def returns(self) -> tuple[float, float]:
        """A range that holds the returns of all pairs: all atoms, and `REACH` deviations of every Gaussian."""
        low = min(float((law.means - REACH * law.stds).min()) for law in self.truth.laws)
        high = max(float((law.means + REACH * law.stds).max()) for law in self.truth.laws)
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def names(self, pair: int) -> tuple[str, str]:
        """State and action of a live pair as the MDP calls them."""
        state, action = self.truth.pairs[pair].tolist()
        states, actions = self.mdp.state_names, self.mdp.action_names
        return states[state] if states else str(state), actions[action] if actions else str(action)


def run_cell(problem: Problem, contender: Contender, seed: int, budget: Budget, track: Track) -> dict[str, Any]:
    """Learn with one method and one seed; distances of every pair, sizes and the time of an update."""
    settings = Evaluation(budget.updates, budget.batch_size, contender.learning_rate)
    clock = _Clock(lambda steps: track(steps, f"{problem.label}: {contender.label}, seed {seed}"))
    learned = evaluate_policy(
        problem.mdp, problem.policy, contender.method, settings,
        discount=problem.discount, seed=seed, network=contender.build, track=clock,
    )  # fmt: skip
    measured = batch_distances(learned.laws(problem.truth.pairs), problem.truth.laws)
    return {
        "distances": {name: values.tolist() for name, values in measured.items()},
        "milliseconds": clock.median_milliseconds(),
        **sizes(learned.network, problem.mdp.n_actions),
    }


def sizes(network: Network, actions: int) -> dict[str, int | None]:
    """Outputs an action (None where the head is more than one linear layer) and parameters of head and network."""
    linear = getattr(network.head, "linear", None)
    return {
        "outputs": linear.out_features // actions if isinstance(linear, nn.Linear) else None,
        "head_parameters": sum(p.numel() for p in network.head.parameters()),
        "parameters": sum(p.numel() for p in network.parameters()),
    }


class _Clock:
    """Passes steps on and notes when each begins."""

    def __init__(self, track: Callable[[Iterable[int]], Iterable[int]]) -> None:
        self._track = track
        self._ticks: list[float] = []

    def __call__(self, steps: Iterable[int]) -> Iterator[int]:
        for step in self._track(steps):
            self._ticks.append(time.perf_counter())
            yield step
        self._ticks.append(time.perf_counter())

    def median_milliseconds(self) -> float:
        return float(1e3 * np.median(np.diff(self._ticks)))


def limit_pairs(problem: Problem) -> Ints:
    """The pairs that limits are computed for: all, or `FIT_PAIRS` evenly picked ones."""
    count = len(problem.truth)
    return np.unique(np.linspace(0, count - 1, min(count, FIT_PAIRS)).round().astype(np.int64))


@dataclass(frozen=True)
class Store:
    """Finished parts as small JSON files, each with the settings that it belongs to."""

    folder: Path
    overwrite: bool = False

    def get(self, name: str, settings: dict[str, Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The stored result where its settings are these; otherwise computed and stored."""
        path = self.folder / f"{re.sub(r'[^A-Za-z0-9.=]+', '-', name).strip('-')}.json"
        if not self.overwrite and (found := _read(path)) is not None and found.get("settings") == settings:
            return dict(found["result"])
        result = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"settings": settings, "result": result}) + "\n", encoding="utf-8")
        os.replace(unfinished, path)
        return result


def _read(path: Path) -> dict[str, Any] | None:
    """What a stored file says; None where there is none, or a broken one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def stored_cell(
    store: Store, problem: Problem, contender: Contender, seed: int, budget: Budget, track: Track
) -> dict[str, Any]:
    """`run_cell`, unless the store has it."""
    settings = {
        "env": problem.label,
        "discount": problem.discount,
        "method": repr(contender.method),
        "seed": seed,
        "updates": budget.updates,
        "batch_size": budget.batch_size,
        "learning_rate": contender.learning_rate,
    }
    name = f"{problem.label}-{contender.label}-seed{seed}"
    return store.get(name, settings, lambda: run_cell(problem, contender, seed, budget, track))


def stored_limits(
    store: Store, problem: Problem, contender: Contender, budget: Budget, track: Track
) -> dict[int, float]:
    """The family's limit for pairs by their index, unless the store has it; flows of one shape share theirs."""
    method, name = contender.method, contender.label
    if isinstance(method, FlowMethod):
        method = replace(method, comparison=Exact(), samples=FIT_LEVELS, points="midpoint", terminal_std=0)
        name = f"flow-{method.components}x{method.n_flows}"
    chosen = limit_pairs(problem)

    def compute() -> dict[str, Any]:
        fit = Fit(budget.fit_updates, budget.fit_restarts)
        limits = family_limits(method, [problem.truth.laws[k] for k in chosen], fit, track)
        return {"limits": None if limits is None else limits.tolist()}

    fit = {"updates": budget.fit_updates, "restarts": budget.fit_restarts, "refining": REFINING}
    settings = {"env": problem.label, "discount": problem.discount, "method": repr(method), "fit": fit}
    limits = store.get(f"{problem.label}-limit-{name}", settings, compute)["limits"]
    return {} if limits is None else dict(zip(chosen.tolist(), limits, strict=True))


@dataclass(frozen=True)
class Entry:
    """One line of the comparison: a method on a problem, all its seeds, and its family's limits by pair."""

    problem: Problem
    contender: Contender
    budget: Budget
    cells: list[dict[str, Any]]
    limits: dict[int, float]

    def values(self, distance: str) -> Floats:
        """The distance of each seed and pair; shape (K, P)."""
        return np.array([cell["distances"][distance] for cell in self.cells], dtype=np.float64)

    def summary(self) -> dict[str, Any]:
        """Means over pairs, their mean and spread over seeds, sizes and time."""
        row: dict[str, Any] = {"method": self.contender.label, "env": self.problem.label}
        for name in DISTANCES:
            seeds = self.values(name).mean(-1)
            row |= {name: seeds.mean(), f"{name}_std": seeds.std(ddof=1) if len(seeds) > 1 else None}
        first = self.cells[0]
        return row | {
            "limit": np.mean(list(self.limits.values())) if self.limits else None,
            "outputs": first["outputs"],
            "head_parameters": first["head_parameters"],
            "parameters": first["parameters"],
            "milliseconds": np.median([cell["milliseconds"] for cell in self.cells]),
            "cramer_of_seeds": self.values("cramer").mean(-1).tolist(),
            "discount": self.problem.discount,
            "updates": self.budget.updates,
            "batch_size": self.budget.batch_size,
            "learning_rate": self.contender.learning_rate,
            "truth": self.problem.truth.kind,
            "settings": repr(self.contender.method),
        }

    def pairs(self) -> list[dict[str, Any]]:
        """One row for each live pair: distances as means over seeds, and the limit where it was computed."""
        means = {name: self.values(name).mean(0) for name in DISTANCES}
        rows = []
        for k in range(len(self.problem.truth)):
            state, action = self.problem.names(k)
            row: dict[str, Any] = {"env": self.problem.label, "method": self.contender.label}
            row |= {"state": state, "action": action} | {name: float(values[k]) for name, values in means.items()}
            rows.append(row | {"limit": self.limits.get(k)})
        return rows


def compare(
    problems: Sequence[Problem], contenders: Sequence[Contender], seeds: int, budget: Budget, store: Store, track: Track
) -> Iterator[Entry]:
    """Every method on every problem with seeds 0, 1, …; an entry as soon as its last seed is done."""
    if seeds < 1:
        raise NfdrlError(f"seeds must be at least 1, got {seeds}")
    for problem in problems:
        for contender in (one.for_returns(*problem.returns()) for one in contenders):
            limits = stored_limits(store, problem, contender, budget, track)
            cells = [stored_cell(store, problem, contender, seed, budget, track) for seed in range(seeds)]
            yield Entry(problem, contender, budget, cells, limits)
