"""Every experiment of the paper, one module each, in the paper's order."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nfdrl.errors import NfdrlError, unknown_name

if TYPE_CHECKING:
    from nfdrl.paper.base import Experiment

__all__ = ["EXPERIMENTS", "Entry", "load"]


@dataclass(frozen=True)
class Entry:
    """An experiment by name; its module is imported only when it is asked for."""

    name: str
    shows: str

    @property
    def module(self) -> str:
        """The module that exposes EXPERIMENT."""
        return f"{__name__}.{self.name.replace('-', '_')}"

    @property
    def available(self) -> bool:
        """Whether the module exists; otherwise the experiment is planned."""
        return find_spec(self.module) is not None


EXPERIMENTS: dict[str, Entry] = {
    name: Entry(name, shows)
    for name, shows in {
        "architecture": "the conditional flow as a diagram, and the three toy MDPs",
        "mdp1": "a single return, learned as narrow as bandwidth and terminal spread allow",
        "mdp2": "two returns with equal chance: exact, surrogate and L² losses",
        "mdp3": "two smooth modes: IQN against NFDRL",
        "frozenlake": "the law of every state-action pair of FrozenLake",
        "params": "parameters against resolution: C51 and NFDRL",
        "samples": "loss and distance to truth against the number of base samples",
        "alignment": "two laws on different supports and on a shared one",
        "c51-projection": "a return between two atoms is spread over both",
        "quantile-blur": "different densities whose quantiles nearly agree",
        "theory": "every claim of the appendix as a number",
        "pong": "a training curve with a fixed learning rate",
        "atari5": "the Atari-5 tables beside our own runs",
    }.items()
}


def load(name: str) -> Experiment:
    """The experiment of that name; an error in one line when it is unknown or only planned."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    entry = EXPERIMENTS[name]
    if not entry.available:
        raise NfdrlError(f"experiment {name!r} is planned, not available yet ({entry.shows})")
    experiment: Experiment = import_module(entry.module).EXPERIMENT
    return experiment
