"""How every figure looks: colours, fonts, sizes, and the drawing of laws. Without pyplot, nothing global changes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nfdrl.colours import BLACK, GREY, INK, LIGHT
from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS
from nfdrl.laws.base import DensityLaw, Law, Method
from nfdrl.laws.mixture import MixtureLaw

Floats = NDArray[np.float64]
View = Literal["density", "cdf", "quantile"]

STYLE: Any = {  # some versions of Matplotlib type its keys as literals
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "axes.titlelocation": "left",
    "lines.linewidth": 1.8,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "nfdrl",  # so that equal figures give equal files
}


def color_of(method: str | Method) -> str:
    """The colour of a method or of the truth, the same in every figure; black for an unknown one."""
    found = _known(method)
    return GREY if method == "truth" else BLACK if found is None else found.colour


def line_of(method: str | Method) -> str:
    """The line style of a method; solid for an unknown one."""
    found = _known(method)
    return "-" if found is None else found.line


def label_of(method: str | Method) -> str:
    """The name of a method as a legend writes it."""
    found = _known(method)
    return str(method) if found is None else found.label


def _known(method: str | Method) -> Method | None:
    return METHODS.get(method.lower()) if isinstance(method, str) else method


def figure(
    width: float = 9.0, height: float = 3.4, rows: int = 1, cols: int = 1, *, sharex: Any = False, sharey: Any = False
) -> tuple[Figure, NDArray[Any]]:
    """A figure and its axes, always an array of shape (rows, cols); nine inches suit the width of a README."""
    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, cols, sharex=sharex, sharey=sharey, squeeze=False)


def legend_below(made: Figure, axes: Axes | NDArray[Any], columns: int | None = None) -> None:
    """One legend below all panels, without repeated entries, never over the data."""
    entries: dict[str, Any] = {}
    for ax in np.ravel(np.asarray(axes, dtype=object)):
        handles, labels = ax.get_legend_handles_labels()
        entries |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in entries}
    if entries:
        made.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns or len(entries))


def draw_truth(ax: Axes, truth: MixtureLaw, view: View = "density", label: str | None = "truth") -> None:
    """The true law in the background: grey areas for densities, stems as high as their mass for atoms.

    Stems are scaled to the panel (the heaviest reaches 96 % of it), since an atom has no density to compare.
    """
    if view != "density":
        low, high = _range(truth)
        draw_law(ax, truth, "truth", view, low, high, label=label, linewidth=3.0, zorder=1)
        return
    live = truth.weights > 0
    weights, means, stds = (np.asarray(t[live].double()) for t in (truth.weights, truth.means, truth.stds))
    smooth = stds > 0
    if smooth.any():
        low, high = _range(truth)
        y = np.linspace(low, high, 2000)
        parts = weights[smooth] * np.exp(-0.5 * ((y[:, None] - means[smooth]) / stds[smooth]) ** 2) / stds[smooth]
        density = parts.sum(-1) / np.sqrt(2 * np.pi)
        ax.fill_between(y, density, color=LIGHT, edgecolor=GREY, linewidth=1.0, zorder=1, label=label)
    if (~smooth).any():
        heights = 0.96 * weights[~smooth] / weights[~smooth].max()
        stems = ax.vlines(
            means[~smooth], 0, heights, color=GREY, alpha=0.55, linewidth=4, zorder=1,
            transform=ax.get_xaxis_transform(), label="_nolegend_" if smooth.any() or label is None else label,
        )  # fmt: skip
        stems.set_capstyle("butt")


def draw_law(
    ax: Axes,
    law: Law,
    method: str | Method,
    view: View = "density",
    low: float | None = None,
    high: float | None = None,
    *,
    label: str | None = None,
    points: int = 1000,
    **line: Any,
) -> None:
    """One law (batch shape ()) as density, CDF or quantile function, in its method's colour.

    Points are spread evenly over [low, high] and evenly in probability, so that a narrow peak keeps its height.
    """
    options = {"color": color_of(method), "linestyle": line_of(method), "label": label or label_of(method)} | line
    with torch.no_grad():
        if view == "quantile":
            tau = _levels(points)
            ax.plot(tau, to_numpy(law.quantile(_like(law, tau))), **options)
            return
        y = _points(law, low, high, points)
        if view == "cdf":
            ax.plot(y, to_numpy(law.cdf(_like(law, y))), **options)
            return
        if not isinstance(law, DensityLaw):
            raise NfdrlError(f"a {type(law).__name__} has no density to draw: draw its cdf or its quantiles")
        ax.plot(y, to_numpy(law.pdf(_like(law, y))), **options)


def _points(law: Law, low: float | None, high: float | None, points: int) -> Floats:
    spread = to_numpy(law.quantile(_like(law, _levels(points))))
    first, last = spread[0] if low is None else low, spread[-1] if high is None else high
    both = np.concatenate([np.linspace(first, last, points), spread])
    return np.unique(both[(both >= first) & (both <= last)])


def _levels(points: int) -> Floats:
    return np.asarray((np.arange(points) + 0.5) / points, dtype=np.float64)


def _like(law: Law, values: Floats) -> torch.Tensor:
    return torch.as_tensor(values, dtype=law.reference.dtype, device=law.reference.device)


def to_numpy(values: torch.Tensor) -> Floats:
    """A tensor as float64 on the CPU, without its graph."""
    return np.asarray(values.detach().double().cpu().numpy(), dtype=np.float64)


def _range(truth: MixtureLaw) -> tuple[float, float]:
    """All atoms and four deviations of every Gaussian, with a margin."""
    low, high = float((truth.means - 4 * truth.stds).min()), float((truth.means + 4 * truth.stds).max())
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin
