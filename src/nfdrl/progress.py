"""Progress bars and messages for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text
from typing_extensions import Self

T = TypeVar("T")

WIDTH = 165  # of tables that are not printed to a terminal
ENDLESS = 10_000  # letters, more than any table has in a line


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


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table: in full width where there is no terminal, narrower in one where it does not fit.

    There, words are broken into lines. Numbers are not, nor are they cut off: half a number looks like another.
    """
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDTH)
    elif Measurement.get(console, console.options.update(max_width=ENDLESS), table).maximum > console.width:
        table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
        for column in table.columns:
            column.overflow, column.no_wrap = "fold", False
            if column.justify == "right":
                words = [word for cell in column.cells for word in Text.from_markup(str(cell)).plain.split()]
                column.min_width = max(map(len, words), default=1)
    console.print(table, crop=False)


def say(message: str) -> None:
    """Print a line for the user, on standard error, if that can be written to: it may be a file on a full disk."""
    with suppress(OSError):
        print(f"nfdrl: {message}", file=sys.stderr, flush=True)
