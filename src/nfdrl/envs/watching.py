"""Environments that break: what they raise says where, and a reset or a step that never ends is ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from nfdrl.errors import NfdrlError

CLOSING = 5.0  # seconds that an environment which has failed gets to close


class EnvironmentFailure(NfdrlError):
    """An environment raised an error, hung, or gave what cannot be learned from; the command line exits with 1."""


class Hung(BaseException):
    """A call took too long. Not an Exception, so that an environment that catches its own errors lets it pass."""


@dataclass(frozen=True)
class Limits:
    """Seconds after which a reset or a step has hung; 0 for never."""

    reset: float = 600.0
    step: float = 600.0


@dataclass(frozen=True, eq=False)
class _Alarm:
    """What SIGALRM calls while one of our limits is in force: any other handler is the program's own."""

    look: Callable[[], None]

    def __call__(self, number: int, frame: object) -> None:  # noqa: ARG002
        self.look()


@contextmanager
def _alarmed(first: float, every: float, look: Callable[[], None]) -> Iterator[None]:
    """Call `look` after so many seconds, and then again and again; an outer alarm of ours waits meanwhile.

    This works in the main thread, unless the program has alarms of its own.
    """
    before, main = signal.getsignal(signal.SIGALRM), threading.main_thread()
    ours = isinstance(before, _Alarm)
    free = ours or (first > 0 and before == signal.SIG_DFL and not signal.getitimer(signal.ITIMER_REAL)[0])
    if not free or threading.current_thread() is not main:
        yield
        return
    alarm = _Alarm(look)
    waiting = signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, first, every)
    try:
        yield
    finally:
        # A generator may be closed anywhere, and after the program has set an alarm.
        if threading.current_thread() is main and signal.getsignal(signal.SIGALRM) is alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, *waiting)


@contextmanager
def limited(seconds: float, what: str, setting: str = "reset_limit") -> Iterator[None]:
    """End what takes longer than this; 0 is no limit."""

    def end() -> None:
        raise Hung(f"{what} took more than {seconds:g} s (setting: {setting})")

    with _alarmed(seconds, 0, end):
        yield


def at_step(step: int) -> str:
    """The place of a failure in training."""
    return f"at step {step:,}"


class Blaming:
    """Whatever an environment raises inside, its exit included, becomes an error that says where."""

    def __init__(self, where: Callable[[int], str] = at_step) -> None:
        self.where, self.step = where, 0
        self.entered, self.inside = 0, False

    def at(self, step: int) -> Blaming:
        self.step = step
        return self

    def __enter__(self) -> None:
        self.entered += 1
        self.inside = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.inside = False
        if isinstance(error, Hung):
            raise EnvironmentFailure(f"the environment hung {self.where(self.step)}: {error}") from None
        if isinstance(error, NfdrlError):
            raise EnvironmentFailure(f"{error} {self.where(self.step)}") from error
        if isinstance(error, Exception | SystemExit):
            said = " ".join(str(error).split())[:200]
            named = f"{type(error).__name__}: {said}" if said else type(error).__name__
            raise EnvironmentFailure(f"the environment failed {self.where(self.step)}: {named}") from error


@contextmanager
def watched(blaming: Blaming, seconds: float) -> Iterator[None]:
    """End a step that takes longer than this, or up to twice as long; 0 is no limit.

    An alarm looks every so many seconds whether the step is still the same, so that steps themselves cost nothing.
    """
    seen = -1

    def look() -> None:
        nonlocal seen
        if blaming.inside and blaming.entered == seen:
            raise Hung(f"a step took more than {seconds:g} s (setting: step_limit)")
        seen = blaming.entered

    with _alarmed(seconds, seconds, look):
        yield


@contextmanager
def closed_after(close: Callable[[], object]) -> Iterator[None]:
    """Close an environment in the end; one that has failed may fail or hang in that as well, which is passed over."""
    try:
        yield
    except BaseException:
        with suppress(Exception, Hung), limited(CLOSING, "closing"):
            close()
        raise
    close()
