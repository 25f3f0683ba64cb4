"""The return law of every state-action pair of a finite MDP: exact if possible, sampled otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from nfdrl.envs.finite import FiniteMDP, Floats, Ints, Rows
from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.laws.mixture import MixtureLaw

MERGE_TOLERANCE = 1e-12  # of the largest return: components closer than this are one component
NEGLIGIBLE = 1e-200  # a mass that would underflow a few steps later
MAX_STEPS = 100_000  # horizon after which an undiscounted episode is sampled instead
MAX_ROWS = 1_000_000  # components of all pairs together; beyond this, a step takes longer than sampling
ROLLOUTS = 20_000  # per pair; the 95 % band of the CDF is then 0.0096 wide on each side
CHUNK = 1_000_000  # episodes simulated side by side


@dataclass(frozen=True)
class ReturnTruth(Mapping[tuple[int, int], MixtureLaw]):
    """The return law of each pair: `truth[s, a]`.

    `error` bounds the W₁ distance to the real law when `kind` is "exact" (for an undiscounted MDP it is the
    probability that an episode still runs at the last step). When `kind` is "monte-carlo" it is the largest standard
    error of a mean, and `cdf_error` the half-width of the 95 % band of a CDF (Dvoretzky–Kiefer–Wolfowitz).
    """

    pairs: Ints
    laws: tuple[MixtureLaw, ...]
    kind: Literal["exact", "monte-carlo"]
    error: float
    steps: int
    cdf_error: float = 0.0
    _index: dict[tuple[int, int], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {(int(s), int(a)): k for k, (s, a) in enumerate(self.pairs)})

    def __getitem__(self, pair: tuple[int, int]) -> MixtureLaw:
        if pair not in self._index:
            raise NfdrlError(f"state-action pair {pair} is not live: no episode meets it")
        return self.laws[self._index[pair]]

    def __contains__(self, pair: object) -> bool:
        return pair in self._index

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self.laws)


def exact_returns(
    mdp: FiniteMDP,
    policy: ArrayLike,
    discount: float | None = None,
    *,
    pairs: ArrayLike | None = None,
    tolerance: float = 1e-9,
    max_atoms: int = 20_000,
    rollouts: int = ROLLOUTS,
    seed: int = 0,
) -> ReturnTruth:
    """The law of the discounted return from each of `pairs`, by default all live ones, when `policy` acts afterwards.

    `policy` has one action per state, or probabilities (states, actions). The result maps (state, action) to a law. It
    is exact, by dynamic programming, unless a law needs more than `max_atoms` components or episodes take too long to
    end: then it comes from `rollouts` seeded episodes per pair.
    """
    gamma, matrix = mdp.resolve_discount(discount), mdp.policy_matrix(policy)
    if not tolerance > 0:
        raise NfdrlError(f"tolerance must be positive, got {tolerance}")
    if gamma == 1:
        _check_it_ends(mdp, matrix)
    wanted = _wanted(mdp, pairs)
    exact = _propagate(mdp, matrix, gamma, tolerance, max_atoms)
    if exact is None:
        return _monte_carlo(mdp, matrix, gamma, tolerance, rollouts, seed, wanted)
    return ReturnTruth(wanted, tuple(exact[int(s), int(a)] for s, a in wanted), exact.kind, exact.error, exact.steps)


def _wanted(mdp: FiniteMDP, pairs: ArrayLike | None) -> Ints:
    live = mdp.live_pairs()
    if pairs is None:
        return live
    wanted = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    known = set(map(tuple, live.tolist()))
    for s, a in wanted.tolist():
        if (s, a) not in known:
            raise NfdrlError(f"state-action pair {(s, a)} is not live: no episode meets it")
    return wanted


@dataclass(frozen=True)
class _Components:
    """Weighted Gaussians (atoms if std is 0), each with the state or pair that owns it."""

    owner: Ints
    mean: Floats
    std: Floats
    mass: Floats

    @classmethod
    def join(cls, parts: list[_Components]) -> _Components:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__annotations__))

    def take(self, index: NDArray[np.generic]) -> _Components:
        return _Components(self.owner[index], self.mean[index], self.std[index], self.mass[index])

    def merged(self) -> _Components:
        """One component per owner and distinct (mean, std), ordered by owner; masses add up."""
        kept = self.take(np.flatnonzero(self.mass > NEGLIGIBLE))
        if kept.owner.size == 0:
            return kept
        mean_id, std_id = _cluster(kept.mean), _cluster(kept.std)
        order = np.lexsort((std_id, mean_id, kept.owner))
        keys = np.stack([kept.owner, mean_id, std_id])[:, order]
        start = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(0)]))
        mass = np.add.reduceat(kept.mass[order], start)
        ordered, group = kept.take(order), np.cumsum(np.bincount(start, minlength=order.size)) - 1
        mean, std = (_centre(t, ordered.mass, start, group) for t in (ordered.mean, ordered.std))
        return _Components(ordered.owner[start], mean, std, mass)

    def largest(self) -> int:
        """The largest number of components of one owner."""
        return int(np.bincount(self.owner).max()) if self.owner.size else 0


def _centre(values: Floats, mass: Floats, start: Ints, group: Ints) -> Floats:
    """The mean of each group of neighbours; exactly their value if they are equal."""
    first = values[start]
    offset = np.add.reduceat(mass * (values - first[group]), start) / np.add.reduceat(mass, start)
    return np.asarray(first + offset, dtype=np.float64)


def _cluster(values: Floats) -> Ints:
    """A number for each value, shared by values that differ only by rounding."""
    order = np.argsort(values, kind="stable")
    gap = np.diff(values[order]) > MERGE_TOLERANCE * np.abs(values).max()
    ids = np.empty(values.size, dtype=np.int64)
    ids[order] = np.concatenate([[0], np.cumsum(gap)])
    return ids


@dataclass(frozen=True)
class _Tables:
    """The outcomes of the live pairs, renumbered 0..P−1, and the policy's probability of each pair."""

    pairs: Ints
    pair: Ints  # of each row
    rows: Rows
    chance: Floats  # π(a|s) of each pair

    @classmethod
    def of(cls, mdp: FiniteMDP, policy: Floats) -> _Tables:
        pairs, rows = mdp.live_pairs(), mdp.rows
        number = np.full((mdp.n_states, mdp.n_actions), -1, dtype=np.int64)
        number[pairs[:, 0], pairs[:, 1]] = np.arange(len(pairs))
        pair = number[rows.state, rows.action]
        keep = pair >= 0
        kept = Rows(*(getattr(rows, column.name)[keep] for column in fields(Rows)))
        return cls(pairs, pair[keep], kept, policy[pairs[:, 0], pairs[:, 1]])


