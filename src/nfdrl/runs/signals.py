"""SIGINT, SIGTERM and SIGHUP as requests to stop after the current step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nfdrl.training.loop import Trainer

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def pausing_on_signals(trainer: Trainer, *, enabled: bool = True) -> Iterator[list[int]]:
    """The signals received so far: the first asks for a pause, a second acts as usual."""
    received: list[int] = []
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may handle signals
        return

    def handle(number: int, frame: object) -> None:  # noqa: ARG001
        received.append(number)
        trainer.pausing = True
        restore()
        os.write(2, b"\nnfdrl: stopping after this step, with a checkpoint; repeat to stop at once\n")

    before = {number: signal.getsignal(number) for number in STOPPING}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}  # as under nohup

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        restore()
