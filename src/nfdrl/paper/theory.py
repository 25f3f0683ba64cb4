"""The appendix, checked: every claim about the surrogate distance as a measured number (sec:cramer, KDE_appendix)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nfdrl.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION
from nfdrl.paper.base import Experiment, Result
from nfdrl.paper.claims import contraction, gradients, metric, smoothing
from nfdrl.paper.claims.base import STANDARD_ERRORS
from nfdrl.progress import Progress
from nfdrl.reports import Row
from nfdrl.style import figure

Measure = Callable[[], tuple[list[Row], dict[str, Any]]]

RANDOM_ROWS = 20_000
REPLICATES = 200_000


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Measure every claim."""
    generator = torch.Generator().manual_seed(seed)
    rows, replicates = (500, 4_000) if smoke else (RANDOM_ROWS, REPLICATES)
    table = metric.metric_axioms(rows, generator)
    data: dict[str, Any] = {}
    measures: tuple[tuple[str, Measure], ...] = (
        ("contraction", lambda: contraction.contraction(rows, generator)),
        ("two rewards", contraction.two_reward_step),
        ("gradients", lambda: gradients.sample_gradients(replicates, generator)),
        ("near and far", smoothing.near_and_far),
        ("upper bound", lambda: metric.upper_bound(rows, generator)),
    )
    for name, measure in progress.track(measures, "claims"):
        found, data[name] = measure()
        table += found
    table += [contraction.fixed_grid_step(), *metric.support_dependence(), *smoothing.one_hot()]
    table += metric.scale_and_sum(rows, generator)
    table += [*gradients.minimisers(), *metric.propositions(), *contraction.fixed_point(), *gradients.practical_bias()]
    return Result(table, data)


def draw(result: Result) -> Figure:
    """Six panels, one per group of claims."""
    made, axes = figure(9.6, 6.2, 2, 3)
    panels = (
        (_draw_contraction, "contraction"),
        (_draw_two_rewards, "two rewards"),
        (_draw_bias, "gradients"),
        (_draw_fixed, "near and far"),
        (_draw_practice, "near and far"),
        (_draw_bound, "upper bound"),
    )
    for ax, (panel, name) in zip(axes.flat, panels, strict=True):
        panel(ax, result.data[name])
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2, columnspacing=1.0, handlelength=1.4)
    return made


def _draw_contraction(ax: Axes, data: dict[str, Any]) -> None:
    gamma = data["gamma"]
    ax.plot(gamma, gamma.sqrt(), color=GREY, linewidth=4, alpha=0.5, label="√γ")
    ax.plot(gamma, data["D"], "o", color=BLUE, label="surrogate D")
    ax.plot(gamma, data["exact"], "x", color=VERMILLION, label="exact Cramér")
    ax.set(title="One transition contracts by √γ", xlabel="discount γ", ylabel="distance after / before")


def _draw_two_rewards(ax: Axes, data: dict[str, Any]) -> None:
    ax.axhline(data["limit"], color=GREY, linewidth=4, alpha=0.5, label="√γ")
    ax.plot(data["gap"], data["D"], color=BLUE, label="surrogate D")
    ax.plot(data["gap"], data["exact"], color=VERMILLION, label="exact Cramér")
    ax.set(title="A random reward need not", xlabel="gap R between two rewards", ylabel="distance after / before")
    ax.set_ylim(0)


def _draw_bias(ax: Axes, data: dict[str, Any]) -> None:
    ax.axhline(0, color=GREY, linewidth=1)
    for name, label, color, shift in (
        ("D²", "D²", BLUE, 0.96),
        ("D", "D, rooted", PURPLE, 1.0),
        ("exact", "exact, squared", VERMILLION, 1.04),
    ):
        x = [m * shift for m in data["m"]]
        error = [STANDARD_ERRORS * e for e in data[name]["error"]]
        ax.errorbar(x, data[name]["bias"], error, color=color, fmt="o-", markersize=4, capsize=2, label=label)
    ax.set_xscale("log", base=2)
    ax.set_xticks(data["m"], [str(m) for m in data["m"]])
    ax.set(title="Sample gradients: D² unbiased", xlabel="samples m of the target", ylabel="relative bias, ± 3 s.e.")


def _draw_fixed(ax: Axes, data: dict[str, Any]) -> None:
    for (h, values), color in zip(data["fixed"].items(), (BLUE, GREEN, ORANGE), strict=True):
        ax.plot(data["gap"], values / values[100], color=color, label=f"h = {h}")
    exact = data["gap"].sqrt()
    ax.plot(data["gap"], exact / exact[100], color=VERMILLION, linestyle="--", label="exact Cramér")
    ax.set(title="Smoothed D levels off", xlabel="gap between two spikes", ylabel="distance / distance at 5")
    ax.set_ylim(0)


def _draw_practice(ax: Axes, data: dict[str, Any]) -> None:
    colors = (BLUE, GREEN, ORANGE, PURPLE, VERMILLION)
    for (name, values), color in zip(data["practice"].items(), colors, strict=True):
        label = "exact Cramér" if name == "exact" else name
        ax.plot(data["gap"], values / values[100], color=color, linestyle="--" if name == "exact" else "-", label=label)
    ax.set(title="The practical loss, in exact arithmetic", xlabel="gap between two spikes", ylabel="loss / loss at 5")
    ax.set_ylim(0)


def _draw_bound(ax: Axes, data: dict[str, Any]) -> None:
    for (n, ratios), color in zip(data["ratios"].items(), (BLUE, GREEN, ORANGE, PURPLE), strict=True):
        ordered = ratios.sort().values
        share = torch.linspace(0, 1, len(ordered))
        ax.plot(ordered, share, color=color, label=f"{n} points")
    ax.axvline(0.5, color=GREY, linewidth=4, alpha=0.5)
    ax.set_xscale("log")
    ax.set(title="Cramér² is at most ½ N²D²", xlabel="Cramér² / N²D²", ylabel="share of random pairs")


EXPERIMENT = Experiment("theory", "The claims of the appendix as numbers", compute, draw)