def _propagate(mdp: FiniteMDP, policy: Floats, discount: float, tolerance: float, max_atoms: int) -> ReturnTruth | None:
    """η(s,a) = Σₖ Dₖ(s,a) + R_T(s,a): returns of episodes that end at step k, and of those that still run at step T.

    Both obey Xₖ₊₁(s,a) = Σ p · Σ π(a′|s′) (b_{r,γ})# Xₖ(s′,a′) over the outcomes that do not end. Dₖ stays small where
    the whole law does not: FrozenLake's has the two atoms γᵏ⁻¹ and 0.
    """
    tables = _Tables.of(mdp, policy)
    worst = float((np.abs(tables.rows.reward) + tables.rows.reward_std).max(initial=0.0))  # E|N(r, s²)| ≤ |r| + s
    nothing = np.zeros(mdp.n_states)
    dead = _first_step(tables)
    running = _push(tables, _Components(np.arange(mdp.n_states), nothing, nothing, nothing + 1), discount)
    ended, waiting, step = [dead], dead.owner.size, 1
    while (error := _truncation_error(running, discount, worst, step)) > tolerance:
        size = waiting + running.owner.size
        if step >= MAX_STEPS or size > MAX_ROWS or max(dead.largest(), running.largest()) > max_atoms:
            return None
        dead = _push(tables, _follow(tables, dead), discount)
        running = _push(tables, _follow(tables, running), discount)
        ended.append(dead)
        waiting += dead.owner.size
        step += 1
        if waiting > max(10 * max_atoms, 2 * ended[0].owner.size):
            ended = [_Components.join(ended).merged()]
            waiting = ended[0].owner.size
            if ended[0].largest() > max_atoms:
                return None
    whole = _Components.join([*ended, running]).merged()
    if whole.largest() > max_atoms:
        return None
    return ReturnTruth(tables.pairs, _laws(whole, len(tables.pairs)), "exact", error, step)


def _first_step(tables: _Tables) -> _Components:
    """D₁: the rewards of the outcomes that end the episode."""
    rows, ends = tables.rows, tables.rows.terminated
    return _Components(tables.pair[ends], rows.reward[ends], rows.reward_std[ends], rows.probability[ends]).merged()


def _push(tables: _Tables, by_state: _Components, discount: float) -> _Components:
    """Components owned by states to components owned by pairs: r + γz along every outcome that does not end."""
    rows, going = tables.rows, np.flatnonzero(~tables.rows.terminated)
    first = np.searchsorted(by_state.owner, rows.next_state[going], side="left")
    count = np.searchsorted(by_state.owner, rows.next_state[going], side="right") - first
    row = np.repeat(going, count)
    within = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    after = by_state.take(np.repeat(first, count) + within)
    return _Components(
        tables.pair[row],
        rows.reward[row] + discount * after.mean,
        np.hypot(rows.reward_std[row], discount * after.std),
        rows.probability[row] * after.mass,
    ).merged()


