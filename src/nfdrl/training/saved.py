"""Where training stood, as a checkpoint says it: checked before anything is built on it."""

from __future__ import annotations

import math
from typing import Any

from nfdrl.errors import NfdrlError
from nfdrl.training.config import TrainConfig

MOST = 1 << 62  # of any count


def checked_counters(state: dict[str, Any], config: TrainConfig) -> dict[str, Any]:
    """The counters of a saved state, none of which could send training astray."""
    counters: dict[str, Any] = state["trainer"]
    counts = [state["step"], counters["due"], counters["episodes"], counters["updates_since_report"]]
    counts += [*counters["skipped"], *(value for end in counters["recent"] for value in (end[0], end[1], end[3]))]
    numbers = [end[2] for end in counters["recent"]]
    if counters["learning"]:
        numbers.append(counters["learning_rate"])
    good = all(type(count) is int and 0 <= count < MOST for count in counts)
    good = good and all(type(number) in (int, float) and math.isfinite(number) for number in numbers)
    good = good and counters["due"] < config.train_every and type(counters["learning"]) is bool
    if not good or (counters["learning"] and not counters["learning_rate"] > 0):
        raise NfdrlError("the saved counters of training are impossible")
    return counters
