"""Every method on one finite MDP: how far its learned laws are from the exact ones, and how near they could be.

All methods evaluate the same policy from equally many sampled transitions. The distance between a learned law and the
truth has two parts: the family's limit, which is the distance of the best law that the representation can hold, and
the rest, which is due to learning.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from nfdrl.envs.finite import FiniteMDP, Floats, Ints
from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.evaluation.distances import batch_distances
from nfdrl.evaluation.truth import ReturnTruth, exact_returns
from nfdrl.files import read_json, write_json
from nfdrl.laws.base import Method
from nfdrl.laws.fitting import Fit, Track
from nfdrl.networks import Network
from nfdrl.training.policy_laws import PolicyLearning, learn_policy_laws
from nfdrl.training.schedules import Decay

DISTANCES = ("cramer", "w1", "mean_error", "cvar_error")
REACH = 4.0  # standard deviations of a Gaussian that a support must hold
LONGEST_NAME = 160  # letters; file systems take 255 bytes, some of which a temporary file adds
FIT_PAIRS = 64  # a limit is the mean over at most this many evenly spaced pairs


@dataclass(frozen=True)
class Budget:
    """How much every method may learn, and how well the limits are fitted."""

    updates: int = 15_000
    batch_size: int = 128
    fit_updates: int = 2_000
    fit_restarts: int = 16
    learning_rate_decay: Decay | None = None  # how Adam's rate falls; by default as each method's does on a table

    def __post_init__(self) -> None:
        check_at_least(1, **{name: value for name, value in asdict(self).items() if name != "learning_rate_decay"})

    def learning(self, method: Method) -> PolicyLearning:
        """How the method learns a table of laws."""
        own, schedule = PolicyLearning.of(method, self.updates, self.batch_size), self.learning_rate_decay
        return own if schedule is None else replace(own, schedule=schedule, usual_rate=None)


@dataclass(frozen=True)
class Contender:
    """A method under the name it was asked for; settings that were `given` stay as they are."""

    label: str
    method: Method
    given: frozenset[str] = frozenset()

    def for_returns(self, low: float, high: float) -> Contender:
        """The same for returns in [low, high]: a support or an initial bound that holds them, and no Huber part.

        The published κ = 1 suits returns much larger than 1; on smaller ones it turns quantiles into expectiles.
        """
        method = self.method
        if not _differing(method.within(-1, 1), method.within(-2, 2)) & self.given:
            method = method.within(low, high)
        if not _differing(method, method.without_huber()) & self.given:
            method = method.without_huber()
        return replace(self, method=method)


def _differing(one: Method, other: Method) -> set[str]:
    """The settings in which two methods of one kind differ."""
    settings: Any = one
    return {field.name for field in fields(settings) if getattr(one, field.name) != getattr(other, field.name)}


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
        policy = mdp.optimal_policy(discount)
        return cls(label, mdp, discount, policy, exact_returns(mdp, policy, discount))

    def returns(self) -> tuple[float, float]:
        """A range that holds the returns of all pairs: all atoms, and `REACH` deviations of every Gaussian."""
        low = min(float((law.means - REACH * law.stds).min()) for law in self.truth.laws)
        high = max(float((law.means + REACH * law.stds).max()) for law in self.truth.laws)
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def names(self, pair: int) -> tuple[str, str]:
        """The MDP's names of a live pair's state and action."""
        state, action = self.truth.pairs[pair].tolist()
        states, actions = self.mdp.state_names, self.mdp.action_names
        return states[state] if states else str(state), actions[action] if actions else str(action)


def run_cell(problem: Problem, contender: Contender, seed: int, budget: Budget, track: Track) -> dict[str, Any]:
    """Learn with one method and one seed: distances of every pair, sizes, and the time per update."""
    clock = _Clock(lambda steps: track(steps, f"{problem.label}: {contender.label}, seed {seed}"))
    learned = learn_policy_laws(
        problem.mdp, problem.policy, contender.method, budget.learning(contender.method),
        discount=problem.discount, seed=seed, track=clock,
    )  # fmt: skip
    measured = batch_distances(learned.laws(problem.truth.pairs), problem.truth.laws)
    return {
        "distances": {name: values.tolist() for name, values in measured.items()},
        "milliseconds": clock.median_milliseconds(),
        **sizes(learned.network, problem.mdp.n_actions),
    }


def sizes(network: Network, actions: int) -> dict[str, int | None]:
    """Outputs per action (None if the head is more than one linear layer) and parameters of head and network."""
    linear = getattr(network.head, "linear", None)
    return {
        "outputs": linear.out_features // actions if isinstance(linear, nn.Linear) else None,
        "head_parameters": sum(p.numel() for p in network.head.parameters()),
        "parameters": sum(p.numel() for p in network.parameters()),
    }


class _Clock:
    """Passes steps through and records when each begins."""

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
    """The pairs for which limits are computed: all, or `FIT_PAIRS` evenly spaced ones."""
    count = len(problem.truth)
    return np.unique(np.linspace(0, count - 1, min(count, FIT_PAIRS)).round().astype(np.int64))


@dataclass(frozen=True)
class Store:
    """Finished parts as small JSON files, each with its settings."""

    folder: Path
    overwrite: bool = False

    def get(self, name: str, settings: dict[str, Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The stored result if its settings are these; otherwise it is computed and stored."""
        path = self.folder / f"{_file_name(name)}.json"
        if not self.overwrite and (found := _read(path)) is not None and found.get("settings") == settings:
            return dict(found["result"])
        result = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {"settings": settings, "result": result})
        return result


