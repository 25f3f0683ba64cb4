"""Progress bars and messages for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from typing_extensions import Self

T = TypeVar("T")


class Progress:
    """Progress bars on a terminal, and silence elsewhere.

    >>> with Progress(enabled=False) as progress:
    ...     sum(progress.track(range(4), "adding"))
    6
    """

    def __init__(self, enabled: bool | None = None, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        shown = self.console.is_terminal if enabled is None else enabled
        self._bars = Bars(*columns, console=self.console, disable=not shown, transient=True)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def bar(self, description: str, total: int) -> Callable[[int, str], None]:
        """A bar that is told how much is done, and what to call it."""
        task = self._bars.add_task(description, total=total)
        return lambda done, text: self._bars.update(task, completed=done, description=text)

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Yield `items` and advance a bar by one for each."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        task = self._bars.add_task(description, total=total)
        for item in items:
            yield item
            self._bars.update(task, advance=1)
        self._bars.remove_task(task)


def say(message: str) -> None:
    """Print a line for the user, on standard error, if that can be written to: it may be a file on a full disk."""
    with suppress(OSError):
        print(f"nfdrl: {message}", file=sys.stderr, flush=True)
