"""Finite MDPs as flat tables, from which exact laws are computed, and an environment that plays them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nfdrl.errors import NfdrlError, unknown_name

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PROBABILITY_TOLERANCE = 1e-9
TIE_TOLERANCE = 1e-10  # relative; far above rounding, far below any difference that matters
MAX_SWEEPS = 1_000_000


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A table with one row per possible outcome of each state-action pair.

    A state without rows is terminal, and so is one whose rows all lead back to it with reward 0. An outcome that enters
    a terminal state terminates.
    """

    n_states: int
    n_actions: int
    state: ArrayLike  # of each row, as are the next five
    action: ArrayLike
    probability: ArrayLike  # of the outcome, given state and action
    next_state: ArrayLike
    reward: ArrayLike
    terminated: ArrayLike
    reward_std: ArrayLike | None = None  # the reward is N(reward, reward_std²); 0, the default, is an atom
    name: str = "mdp"
    initial: ArrayLike | None = None  # probabilities of the first state; by default equal in all that are not terminal
    discount: float | None = None  # used wherever none is given
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        columns = _columns(self)
        _check_columns(self, columns)
        order = np.lexsort((columns["action"], columns["state"]))
        order = order[columns["probability"][order] > 0]
        for name, column in columns.items():
            self._set(name, column[order])
        _check_probabilities(self)
        self._set("terminated", self.rows.terminated | self.terminal[self.rows.next_state])
        self.__dict__.pop("rows")  # cached with the terminations as they were given
        self._set("initial", _initial(self))
        for name, labels, count in (
            ("state_names", self.state_names, self.n_states),
            ("action_names", self.action_names, self.n_actions),
        ):
            if labels is not None and len(labels) != count:
                raise NfdrlError(f"{name} must have {count} names, got {len(labels)}")

    def _set(self, name: str, value: NDArray[Any]) -> None:
        value.setflags(write=False)
        object.__setattr__(self, name, value)

    @cached_property
    def rows(self) -> Rows:
        """The table, ordered by state and action, with typed columns and no row of probability 0."""
        return Rows(*(getattr(self, field.name) for field in fields(Rows)))

    @cached_property
    def terminal(self) -> Bools:
        """Which states have nothing after them; shape (S,)."""
        rows = self.rows
        idle = (rows.next_state == rows.state) & (rows.reward == 0) & (rows.reward_std == 0)
        terminal = np.ones(self.n_states, dtype=np.bool_)
        terminal[rows.state[~idle]] = False
        return terminal

    @cached_property
    def available(self) -> Bools:
        """Which actions have outcomes in which states; shape (S, A)."""
        present = np.zeros((self.n_states, self.n_actions), dtype=np.bool_)
        present[self.rows.state, self.rows.action] = True
        return present

    @classmethod
    def from_table(
        cls,
        table: dict[int, dict[int, list[tuple[Any, ...]]]],
        initial: ArrayLike | None = None,
        discount: float | None = None,
        name: str = "mdp",
    ) -> FiniteMDP:
        """From Gymnasium's `P[state][action] = [(probability, next_state, reward, terminated), ...]`."""
        flat = [(s, a, *outcome) for s, row in table.items() for a, outcomes in row.items() for outcome in outcomes]
        if not flat or any(len(row) != 6 for row in flat):
            raise NfdrlError("each outcome of a table must be (probability, next_state, reward, terminated)")
        state, action, probability, next_state, reward, terminated = zip(*flat, strict=True)
        n_states = 1 + max(*table, *map(int, next_state))
        n_actions = 1 + max(a for row in table.values() for a in row)
        return cls(
            n_states, n_actions, state, action, probability, next_state, reward, terminated,
            name=name, initial=initial, discount=discount,
        )  # fmt: skip

    @classmethod
    def from_env(cls, env: gymnasium.Env[Any, Any] | str, **make_kwargs: Any) -> FiniteMDP:
        """From a Gymnasium environment, or its id, that has a table `P`: FrozenLake, Taxi, CliffWalking."""
        if isinstance(env, str):
            check_tabular_id(env)
        made = gymnasium.make(env, **make_kwargs) if isinstance(env, str) else env
        bare: Any = made.unwrapped
        name = made.spec.id if made.spec is not None else type(bare).__name__
        if made is not env:
            made.close()
        if isinstance(getattr(bare, "mdp", None), FiniteMDP):
            return cast(FiniteMDP, bare.mdp)
        if not hasattr(bare, "P"):
            raise NfdrlError(f"environment {name!r} has no transition table P, from which exact laws are computed")
        if getattr(bare, "fickle_passenger", False):
            raise NfdrlError(f"environment {name!r} must not have fickle_passenger, which its table P leaves out")
        return cls.from_table(bare.P, initial=getattr(bare, "initial_state_distrib", None), name=name)

    @cached_property
    def _first_row(self) -> Ints:
        """The first row of each pair s·A + a, and the number of rows; shape (S·A + 1,)."""
        pair = self.rows.state * self.n_actions + self.rows.action
        return np.searchsorted(pair, np.arange(self.n_states * self.n_actions + 1)).astype(np.int64)

    @cached_property
    def _cumulated(self) -> Floats:
        """Pair index plus the cumulative probability within the pair: increasing over all rows."""
        rows = self.rows
        pair = rows.state * self.n_actions + rows.action
        total = np.concatenate([[0.0], np.cumsum(rows.probability)])
        return np.asarray(pair + total[1:] - total[self._first_row[pair]], dtype=np.float64)

    def sample(self, state: ArrayLike, action: ArrayLike, rng: np.random.Generator) -> tuple[Ints, Floats, Bools]:
        """One sampled (next_state, reward, terminated) per pair of the broadcast `state` and `action`."""
        s, a = np.broadcast_arrays(np.asarray(state, dtype=np.int64), np.asarray(action, dtype=np.int64))
        outside = (s < 0) | (s >= self.n_states) | (a < 0) | (a >= self.n_actions)
        if outside.any() or not self.available[s, a].all():
            bad = outside if outside.any() else ~self.available[s, a]
            raise NfdrlError(f"state {s[bad].flat[0]}, action {a[bad].flat[0]} has no outcomes in {self.name!r}")
        pair = s * self.n_actions + a
        row = np.searchsorted(self._cumulated, pair + rng.random(s.shape), side="right")
        row = np.clip(row, self._first_row[pair], self._first_row[pair + 1] - 1)
        reward = self.rows.reward[row]
        if self.rows.reward_std.any():
            reward = reward + self.rows.reward_std[row] * rng.standard_normal(s.shape)
        return self.rows.next_state[row], reward, self.rows.terminated[row]

    def live_pairs(self) -> Ints:
        """The (s, a) that an episode can meet: s is reachable and not terminal, a has outcomes; shape (P, 2)."""
        rows = self.rows
        going = ~rows.terminated
        reached = (cast(Floats, self.initial) > 0) & ~self.terminal
        while True:
            grown = reached.copy()
            grown[rows.next_state[going & reached[rows.state]]] = True
            if (grown == reached).all():
                return np.argwhere(self.available & reached[:, None]).astype(np.int64)
            reached = grown

    def action_values(self, value: Floats, discount: float) -> Floats:
        """Q(s, a) = E[r + γ V(s′)], with −∞ for an absent action; shapes (S,) → (S, A)."""
        rows = self.rows
        backup = rows.probability * (rows.reward + discount * value[rows.next_state] * ~rows.terminated)
        pair = rows.state * self.n_actions + rows.action
        total = np.bincount(pair, backup, minlength=self.n_states * self.n_actions)
        return np.where(self.available, total.reshape(self.n_states, self.n_actions), -np.inf)

    def optimal_policy(self, discount: float | None = None) -> Ints:
        """The greedy action of each state by value iteration, the lowest if several are best; 0 in terminal states.

        With discount 1 waiting costs nothing, so that the lowest may be one that never ends the episode.
        """
        gamma = self.resolve_discount(discount)
        value = np.zeros(self.n_states)
        for _ in range(MAX_SWEEPS):
            q = self.action_values(value, gamma)
            best = np.where(self.terminal, 0.0, q.max(-1))
            change, scale = np.abs(best - value).max(), max(np.abs(best).max(), 1e-300)
            value = best
            if change <= 1e-13 * scale:
                break
        else:
            raise NfdrlError(f"value iteration of {self.name!r} does not converge with discount {gamma}")
        near_best = q >= q.max(-1, keepdims=True) - TIE_TOLERANCE * scale
        return np.where(self.terminal, 0, near_best.argmax(-1)).astype(np.int64)

    def policy_matrix(self, policy: ArrayLike) -> Floats:
        """A policy as probabilities (S, A), from one action per state (S,) or from such a matrix."""
        given = np.asarray(policy)
        shape = (self.n_states, self.n_actions)
        if given.ndim == 1:
            matrix = self._one_hot(given)
        elif given.shape == shape:
            matrix = given.astype(np.float64)
        else:
            raise NfdrlError(f"a policy must have shape ({self.n_states},) or {shape}, got {given.shape}")
        live = ~self.terminal
        wrong = live & ~((np.abs(matrix.sum(-1) - 1) <= PROBABILITY_TOLERANCE) & (matrix >= 0).all(-1))
        if wrong.any():
            s = int(wrong.argmax())
            raise NfdrlError(f"policy of state {s} must be probabilities that sum to 1, got {matrix[s].tolist()}")
        absent = live[:, None] & (matrix > 0) & ~self.available
        if absent.any():
            s, a = np.argwhere(absent)[0]
            raise NfdrlError(f"the policy takes action {a} in state {s}, which has no outcomes")
        return np.where(live[:, None], matrix, 0.0)

    def _one_hot(self, actions: NDArray[Any]) -> Floats:
        if actions.shape != (self.n_states,) or not np.issubdtype(actions.dtype, np.integer):
            raise NfdrlError(f"a policy must be {self.n_states} integers, got {actions.size} of type {actions.dtype}")
        outside = (actions < 0) | (actions >= self.n_actions)
        if outside.any():
            raise NfdrlError(f"actions must lie in 0..{self.n_actions - 1}, got {actions[outside][0]}")
        return np.asarray(np.eye(self.n_actions)[actions], dtype=np.float64)

    def resolve_discount(self, discount: float | None = None) -> float:
        """The given discount, or else the MDP's own, checked."""
        chosen = self.discount if discount is None else discount
        if chosen is None:
            raise NfdrlError(f"{self.name!r} has no discount of its own: pass one")
        if not 0 <= chosen <= 1:
            raise NfdrlError(f"discount must lie in [0, 1], got {chosen}")
        return float(chosen)


