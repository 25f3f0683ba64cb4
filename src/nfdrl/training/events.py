"""The events that the training loop yields."""

from __future__ import annotations

from dataclasses import dataclass

from nfdrl.errors import NfdrlError
from nfdrl.learner import Learner
from nfdrl.replay import Batch


@dataclass(frozen=True, slots=True)
class EpisodeEnd:
    """An episode of training ended."""

    step: int
    env: int
    episode_return: float
    length: int


@dataclass(frozen=True, slots=True)
class Report:
    """Where training stands; means over the last episodes and over the updates since the last report."""

    step: int
    updates: int
    episodes: int
    episode_return: float | None
    episode_length: float | None
    loss: float | None
    epsilon: float
    learning_rate: float
    steps_per_second: float
    skipped: int = 0  # updates so far whose loss or gradient was not finite
    dormant: float | None = None  # share of units at zero for all of the last batch, in the layer with most of them


@dataclass(frozen=True, slots=True)
class Pause:
    """A point to save and resume from: all open episodes are cut off, and new ones begin after it.

    Regular pauses come at multiples of the interval, whatever happened before; others were asked for.
    """

    step: int
    regular: bool


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Greedy episodes played during training; `best` if no evaluation before it had such a mean return."""

    step: int
    episodes: int
    mean: float
    std: float
    least: float
    most: float
    length: float
    best: bool


Event = EpisodeEnd | Report | Pause | Evaluation


class NonFiniteError(NfdrlError):
    """Too many updates in a row failed; it carries the learner and the last batch, to find out why."""

    def __init__(self, step: int, batch: Batch, learner: Learner) -> None:
        count = learner.skipped_in_a_row
        super().__init__(f"{count} updates in a row, up to step {step:,}, had a loss or gradient that is not finite")
        self.step, self.batch, self.learner = step, batch, learner
