"""Where the states of a finite MDP are drawn: the cells of a grid world, or a small graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from nfdrl.envs.finite import FiniteMDP
from nfdrl.errors import NfdrlError
from nfdrl.viewer.schema import Edge, GraphMap, GridMap, Node

Env = gymnasium.Env[Any, Any]
MOST_STATES = 100  # of which exact laws are computed and all laws are shown
MOST_NODES = 32


def finite_mdp_of(env: Env) -> FiniteMDP | None:
    """The table of an environment that has one of at most MOST_STATES states."""
    if not isinstance(env.observation_space, gymnasium.spaces.Discrete) or env.observation_space.n > MOST_STATES:
        return None
    try:
        return FiniteMDP.from_env(env)
    except NfdrlError:
        return None


def map_of(env: Env, mdp: FiniteMDP) -> GridMap | GraphMap | None:
    """The map of an environment: FrozenLake's and CliffWalking's cells, or the graph of a small MDP."""
    letters = getattr(env.unwrapped, "desc", None)
    if isinstance(letters, np.ndarray) and letters.ndim == 2 and letters.size == mdp.n_states:
        cells = "".join(cell.decode() if isinstance(cell, bytes) else str(cell) for cell in letters.ravel())
        return GridMap(letters.shape[0], letters.shape[1], cells)
    if env.spec is not None and env.spec.name.startswith("CliffWalking"):
        return GridMap(4, 12, "F" * 36 + "S" + "H" * 10 + "G")
    return graph_of(mdp) if mdp.n_states <= MOST_NODES else None


def graph_of(mdp: FiniteMDP) -> GraphMap:
    """States by their distance from the start, from left to right."""
    rows = mdp.rows
    actions: dict[tuple[int, int], set[int]] = {}
    for source, target, action in zip(rows.state.tolist(), rows.next_state.tolist(), rows.action.tolist(), strict=True):
        actions.setdefault((source, target), set()).add(action)
    depth = _depths(mdp, list(actions))
    height = _heights(depth, list(actions))
    names = mdp.state_names or tuple(map(str, range(mdp.n_states)))
    nodes = [Node(names[s], float(depth[s]), height[s], bool(mdp.terminal[s])) for s in range(mdp.n_states)]
    return GraphMap(nodes, [Edge(*pair, sorted(found)) for pair, found in sorted(actions.items())])


def _depths(mdp: FiniteMDP, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The length of the longest way from the start, which puts ends last; of the shortest where ways may go round."""
    depth = [0] * mdp.n_states
    for _ in range(mdp.n_states):
        before = list(depth)
        for source, target in edges:
            depth[target] = max(depth[target], depth[source] + 1)
        if depth == before:
            return depth
    shortest = {int(state): 0 for state in np.flatnonzero(np.asarray(mdp.initial) > 0)}
    reached = set(shortest)
    while reached:
        reached = {target for source, target in edges if source in reached and target not in shortest}
        shortest |= dict.fromkeys(reached, max(shortest.values()) + 1)
    return [shortest.get(state, max(shortest.values()) + 1) for state in range(mdp.n_states)]


def _heights(depth: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[float]:
    """Each state at the mean height of those that lead to it, a unit apart from others of its depth."""
    height = [0.0] * len(depth)
    for column in range(max(depth) + 1):
        states = [state for state, found in enumerate(depth) if found == column]
        wanted = {}
        for state in states:
            before = [height[source] for source, target in edges if target == state and depth[source] < column]
            wanted[state] = sum(before) / len(before) if before else 0.0
        states.sort(key=lambda state: wanted[state])
        last = -float("inf")
        for state in states:
            height[state] = last = max(wanted[state], last + 1)
        shift = sum(height[state] - wanted[state] for state in states) / max(len(states), 1)
        for state in states:
            height[state] -= shift
    return height