def _file_name(name: str) -> str:
    """A name as that of a file; one that no file system takes is cut, and told from others by its checksum."""
    plain = re.sub(r"[^A-Za-z0-9.=]+", "-", name).strip("-")
    return plain if len(plain) <= LONGEST_NAME else f"{plain[:LONGEST_NAME]}-{zlib.crc32(name.encode()):08x}"


def _read(path: Path) -> dict[str, Any] | None:
    """The content of a stored file; None if there is none or it is damaged."""
    try:
        return read_json(path)
    except (OSError, NfdrlError):
        return None


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
        "learning_rate": contender.method.tabular_rate,
    }
    learning = budget.learning(contender.method)
    if learning.schedule != "linear":
        settings["learning_rate_decay"] = learning.schedule
    if learning.usual_rate is not None:
        settings["usual_rate"] = learning.usual_rate
    name = f"{problem.label}-{contender.label}-seed{seed}"
    return store.get(name, settings, lambda: run_cell(problem, contender, seed, budget, track))


def stored_limits(
    store: Store, problem: Problem, contender: Contender, budget: Budget, track: Track
) -> dict[int, float]:
    """The family's limits by index of the pair, unless the store has them; flows of one shape share theirs."""
    method, represented = contender.method, contender.method.representation()
    chosen, fit = limit_pairs(problem), Fit(budget.fit_updates, budget.fit_restarts)

    def compute() -> dict[str, Any]:
        truths = [problem.truth.laws[k] for k in chosen]
        law = method.best_law(truths, fit, track)
        return {"limits": None if law is None else batch_distances(law, truths)["cramer"].tolist()}

    settings = {"env": problem.label, "discount": problem.discount, "method": represented, "fit": asdict(fit)}
    limits = store.get(f"{problem.label}-limit-{represented}", settings, compute)["limits"]
    return {} if limits is None else dict(zip(chosen.tolist(), limits, strict=True))


@dataclass(frozen=True)
class Entry:
    """One line of the comparison: a method on a problem, all its seeds, and its family's limits."""

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
            "learning_rate": self.contender.method.tabular_rate,
            "learning_rate_decay": self.budget.learning(self.contender.method).schedule,
            "truth": self.problem.truth.kind,
            "settings": repr(self.contender.method),
        }

    def pairs(self) -> list[dict[str, Any]]:
        """One row per live pair: distances as means over seeds, and the limit where it was computed."""
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
    check_at_least(1, seeds=seeds)
    for problem in problems:
        for contender in (one.for_returns(*problem.returns()) for one in contenders):
            limits = stored_limits(store, problem, contender, budget, track)
            cells = [stored_cell(store, problem, contender, seed, budget, track) for seed in range(seeds)]
            yield Entry(problem, contender, budget, cells, limits)
