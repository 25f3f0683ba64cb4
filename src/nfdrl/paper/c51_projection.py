"""A return between two of C51's atoms is spread over both; a flow puts it where it is (fig:projection)."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from nfdrl.colours import GREY
from nfdrl.evaluation.distances import distances
from nfdrl.laws.categorical import CategoricalLaw
from nfdrl.laws.fitting import Fit, fit_returns
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.pushforward import PushforwardLaw
from nfdrl.losses.categorical import project
from nfdrl.paper.base import Experiment, Result
from nfdrl.progress import Progress
from nfdrl.style import color_of, draw_law, figure, legend_below

RETURN = 1.5  # fig:projection
LAST_ATOM = 5
SHOWN = (1.0, 1.25, 1.5)
FIT = Fit(400, refining=3)
SAMPLES = 128


def compute(seed: int, smoke: bool, progress: Progress) -> Result:  # noqa: ARG001
    """Project returns at every fractional position, and fit a flow to a few of them."""
    support = torch.arange(LAST_ATOM + 1, dtype=torch.float64)
    fractions = torch.linspace(0, 1, 41, dtype=torch.float64)
    spread = _law(project_return(1 + fractions, support), support).std()
    returns = torch.tensor(SHOWN, dtype=torch.float64)
    method, fit = FlowMethod(initial_bound=float(LAST_ATOM)), Fit(25, refining=3) if smoke else FIT
    flows = fit_returns(method, returns[:, None].expand(-1, SAMPLES), fit, progress.track)
    rows = []
    for k, value in enumerate(SHOWN):
        categorical = _law(project_return(returns[k : k + 1], support), support)
        rows += [_row("c51", value, CategoricalLaw(categorical.log_masses[0], support))]
        rows += [_row("nfdrl-e", value, flows.select(k))]
    masses = project_return(torch.tensor([RETURN], dtype=torch.float64), support)[0]
    flow = flows.select(SHOWN.index(RETURN))
    stds = {value: float(flows.std()[k]) for k, value in enumerate(SHOWN)}
    return Result(
        rows, {"support": support, "masses": masses, "flow": flow, "x": fractions, "std": spread, "flow_std": stds}
    )


def project_return(values: Tensor, support: Tensor) -> Tensor:
    """The masses C51 gives to single returns; shapes (B,), (K,) → (B, K)."""
    return project(torch.ones(len(values), 1, dtype=values.dtype), values.unsqueeze(-1), support)


def _law(masses: Tensor, support: Tensor) -> CategoricalLaw:
    return CategoricalLaw(masses.log(), support)


def _row(method: str, value: float, law: CategoricalLaw | PushforwardLaw) -> dict[str, Any]:
    found = distances(law, MixtureLaw.dirac(value))
    masses = law.masses.tolist() if isinstance(law, CategoricalLaw) else None
    return {"method": method, "return": value, "mean": law.mean(), "std": law.std(), **found, "masses": masses}


def draw(result: Result) -> Figure:
    """Masses of C51, the flow's law of the same return, and the spread against the position between two atoms."""
    made, axes = figure(9.4, 3.5, 1, 3)
    data = result.data
    _draw_masses(axes[0, 0], data)
    _draw_cdf(axes[0, 1], data)
    axes[0, 2].plot(data["x"], data["std"], color=color_of("c51"))
    values = list(data["flow_std"])
    axes[0, 2].plot(
        [v - 1 for v in values], list(data["flow_std"].values()), "o", color=color_of("nfdrl-e"), clip_on=False
    )
    axes[0, 2].set(
        title="Spread that is not there", xlabel="position between atoms 1 and 2", ylabel="standard deviation"
    )
    axes[0, 2].set_ylim(0, 0.6)
    legend_below(made, axes)
    return made


def _draw_masses(ax: Axes, data: dict[str, Any]) -> None:
    ax.bar(data["support"].numpy(), data["masses"].numpy(), width=0.5, color=color_of("c51"), label="C51, 6 atoms")
    ax.axvline(RETURN, color=GREY, linewidth=4, alpha=0.55, zorder=0, label=f"true return {RETURN}")
    ax.set(title="Masses after C51's projection", xlabel="return", ylabel="mass", ylim=(0, 1))
    ax.set_xticks(range(LAST_ATOM + 1))


def _draw_cdf(ax: Axes, data: dict[str, Any]) -> None:
    law = CategoricalLaw(data["masses"].log(), data["support"])
    ax.axvline(RETURN, color=GREY, linewidth=4, alpha=0.55, zorder=0)
    draw_law(ax, law, "c51", "cdf", 0.5, 2.5, label="_nolegend_", drawstyle="steps-post")
    draw_law(ax, data["flow"], "nfdrl-e", "cdf", 0.5, 2.5, label="NFDRL-E, 13 outputs")
    ax.set(title="Cumulative probability", xlabel="return", ylabel="P(return ≤ x)", xlim=(0.5, 2.5))


EXPERIMENT = Experiment("c51-projection", "A return between two atoms", compute, draw)
