"""What every benchmark measures, and how it is shown: rows and a summary, as a table and as files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from nfdrl.reports import write_report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Row:
    """One measurement: what was run, at which size, and what it cost. None where it was not run; `note` says why."""

    what: str
    size: int
    batch: int
    seconds: float | None = None
    bytes: int | None = None
    ratio: float | None = None
    note: str = ""


def growth_exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The p of cost ≈ c·sizeᵖ, by least squares on logarithms.

    >>> round(growth_exponent([10, 100, 1000], [3e2, 3e4, 3e6]), 6)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - x_mean) ** 2 for a in x)


@dataclass(frozen=True)
class Measured:
    """What a benchmark found: the title and the rows of its table, and what follows from them."""

    title: str
    rows: Sequence[Row]
    summary: Mapping[str, Any]
    threads: int = 1
    draw: Callable[[], Figure] | None = None


def hand_over(out: Path, bench: str, seed: int, measured: Measured, made_by: dict[str, Any]) -> None:
    """Print the table and write the files."""
    made_by["hardware"]["threads"] = measured.threads
    found = {"rows": [asdict(row) for row in measured.rows], "summary": measured.summary}
    print_table(measured.title, measured.rows)
    names = write_report(out, {"bench": bench, "seed": seed, **made_by, **found}, draw=measured.draw)
    print(f"written to {out}: {', '.join(names)}")


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print the rows as a table."""
    table = Table(title=title)
    for name in ("what", "size", "batch", "time", "memory", "ratio", "note"):
        table.add_column(name, justify="left" if name in ("what", "note") else "right", no_wrap=name != "note")
    for row in rows:
        cells = (show_seconds(row.seconds), show_bytes(row.bytes), show_ratio(row.ratio), row.note)
        table.add_row(row.what, str(row.size), str(row.batch), *cells)
    Console().print(table)


def show_seconds(seconds: float | None) -> str:
    """A duration to three digits.

    >>> show_seconds(0.01234), show_seconds(17.08), show_seconds(None)
    ('12.3 ms', '17.1 s', '')
    """
    if seconds is None:
        return ""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def show_bytes(count: int | None) -> str:
    """An amount of memory.

    >>> show_bytes(1_500_000), show_bytes(11_270_000_000)
    ('1.5 MB', '11.3 GB')
    """
    if count is None:
        return ""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def show_ratio(ratio: float | None) -> str:
    """How many times as fast.

    >>> show_ratio(2.345), show_ratio(47.1), show_ratio(2151.3)
    ('2.35×', '47.1×', '2,151×')
    """
    if ratio is None:
        return ""
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:,.{digits}f}×"
