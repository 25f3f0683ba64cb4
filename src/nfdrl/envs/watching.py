"""Environments that break: what they raise names the step, and a reset that never ends is ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nfdrl.errors import NfdrlError


class EnvironmentFailure(NfdrlError):
    """An environment raised an error, hung, or gave something that cannot be learned from."""


class Hung(BaseException):
    """A call took too long. Not an Exception, so that an environment that catches its own errors lets it pass."""


@contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """End what takes longer than this, in the main thread, unless the program has alarms of its own; 0 is no limit."""
    free = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    if not seconds or not free or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def end(number: int, frame: object) -> None:  # noqa: ARG001
        raise Hung(f"{what} took more than {seconds:g} s (setting: reset_limit)")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


class Blaming:
    """Whatever an environment raises inside, its exit included, becomes an error that names the step."""

    step = 0

    def at(self, step: int) -> Blaming:
        self.step = step
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Hung):
            raise EnvironmentFailure(f"the environment hung at step {self.step:,}: {error}") from None
        if isinstance(error, NfdrlError):
            raise EnvironmentFailure(f"{error} at step {self.step:,}") from error
        if isinstance(error, Exception | SystemExit):
            said = " ".join(str(error).split())[:200]
            named = f"{type(error).__name__}: {said}" if said else type(error).__name__
            raise EnvironmentFailure(f"the environment failed at step {self.step:,}: {named}") from error
