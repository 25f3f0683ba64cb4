"""Time and memory of the losses against the number of samples: the literal double sums, and ours.

`bench losses` runs forward and backward of each form on a batch of 64 rows in float32 on one thread, at N = 50
to 8,000 samples per law.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.autograd.profiler import profile

from nfdrl.bench import literal
from nfdrl.bench.report import Measured, Row, growth_exponent, show_bytes, show_seconds
from nfdrl.losses.exact import Exact
from nfdrl.losses.grid import joint_range
from nfdrl.losses.surrogate import Support, Surrogate
from nfdrl.numerics.kde import Grid
from nfdrl.threads import threads

BATCH = 64
BANDWIDTH = 0.05  # paper, table of hyper-parameters
SIZES = (50, 100, 200, 500, 1000, 2000, 4000, 8000)
SMOKE_SIZES = (50, 100)
FIT_FROM = 500  # below, the fixed cost of a tensor operation hides the growth
MEMORY_LIMIT = 4_000_000_000
SECONDS_PER_CELL = 1.0
LEAST_REPEATS = 3

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Form:
    """One way to compute a loss; `reference` names the literal form that it is compared with."""

    what: str
    loss: Loss
    reference: str
    colour: str  # Okabe and Ito's palette, told apart by the colour-blind
    marker: str

    @property
    def ours(self) -> bool:
        """Whether this is the package's own form."""
        return self.what.startswith("ours")


def _literal_samples(predicted: Tensor, target: Tensor) -> Tensor:
    on_predicted = literal.on_points(predicted, predicted, target, BANDWIDTH)
    return on_predicted + literal.on_points(target, predicted, target, BANDWIDTH)


def _literal_grid(predicted: Tensor, target: Tensor) -> Tensor:
    low, high = joint_range(predicted, target)
    grid = Grid.covering(low, high, torch.full_like(low, 4 * BANDWIDTH), predicted.shape[-1])
    return literal.surrogate_grid(predicted, target, BANDWIDTH, grid.points())


def _ours(support: Support) -> Loss:
    # The literal forms' kernel and bandwidth, and the package's default grid sizes.
    return Surrogate(support=support, kernel="gaussian", bandwidth=BANDWIDTH, relative_bandwidth=0.0)


SURROGATE, EXACT = "literal surrogate", "literal exact"
FORMS = (
    Form(SURROGATE, _literal_samples, SURROGATE, "#000000", "s"),
    Form("direct grid KDE", _literal_grid, SURROGATE, "#E69F00", "D"),
    Form("ours shared", _ours("shared"), SURROGATE, "#0072B2", "o"),
    Form("ours interpolated", _ours("interpolated"), SURROGATE, "#56B4E9", "^"),
    Form("ours samples", _ours("samples"), SURROGATE, "#009E73", "v"),
    Form(EXACT, literal.cramer_energy, EXACT, "#D55E00", "P"),
    Form("ours exact", Exact(), EXACT, "#CC79A7", "X"),
)


def main(out: Path, smoke: bool, seed: int) -> Measured:  # noqa: ARG001
    """Run the benchmark, with a figure."""
    rows = run(smoke, seed, lambda line: print(line, file=sys.stderr, flush=True))
    return Measured("losses: forward and backward", rows, summarise(rows), draw=lambda: draw(rows))


def run(smoke: bool, seed: int, progress: Callable[[str], None]) -> list[Row]:
    """All forms at all sizes on one thread: a row for each, skipped ones included."""
    rows: list[Row] = []
    peaks: dict[str, tuple[int, int]] = {}  # form → (size, bytes) of its last run
    generator = torch.Generator().manual_seed(seed)
    with threads(1):
        for size in SMOKE_SIZES if smoke else SIZES:
            predicted, target = _samples(size, generator)
            wanted = {form.what: _expected_bytes(peaks.get(form.what), size) for form in FORMS}
            fitting = [form for form in FORMS if wanted[form.what] <= MEMORY_LIMIT]
            for form in fitting:
                # This is also the warm-up: the first run of a form builds what torch caches.
                peaks[form.what] = size, peak_bytes(partial(_step, form, predicted, target))
            budget = SECONDS_PER_CELL / 50 if smoke else SECONDS_PER_CELL
            times = _interleaved({form.what: form for form in fitting}, predicted, target, budget)
            rows += [_row(form, size, times, peaks, wanted) for form in FORMS]
            progress(f"N = {size}: " + ", ".join(f"{what} {show_seconds(s)}" for what, s in times.items()))
    return rows


