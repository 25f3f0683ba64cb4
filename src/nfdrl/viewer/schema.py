"""Every message between Python and the browser, as frozen dataclasses.

`static/schema.json` is made from these classes, and the TypeScript types of the page from that file.
Arrays are `Packed`: base64 of little-endian float32, row by row (`messages.pack`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nfdrl.viewer.report_schema import Packed, Report

End = Literal["terminated", "truncated", "cut off", "running"]


@dataclass(frozen=True)
class FlowLaws:
    """Laws of center + bound · (2F(Z) − 1), F a mixture of `components` normal CDFs."""

    rows: int
    actions: int
    components: int
    weights: Packed
    locations: Packed
    scales: Packed
    bound: Packed
    center: Packed
    kind: Literal["flow"] = "flow"
    note: str | None = None  # what the browser's law leaves out, if anything


@dataclass(frozen=True)
class AtomLaws:
    """Masses on `points` atoms; atoms or masses may be one row that all laws share; no masses: all equal."""

    rows: int
    actions: int
    points: int
    atoms: Packed
    masses: Packed | None = None
    kind: Literal["atoms"] = "atoms"
    note: str | None = None


@dataclass(frozen=True)
class LinearLaws:
    """CDFs that are straight between the points of one grid."""

    rows: int
    actions: int
    points: int
    grid: Packed
    cumulative: Packed
    kind: Literal["linear"] = "linear"
    note: str | None = None


@dataclass(frozen=True)
class MixtureLaws:
    """Finite mixtures of Gaussians and atoms: law k has the components first[k] … first[k + 1] − 1, perhaps none."""

    rows: int
    actions: int
    first: list[int]
    weights: Packed
    means: Packed
    stds: Packed
    kind: Literal["mixture"] = "mixture"
    note: str | None = None


Laws = FlowLaws | AtomLaws | LinearLaws | MixtureLaws


@dataclass(frozen=True)
class GridMap:
    """A grid world; one letter per cell, row by row, and the cell's number is the state."""

    rows: int
    columns: int
    cells: str
    kind: Literal["grid"] = "grid"


@dataclass(frozen=True)
class Node:
    """A state of a small MDP; x and y in units of a node's distance."""

    name: str
    x: float
    y: float
    terminal: bool


@dataclass(frozen=True)
class Edge:
    """A possible step between two states; `actions` are those with which it may happen."""

    source: int
    target: int
    actions: list[int]


@dataclass(frozen=True)
class GraphMap:
    """A small MDP as a graph."""

    nodes: list[Node]
    edges: list[Edge]
    kind: Literal["graph"] = "graph"


@dataclass(frozen=True)
class RunCard:
    """A run in lists and legends; `playable` if it has a saved agent.

    Runs with the same `setting` differ in nothing but their seed, as `nfdrl report` tells them apart.
    """

    id: str
    name: str
    method: str
    label: str
    colour: str
    env: str
    seed: int
    setting: str
    playable: bool
    newest: str | None = None  # name of its newest checkpoint, which changes while it trains


@dataclass(frozen=True)
class AgentCard:
    """An agent that plays: its run, its settings, and what its environment looks like."""

    run: RunCard
    step: int
    risk: str | None
    discount: float
    actions: list[str]
    map: GridMap | GraphMap | None
    fps: float
    dormant: float | None  # share of units at zero, by the last report of training


@dataclass(frozen=True)
class Frames:
    """Pictures of every `every`-th step, as data URIs."""

    every: int
    images: list[str]


@dataclass(frozen=True)
class Episode:
    """An episode: the laws of all actions at each step, the action taken, its reward, the return that then came."""

    run: str
    seed: int
    risk: str | None
    end: End
    taken: list[int]
    rewards: Packed
    followed: Packed | None  # None unless the episode ended by itself
    states: list[int] | None
    laws: Laws
    frames: Frames | None


@dataclass(frozen=True)
class Step:
    """One step of an episode that is being played; `ends` cuts returns as learning does."""

    t: int
    seed: int
    action: int
    reward: float
    learned_reward: float
    ends: bool
    state: int | None
    laws: Laws
    frame: str | None
    end: End
    risk: str


@dataclass(frozen=True)
class StateLaws:
    """One agent in the states of a table: its laws and choices, and the exact laws of its own policy where known."""

    run: str
    laws: Laws
    chosen: list[int]
    truth: Laws | None = None
    truth_kind: str | None = None
    cramer: Packed | None = None  # to the truth; −1 where there is none
    w1: Packed | None = None


@dataclass(frozen=True)
class StateTable:
    """Agents of one environment in the same states, named by number or shown by a picture."""

    env: str
    states: list[int]
    names: list[str]
    pictures: list[str] | None
    actions: list[str]
    map: GridMap | GraphMap | None
    agents: list[StateLaws]


@dataclass(frozen=True)
class Curve:
    """Columns of a run's metrics; from the server only the rows after `offset` bytes, and all of them if `fresh`."""

    run: str
    columns: dict[str, Packed]
    offset: int
    fresh: bool


@dataclass(frozen=True)
class Ridge:
    """The laws of a run's start state at each of its checkpoints, and the action that each would take."""

    run: str
    steps: list[int]
    chosen: list[int]
    laws: list[Laws]  # one row each


@dataclass(frozen=True)
class Figure:
    """A figure that has been made, and how."""

    id: str
    title: str
    command: str
    date: str
    image: str  # a data URI, or an address on the server


@dataclass(frozen=True)
class Document:
    """A whole page in one file."""

    title: str
    made_by: str
    runs: list[RunCard]
    agents: list[AgentCard]
    episodes: list[Episode]
    tables: list[StateTable]
    curves: list[Curve]
    ridges: list[Ridge]
    figures: list[Figure]
    format: Literal[1] = 1


@dataclass(frozen=True)
class Runs:
    """The runs of a folder."""

    title: str
    runs: list[RunCard]


@dataclass(frozen=True)
class Hello:
    """The first message of an agent that plays: who it is, and its exact laws if they are known."""

    agent: AgentCard
    table: StateTable | None


@dataclass(frozen=True)
class Command:
    """What the page may ask of an agent that plays; fields that are None stay as they are."""

    playing: bool | None = None
    speed: float | None = None
    steps: int | None = None  # this many more, then pause
    seed: int | None = None  # begins a new episode
    risk: str | None = None


MESSAGES = (Document, Report, Runs, Curve, Ridge, Figure, StateTable, Hello, Step, Command)