def _follow(tables: _Tables, by_pair: _Components) -> _Components:
    """Components owned by pairs to components owned by states, in their order: averaged over the policy's actions."""
    mass = by_pair.mass * tables.chance[by_pair.owner]
    taken = mass > 0
    state = tables.pairs[by_pair.owner[taken], 0]
    components = _Components(state, by_pair.mean[taken], by_pair.std[taken], mass[taken])
    several = bool((np.bincount(tables.pairs[:, 0], tables.chance > 0) > 1).any())
    return components.merged() if several else components


def _truncation_error(running: _Components, discount: float, worst: float, step: int) -> float:
    """γᵀ · P(running at T) · max|r|/(1−γ); for γ = 1 only the probability."""
    still = float(np.bincount(running.owner, running.mass).max()) if running.owner.size else 0.0
    return still if discount == 1 else still * discount**step * worst / (1 - discount)


def _laws(components: _Components, count: int) -> tuple[MixtureLaw, ...]:
    edges = np.searchsorted(components.owner, np.arange(count + 1))
    tensors = [torch.from_numpy(t) for t in (components.mass, components.mean, components.std)]
    return tuple(MixtureLaw(*(t[i:j] for t in tensors)) for i, j in pairwise(edges))


def _check_it_ends(mdp: FiniteMDP, policy: Floats) -> None:
    """Refuse undiscounted returns of episodes that may never end."""
    rows = mdp.rows
    followed = policy[rows.state, rows.action] > 0
    ends = mdp.terminal.copy()
    ends[rows.state[followed & rows.terminated]] = True
    while True:
        grown = ends.copy()
        grown[rows.state[followed & ends[rows.next_state]]] = True
        if (grown == ends).all():
            break
        ends = grown
    live = mdp.live_pairs()
    entered = np.zeros(mdp.n_states, dtype=np.bool_)
    entered[rows.next_state[np.isin(rows.state, live[:, 0]) & ~rows.terminated]] = True
    if (entered & ~ends).any():
        s = int((entered & ~ends).argmax())
        raise NfdrlError(f"with discount 1 the return is not finite: from state {s} this policy never ends")


def _monte_carlo(
    mdp: FiniteMDP, policy: Floats, discount: float, tolerance: float, rollouts: int, seed: int, pairs: Ints
) -> ReturnTruth:
    """Empirical laws of `rollouts` episodes from each pair."""
    check_at_least(2, rollouts=rollouts)
    rng = np.random.default_rng(seed)
    laws: list[MixtureLaw] = []
    steps, error = 0, 0.0
    size = max(1, CHUNK // rollouts)
    for at in range(0, len(pairs), size):
        starts = np.repeat(pairs[at : at + size], rollouts, axis=0)
        returns, taken = _simulate(mdp, policy, discount, tolerance, starts, rng)
        table = returns.reshape(-1, rollouts)
        laws += [MixtureLaw.empirical(torch.from_numpy(row)) for row in table]
        steps, error = max(steps, taken), max(error, float(table.std(-1, ddof=1).max()) / math.sqrt(rollouts))
    band = math.sqrt(math.log(2 / 0.05) / (2 * rollouts))
    return ReturnTruth(pairs, tuple(laws), "monte-carlo", error, steps, band)


def _simulate(
    mdp: FiniteMDP, policy: Floats, discount: float, tolerance: float, starts: Ints, rng: np.random.Generator
) -> tuple[Floats, int]:
    """Returns of one episode from each start, played side by side until what can still follow is below `tolerance`."""
    state, action = starts.T
    alive = np.arange(len(starts))
    returns, weight = np.zeros(len(starts)), 1.0
    choice = policy.cumsum(-1)
    worst = float((np.abs(mdp.rows.reward) + mdp.rows.reward_std).max())
    for step in range(1, 10 * MAX_STEPS):
        state, reward, terminated = mdp.sample(state, action, rng)
        returns[alive] += weight * reward
        weight *= discount
        alive, state = alive[~terminated], state[~terminated]
        if alive.size == 0 or (discount < 1 and weight * worst / (1 - discount) <= tolerance):
            return returns, step
        level = rng.random((alive.size, 1)) * choice[state, -1:]
        action = (level >= choice[state]).sum(-1)
    raise NfdrlError(f"episodes of {mdp.name!r} do not end within {10 * MAX_STEPS} steps")