def _samples(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sorted returns of two overlapping laws, N(0, 1) and N(½, 1)."""
    predicted, target = (torch.randn(BATCH, size, generator=generator).sort(-1).values for _ in range(2))
    return predicted.requires_grad_(), target + 0.5


def _step(form: Form, predicted: Tensor, target: Tensor) -> None:
    torch.autograd.grad(form.loss(predicted, target).sum(), predicted)


def _expected_bytes(last: tuple[int, int] | None, size: int) -> int:
    """The last peak, scaled by the square of the size: right for the literal forms, too careful for ours."""
    return 0 if last is None else last[1] * size**2 // last[0] ** 2


def _interleaved(forms: dict[str, Form], predicted: Tensor, target: Tensor, budget: float) -> dict[str, float]:
    """Median seconds of each form. They take turns, so that a busy moment of the machine slows all alike."""
    seconds: dict[str, list[float]] = {what: [] for what in forms}
    open_forms = list(forms)
    while open_forms:
        for what in open_forms:
            start = time.perf_counter()
            _step(forms[what], predicted, target)
            seconds[what].append(time.perf_counter() - start)
        open_forms = [what for what in open_forms if len(seconds[what]) < LEAST_REPEATS or sum(seconds[what]) < budget]
    return {what: median(runs) for what, runs in seconds.items()}


def peak_bytes(step: Callable[[], None]) -> int:
    """The most memory that tensors made by `step` held at once.

    Torch's profiler reports every allocation and release of its CPU allocator as a signed number of bytes, inside
    operators and in the backward pass as well; their running sum peaks where memory does. The resident size of the
    process would not do: it only grows, and keeps what earlier runs left. Scratch space that an FFT library takes
    straight from the system is not seen.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # without it the profiler writes to the terminal at each start
    with profile(profile_memory=True) as recorded:
        step()
    results: Any = recorded.kineto_results
    events = sorted((e for e in results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns())
    held = peak = 0
    for event in events:
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def _row(
    form: Form, size: int, times: dict[str, float], peaks: dict[str, tuple[int, int]], wanted: dict[str, int]
) -> Row:
    """The row of one form; its ratio is the time of its reference over its own."""
    if form.what not in times:
        return Row(form.what, size, BATCH, note=f"skipped: {show_bytes(wanted[form.what])} needed")
    ratio = times[form.reference] / times[form.what] if form.reference in times else None
    return Row(form.what, size, BATCH, times[form.what], peaks[form.what][1], ratio)


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """Growth exponents of time and memory, and the speed-up at N = 500 (or the largest smaller size)."""
    at = max((row.size for row in rows if row.size <= FIT_FROM), default=0)
    summary: dict[str, Any] = {
        "ratio": "seconds of the literal form of the same distance / seconds of this form, at the same size",
        "fitted_sizes": {},
        "exponent_seconds": {},
        "exponent_bytes": {},
        "speedup_size": at,
        "speedup": {r.what: r.ratio for r in rows if r.size == at and r.what.startswith("ours")},
    }
    for form in FORMS:
        measured = _fitted(rows, form.what)
        if len(measured) < 2:
            continue
        sizes, seconds, held = zip(*measured, strict=True)
        summary["fitted_sizes"][form.what] = list(sizes)
        summary["exponent_seconds"][form.what] = growth_exponent(sizes, seconds)
        summary["exponent_bytes"][form.what] = growth_exponent(sizes, held)
    return summary


def _fitted(rows: Sequence[Row], what: str) -> list[tuple[int, float, int]]:
    """What is fitted: sizes from N = 500, or the three largest of a form that did not get that far."""
    measured = _measured(rows, what)
    large = [entry for entry in measured if entry[0] >= FIT_FROM]
    return large if len(large) >= 3 else measured[-3:]


def _measured(rows: Sequence[Row], what: str) -> list[tuple[int, float, int]]:
    """(size, seconds, bytes) wherever a form ran."""
    return [
        (row.size, row.seconds, row.bytes)
        for row in rows
        if row.what == what and row.seconds is not None and row.bytes is not None
    ]


def draw(rows: Sequence[Row]) -> Figure:
    """Time and memory against N on logarithmic axes."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, label, unit in zip(panels, ("forward and backward (ms)", "peak memory (MB)"), (1e3, 1e-6), strict=True):
        for form in FORMS:
            sizes, seconds, held = zip(*_measured(rows, form.what), strict=True)
            costs = [unit * cost for cost in (seconds if axes is panels[0] else held)]
            line = "-" if form.ours else "--"
            axes.plot(sizes, costs, line, color=form.colour, marker=form.marker, markersize=5, label=form.what)
        axes.set(xscale="log", yscale="log", xlabel="samples per law, N", ylabel=label)
        axes.grid(True, which="major", alpha=0.3)
    panels[0].legend(frameon=False, fontsize="small")
    figure.suptitle(f"One loss, batch {BATCH}, float32, one thread (dashed: every pair written out)", fontsize="medium")
    return figure
