"""What settings are tuned for: one number of an agent, measured alike for every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from nfdrl.agent import Agent
from nfdrl.envs.finite import FiniteMDP
from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.evaluation.calibration import BINS, Calibration
from nfdrl.evaluation.comparison import DISTANCES, Problem
from nfdrl.evaluation.distances import batch_distances
from nfdrl.evaluation.problems import finite_mdp

ObjectiveName = Literal["return", "cramer", "w1", "mean_error", "cvar_error", "crps", "miscalibration"]
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)
CALIBRATIONS = ("crps", "miscalibration")

Measure = Callable[[Agent], float]


@dataclass(frozen=True)
class Objective:
    """The mean return, a distance to the exact laws, or how well laws foretell the returns that come."""

    name: ObjectiveName = "return"
    episodes: int = 20  # of a return or a calibration

    def __post_init__(self) -> None:
        check_at_least(2 if self.name in CALIBRATIONS else 1, evaluate=self.episodes)

    @property
    def mode(self) -> Literal["max", "min"]:
        return "max" if self.name == "return" else "min"

    @property
    def exact(self) -> bool:
        """Whether exact laws must be known."""
        return self.name in DISTANCES

    def better(self, one: float, other: float) -> bool:
        """Whether one value is better than another."""
        return one > other if self.mode == "max" else one < other

    def measure(self, env: str) -> Measure:
        """The objective of an agent that learned in the environment of that name."""
        if self.name == "return":
            return lambda agent: float(agent.evaluate(self.episodes, progress=False).mean)
        if self.exact:
            return Distance(finite_mdp(env), self.name)
        return lambda agent: _calibrated(agent.calibration(self.episodes, progress=False), self.name)


class Distance:
    """The mean distance between an agent's laws and the exact ones of the optimal policy, over all live pairs.

    Those of the agent's own policy would not do: an agent that never reaches a reward knows its laws exactly.
    """

    def __init__(self, mdp: FiniteMDP, name: str) -> None:
        self._mdp, self._name = mdp, name
        self._problem: Problem | None = None

    def __call__(self, agent: Agent) -> float:
        discount = agent.config.discount
        if self._problem is None or self._problem.discount != discount:
            self._problem = Problem.of(self._mdp.name, self._mdp, discount)
        truth = self._problem.truth
        state, action = truth.pairs.T
        laws = agent.returns(state).select(torch.as_tensor(action, device=agent.device))
        return float(np.mean(batch_distances(laws, truth.laws)[self._name]))


def _calibrated(found: Calibration, name: ObjectiveName) -> float:
    return found.crps.value if name == "crps" else miscalibration([bar.value for bar in found.histogram])


def miscalibration(histogram: list[float]) -> float:
    """The mean of |P(F(y) ≤ p) − p| over the inner edges p of the histogram of levels: 0 if laws are right.

    >>> miscalibration([1.0] * 10), round(miscalibration([10.0] + [0.0] * 9), 3)
    (0.0, 0.5)
    """
    seen = np.cumsum(histogram)[:-1] / BINS
    return float(np.abs(seen - np.arange(1, BINS) / BINS).mean().round(12))


def check_objective(objective: Objective, env: str, searched: list[str]) -> None:
    """Refuse an objective that this environment has not, or by which these settings do not compare."""
    if objective.exact:
        finite_mdp(env)
    if objective.name != "return" and "discount" in searched:
        raise NfdrlError(
            f"discount cannot be searched by {objective.name}: with a smaller one, all returns and their errors shrink"
        )
