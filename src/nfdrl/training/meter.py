"""What a report needs besides counters: the mean loss and the speed."""

from __future__ import annotations

import time


class Meter:
    """The sum of losses and a clock, read once per report."""

    def __init__(self) -> None:
        self.sum: float | None = None
        self.updates = 0
        self.restart(0)

    def restart(self, step: int) -> None:
        """Restart the clock; losses stay."""
        self._step, self._time = step, time.perf_counter()

    def add(self, loss: float) -> None:
        self.sum = loss if self.sum is None else self.sum + loss
        self.updates += 1

    def read(self, step: int) -> tuple[float | None, float]:
        """The mean loss and the steps per second since the last reading."""
        loss = None if self.sum is None else self.sum / self.updates
        speed = (step - self._step) / max(time.perf_counter() - self._time, 1e-9)
        self.sum, self.updates = None, 0
        self.restart(step)
        return loss, speed
