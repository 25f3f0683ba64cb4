"""Draw the figures of docs/law.md: `python docs/law.py` writes docs/law/*.png."""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from nfdrl.colours import GREY, INK
from nfdrl.evaluation.distances import distances
from nfdrl.files import replace_file
from nfdrl.laws import METHODS
from nfdrl.laws.anchored import NARROWEST, REACH, WIDEST, anchored_law, anchored_zero
from nfdrl.laws.fitting import Fit, fit_returns, quantiles_of
from nfdrl.laws.flow import FlowLaw
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.reports import DPI
from nfdrl.style import STYLE, color_of, figure, legend_below

COMPONENTS, START = 4, 0.25  # as `nfdrl` has them
LEVELS = 512  # quantiles of the exact law that both families are fitted to
EDGE = MixtureLaw.atoms([-1.1, -0.1], [0.03, 0.97])  # the return of the cliff's last edge cell


def law_with(
    amplitude: float = 0.6, location: float = -1.2, scale: float = 0.25, center: float = 0.0, s: float = 0.5
) -> FlowLaw:
    """The law that training starts from, with these numbers for its lowest step and its center; unit 1."""
    zero = anchored_zero(COMPONENTS, START, torch.float64, torch.device("cpu"))
    share = (scale - NARROWEST) / WIDEST
    wanted = {0: amplitude, COMPONENTS: REACH * math.atanh(location / REACH)}
    wanted |= {2 * COMPONENTS: math.log(share / (1 - share)), 3 * COMPONENTS: center}
    raw = torch.zeros_like(zero)
    for place, value in wanted.items():
        raw[place] = value - zero[place]
    return anchored_law(raw, anchor=s, start=START)


def shade(k: int, count: int) -> tuple[float, float, float, float]:
    """The k-th of `count` shades of green, from light to dark."""
    return matplotlib.colormaps["YlGn"](0.35 + 0.6 * k / max(count - 1, 1))


def draw_flow(ax: Axes, law: FlowLaw, **line: object) -> None:
    """Returns along the noise."""
    z = torch.linspace(-3, 3, 601, dtype=torch.float64)
    ax.plot(z, law.at(z), **line)


def draw_masses(ax: Axes, law: FlowLaw, **line: object) -> None:
    """Probability in narrow bins, over their width: a density without its infinite peaks."""
    edges = torch.linspace(-2.4, 1.8, 71, dtype=torch.float64)
    ax.stairs(law.cdf(edges).diff() / edges.diff(), edges, **line)


SWEEPS: dict[str, tuple[str, Sequence[float]]] = {
    "amplitude": ("amplitude $a_1$", (0.0, 0.25, 0.6, 1.1, 1.9)),
    "location": ("location $\\mu_1$", (-0.1, -0.6, -1.2, -1.8, -2.3)),
    "scale": ("scale $\\sigma_1$", (0.04, 0.1, 0.25, 0.5, 1.4)),
    "center": ("center $c$", (-0.8, -0.4, 0.0, 0.4, 0.8)),
}


def numbers() -> Figure:
    """What each kind of number does: the flow above, the law below."""
    made, axes = figure(10.5, 5.2, 2, 4, sharey="row")
    for (name, (title, values)), (top, bottom) in zip(SWEEPS.items(), axes.T, strict=True):
        for k, value in enumerate(values):
            law = law_with(**{name: value})
            look = {"color": shade(k, len(values)), "linewidth": 1.5}
            draw_flow(top, law, label=f"{value:g}".replace("-", "−"), **look)
            draw_masses(bottom, law, **look)
        top.set(title=title, xlabel="noise z")
        top.legend(fontsize=8, handlelength=1.2, loc="upper left", labelspacing=0.2)
        bottom.set(xlabel="return", xlim=(-2.4, 1.8))
    axes[0, 0].set(ylabel="return y(z)", ylim=(-2.4, 1.9))
    axes[1, 0].set(ylabel="density, in bins of 0.06", ylim=(0, 2.6))
    return made


def anchors() -> Figure:
    """A tail component grows under three anchors: what stays where it is?"""
    made, axes = figure(10.5, 3.1, 1, 3, sharey=True)
    names = {0.0: "s = 0: the median stays", 0.5: "s = ½: the middle stays", 1.0: "s = 1: the mean stays"}
    amplitudes = (0.0, 0.5, 1.0, 1.5)
    for ax, (anchor, title) in zip(axes[0], names.items(), strict=True):
        for k, amplitude in enumerate(amplitudes):
            law = law_with(amplitude=amplitude, location=-0.5, s=anchor)
            z = torch.linspace(-3, 3, 601, dtype=torch.float64)
            ax.plot(law.at(z), torch.special.ndtr(z), color=shade(k, len(amplitudes)), linewidth=1.5)
            marks = ((law.mean(), "D", "mean"), (law.quantile(0.5), "o", "median"))
            for value, marker, label in marks:
                ax.plot(value, law.cdf(value), marker, color=shade(k, len(amplitudes)), markeredgecolor=INK,
                        markersize=5, label=label, linestyle="none")  # fmt: skip
        ax.axvline(0, color=GREY, linewidth=0.8, zorder=0)
        ax.set(title=title, xlabel="return", xlim=(-2.1, 1.6))
    axes[0, 0].set_ylabel("CDF")
    legend_below(made, axes)
    return made


def rare(fit: Fit) -> Figure:
    """The return of the cliff's last edge cell, fitted directly by both families with equal effort."""
    made, (axes,) = figure(10.5, 3.3, 1, 2)
    z = torch.linspace(-3.5, 3.5, 2001, dtype=torch.float64)
    truth = EDGE.quantile(torch.special.ndtr(z))
    back = {"color": GREY, "linewidth": 5, "alpha": 0.5, "zorder": 0}
    axes[0].plot(truth, torch.special.ndtr(z), label=f"truth: CVaR(0.1) = {number(EDGE.cvar(0.1))}", **back)
    axes[1].plot(z, truth, **back)
    targets = quantiles_of([EDGE], LEVELS)
    for method, name in (("nfdrl-e", "the paper's form"), ("nfdrl", "anchored")):
        law = fit_returns(METHODS[method].within(-1.1, -0.1), targets, fit).select(0)
        label = f"{name}: {number(law.cvar(0.1))} (Cramér distance {distances(law, EDGE)['cramer']:.4f})"
        axes[0].plot(law.at(z), torch.special.ndtr(z), color=color_of(method), label=label)
        axes[1].plot(z, law.at(z), color=color_of(method))
    axes[0].set(title="the lowest tenth of the CDF", xlabel="return", xlim=(-1.25, 0.05), ylim=(-0.003, 0.1))
    axes[1].set(title="the flow", xlabel="noise z", ylabel="return", xlim=(-3.5, 3.5), ylim=(-1.25, 0.05))
    legend_below(made, axes)
    return made


def number(value: Tensor) -> str:
    """Two digits, with a proper minus sign."""
    return f"{float(value):.2f}".replace("-", "−")


def main(out: Path, fit: Fit) -> None:
    """Write the three figures."""
    out.mkdir(parents=True, exist_ok=True)
    for name, draw in {"numbers": numbers, "anchors": anchors, "rare": lambda: rare(fit)}.items():
        image = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            draw().savefig(image, format="png", dpi=DPI)
        replace_file(out / f"{name}.png", image.getvalue())
        print(f"written: {out / name}.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "law")
    parser.add_argument("--smoke", action="store_true", help="fit for a moment only")
    given = parser.parse_args()
    main(given.out, Fit(20) if given.smoke else Fit(1_000, restarts=16, refining=3))