@dataclass(frozen=True)
class Rows:
    """The typed columns of a FiniteMDP, one entry per outcome."""

    state: Ints
    action: Ints
    probability: Floats
    next_state: Ints
    reward: Floats
    reward_std: Floats
    terminated: Bools


class TabularEnv(gymnasium.Env[np.int64, np.int64]):
    """A Gymnasium environment that plays a FiniteMDP."""

    def __init__(self, mdp: FiniteMDP) -> None:
        lacking = ~mdp.terminal & ~mdp.available.all(-1)
        if lacking.any():
            raise NfdrlError(f"every action must have outcomes in every state, but state {lacking.argmax()} lacks one")
        self.mdp = mdp
        self.observation_space = gymnasium.spaces.Discrete(mdp.n_states)
        self.action_space = gymnasium.spaces.Discrete(mdp.n_actions)
        self._state: int | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        start = np.cumsum(cast(Floats, self.mdp.initial))
        self._state = int(np.searchsorted(start / start[-1], self.np_random.random(), side="right"))
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise NfdrlError("the episode has not begun or is over: call reset()")
        next_state, reward, terminated = self.mdp.sample(self._state, action, self.np_random)
        self._state = None if terminated else int(next_state)
        return np.int64(next_state), float(reward), bool(terminated), False, {}


