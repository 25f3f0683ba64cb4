"""Ten quantiles cannot tell a flat density from a comb of peaks; a flow sees part of it (fig:QR_DQN).

The comb is built against the quantiles: one narrow peak on each of the levels 5 %, 15 %, … 95 % of the flat law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from nfdrl.colours import BLUE, GREEN, GREY, VERMILLION
from nfdrl.evaluation.distances import distances, wasserstein1
from nfdrl.laws.base import Law
from nfdrl.laws.fitting import Fit, fit_returns
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.pushforward import PushforwardLaw
from nfdrl.laws.quantile import QuantileLaw
from nfdrl.losses.pinball import quantile_huber
from nfdrl.numerics.atoms import midpoints
from nfdrl.paper.base import Experiment, Result
from nfdrl.progress import Progress
from nfdrl.style import draw_law, figure, legend_below

QUANTILES = 10  # the paper's text: 5th, 15th, … 95th percentiles
PEAK_STD = 0.03
FLOW_COMPONENTS = (4, 10)
SIZES = (10, 13, 31, 200)  # quantiles: the paper's, the outputs of both flows, QR-DQN's default
COLORS = {"Gaussian": BLUE, "flat": GREEN, "peaky": VERMILLION}
UPDATES = 1500
FLOW_FIT = Fit(1_000, restarts=16, refining=3)  # twice the updates change no distance by more than 0.01
BATCH = 128


@dataclass(frozen=True)
class Blur:
    """The three true laws, their learned quantiles and their flow fits."""

    truths: dict[str, MixtureLaw]
    quantiles: dict[int, Tensor]
    flows: dict[int, PushforwardLaw]


def make_laws() -> dict[str, MixtureLaw]:
    """The standard Gaussian, a flat mixture of five Gaussians, and the comb."""
    flat = _mixture(torch.linspace(-1.7, 1.7, 5, dtype=torch.float64), 0.5)
    peaks = flat.quantile(midpoints(QUANTILES, flat.means))
    return {
        "Gaussian": _mixture(torch.zeros(1, dtype=torch.float64), 1.0),
        "flat": flat,
        "peaky": _mixture(peaks, PEAK_STD),
    }


def _mixture(means: Tensor, std: float) -> MixtureLaw:
    return MixtureLaw(torch.full_like(means, 1 / len(means)), means, torch.full_like(means, std))


def regress_quantiles(
    truths: list[MixtureLaw], n: int, updates: int, generator: torch.Generator, progress: Progress
) -> Tensor:
    """QR-DQN's regression (pinball, κ = 0) on fresh samples of each law; shape (laws, n)."""
    values = torch.zeros(len(truths), n, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([values], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    levels = midpoints(n, values)
    for _ in progress.track(range(updates), f"regressing {n} quantiles"):
        samples = torch.stack([truth.sample(BATCH, generator) for truth in truths])
        loss = quantile_huber(values, levels, samples, threshold=0.0).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return values.detach()


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Regress quantiles, fit flows, and compare the learned laws with each other and with the truth."""
    generator = torch.Generator().manual_seed(seed)
    truths = make_laws()
    updates = 60 if smoke else UPDATES
    laws = list(truths.values())
    quantiles = {n: regress_quantiles(laws, n, updates, generator, progress) for n in SIZES}
    targets = torch.stack([law.quantile(midpoints(200, law.means)) for law in laws])
    flows = {
        n: fit_returns(
            FlowMethod(components=n, initial_bound=3.0), targets, Fit(60) if smoke else FLOW_FIT, progress.track
        )
        for n in FLOW_COMPONENTS
    }
    apart = {pair: wasserstein1(truths[pair[0]], truths[pair[1]]) for pair in combinations(truths, 2)}
    rows = []
    for n, values in quantiles.items():
        rows += _rows("qr-dqn", n, truths, apart, [QuantileLaw(value) for value in values])
    for n, flow in flows.items():
        rows += _rows("nfdrl-e", 3 * n + 1, truths, apart, [flow.select(k) for k in range(len(laws))])
    return Result(rows, Blur(truths, quantiles, flows))


def _rows(
    method: str,
    outputs: int,
    truths: dict[str, MixtureLaw],
    apart: dict[tuple[str, str], float],
    learned: Sequence[Law],
) -> list[dict[str, object]]:
    """The distance of each learned law to its truth, and of every two learned laws over that of the two truths.

    `kept` is the W₁ distance of the learned laws over that of the true ones: near 0 the difference is lost.
    """
    by_name: dict[str, Law] = dict(zip(truths, learned, strict=True))
    rows: list[dict[str, object]] = [
        {"method": method, "outputs": outputs, "law": name, **distances(by_name[name], truth)}
        for name, truth in truths.items()
    ]
    levels = midpoints(2000, torch.zeros((), dtype=torch.float64))
    for (one, other), true in apart.items():
        found = float((by_name[one].quantile(levels) - by_name[other].quantile(levels)).abs().mean())
        pair = {"law": f"{one} / {other}", "w1_learned": found, "w1_true": true, "kept": found / true}
        rows.append({"method": method, "outputs": outputs, **pair})
    return rows


def draw(result: Result) -> Figure:
    """One row for each pair: densities, quantiles learned by regression, flow fits."""
    made, axes = figure(9.6, 6.6, 3, 3, sharex=True)
    blur: Blur = result.data
    kept = {(row["method"], row["outputs"], row["law"]): row["kept"] for row in result.rows if "kept" in row}
    outputs = 3 * FLOW_COMPONENTS[-1] + 1
    for row, pair in zip(axes, combinations(blur.truths, 2), strict=True):
        _draw_truths(row[0], blur, pair)
        _draw_quantiles(row[1], blur, pair)
        _draw_flows(row[2], blur, pair)
        for ax, method, size in ((row[1], "qr-dqn", QUANTILES), (row[2], "nfdrl-e", outputs)):
            share = kept[method, size, " / ".join(pair)]
            ax.set_title(f"difference kept: {share:.0%}", fontsize=9, loc="right")
    axes[0, 0].set_title("True densities\n")
    axes[0, 1].set_title(f"{QUANTILES} quantiles by regression\n")
    axes[0, 2].set_title(f"Flow fits, {outputs} outputs\n")
    for ax in axes[-1]:
        ax.set_xlabel("return")
    axes[0, 0].set_xlim(-3.2, 3.2)
    legend_below(made, axes)
    return made


def _draw_truths(ax: Axes, blur: Blur, pair: tuple[str, ...]) -> None:
    y = torch.linspace(-3.2, 3.2, 2001, dtype=torch.float64)
    for name in pair:
        ax.fill_between(y, blur.truths[name].pdf(y), color=COLORS[name], alpha=0.25, linewidth=0)
        ax.plot(y, blur.truths[name].pdf(y), color=COLORS[name], linewidth=1.4, label=name)
    ax.set(ylabel="density", ylim=(0, 1.45 if "peaky" in pair else 0.5))


def _draw_quantiles(ax: Axes, blur: Blur, pair: tuple[str, ...]) -> None:
    """Diracs of equal mass: the first law upwards, the second downwards."""
    names = list(blur.truths)
    for name, sign in zip(pair, (1, -1), strict=True):
        values = blur.quantiles[QUANTILES][names.index(name)]
        ax.vlines(values, 0, sign / QUANTILES, color=COLORS[name], linewidth=3)
    ax.axhline(0, color=GREY, linewidth=1)
    ax.set(ylabel="mass", ylim=(-0.145, 0.145))
    ax.set_yticks([-0.1, 0, 0.1], ["0.1", "0", "0.1"])


def _draw_flows(ax: Axes, blur: Blur, pair: tuple[str, ...]) -> None:
    names = list(blur.truths)
    for name in pair:
        law = blur.flows[FLOW_COMPONENTS[-1]].select(names.index(name))
        draw_law(ax, law, "nfdrl-e", "density", -3.2, 3.2, color=COLORS[name], label="_nolegend_", linewidth=1.4)
    ax.set(ylabel="density", ylim=(0, 1.45 if "peaky" in pair else 0.5))


EXPERIMENT = Experiment("quantile-blur", "Densities that ten quantiles cannot tell apart", compute, draw)
