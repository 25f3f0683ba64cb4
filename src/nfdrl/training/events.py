"""What the training loop tells whoever runs it."""

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
    dormant: float | None = None  # share of units that the last batch left at zero, in the layer where most are


@dataclass(frozen=True, slots=True)
class Pause:
    """All open episodes end here and new ones begin after it: whoever wants to resume from here saves now.

    Regular pauses come at multiples of the interval, whatever happened before; the others were asked for.
    """

    step: int
    regular: bool


Event = EpisodeEnd | Report | Pause


class NonFiniteError(NfdrlError):
    """Too many updates in a row could not be made; the batch of the last one, and the learner, to find out why."""

    def __init__(self, step: int, batch: Batch, learner: Learner) -> None:
        count = learner.skipped_in_a_row
        super().__init__(f"{count} updates in a row had a loss or a gradient that is not finite, up to step {step:,}")
        self.step, self.batch, self.learner = step, batch, learner