def _columns(mdp: FiniteMDP) -> dict[str, NDArray[Any]]:
    reward = np.array(mdp.reward, dtype=np.float64)
    std = np.zeros_like(reward) if mdp.reward_std is None else np.array(mdp.reward_std, dtype=np.float64)
    return {
        "state": np.array(mdp.state, dtype=np.int64),
        "action": np.array(mdp.action, dtype=np.int64),
        "probability": np.array(mdp.probability, dtype=np.float64),
        "next_state": np.array(mdp.next_state, dtype=np.int64),
        "reward": reward,
        "reward_std": std,
        "terminated": np.array(mdp.terminated, dtype=np.bool_),
    }


def _check_columns(mdp: FiniteMDP, columns: dict[str, NDArray[Any]]) -> None:
    rows = columns["state"].shape
    for name, column in columns.items():
        if column.ndim != 1 or column.shape != rows:
            raise NfdrlError(f"{name} must have shape ({rows[0]},), one entry per outcome, got {column.shape}")
        if name in ("state", "action", "next_state"):
            count = mdp.n_actions if name == "action" else mdp.n_states
            outside = (column < 0) | (column >= count)
            if outside.any():
                raise NfdrlError(f"{name} must lie in 0..{count - 1}, got {column[outside][0]}")
        elif not np.isfinite(column).all():
            raise NfdrlError(f"{name} must be finite, got {column[~np.isfinite(column)][0]}")
    for name in ("probability", "reward_std"):
        if (columns[name] < 0).any():
            raise NfdrlError(f"{name} must be at least 0, got {columns[name].min()}")
    mdp.resolve_discount(1.0 if mdp.discount is None else mdp.discount)


