"""Every experiment of the paper, one module each, in the paper's order."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from nfdrl.errors import unknown_name

if TYPE_CHECKING:
    from nfdrl.paper.base import Experiment

__all__ = ["EXPERIMENTS", "load"]


EXPERIMENTS: dict[str, str] = {  # by name, what they show
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
    "literal": "from the paper as printed to our defaults, one change at a time",
    "pong": "learning curves on Pong",
    "atari5": "the Atari-5 tables beside our own runs",
}


def load(name: str) -> Experiment:
    """The experiment of that name; its module is imported only when it is asked for."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    experiment: Experiment = import_module(f"{__name__}.{name.replace('-', '_')}").EXPERIMENT
    return experiment