def _check_probabilities(mdp: FiniteMDP) -> None:
    rows = mdp.rows
    total = np.zeros((mdp.n_states, mdp.n_actions))
    np.add.at(total, (rows.state, rows.action), rows.probability)
    wrong = mdp.available & (np.abs(total - 1) > PROBABILITY_TOLERANCE)
    if wrong.any():
        s, a = np.argwhere(wrong)[0]
        raise NfdrlError(f"probabilities of state {s}, action {a} must sum to 1, got {total[s, a]:.9g}")


def _initial(mdp: FiniteMDP) -> Floats:
    """The given distribution over states, or the uniform one over those that are not terminal."""
    if mdp.initial is None:
        live = ~mdp.terminal
        return np.asarray(live / max(live.sum(), 1), dtype=np.float64)
    given = np.array(mdp.initial, dtype=np.float64)
    if given.shape != (mdp.n_states,):
        raise NfdrlError(f"initial must have shape ({mdp.n_states},), one probability per state, got {given.shape}")
    if not (given >= 0).all() or abs(given.sum() - 1) > PROBABILITY_TOLERANCE:
        raise NfdrlError(f"initial must be probabilities that sum to 1, got a sum of {given.sum():.9g}")
    return given


def check_tabular_id(env_id: str, *others: str) -> None:
    """Refuse an id that is not registered, and suggest one with a table, or one of the `others`."""
    if ":" not in env_id and env_id not in gymnasium.registry:
        places = ("gymnasium.envs.toy_text", "gymnasium.envs.tabular", "nfdrl.envs:")
        known = [key for key, spec in gymnasium.registry.items() if str(spec.entry_point).startswith(places)]
        raise unknown_name("environment", env_id, [*others, *(key for key in known if "Blackjack" not in key)])
