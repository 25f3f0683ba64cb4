"""Learning curves of runs on Pong (fig:Pong_return), with how far each got beside the paper's 10M steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from nfdrl.colours import GREY, LIGHT
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.lines import differences
from nfdrl.paper.base import Experiment, NoRunsError, Result
from nfdrl.progress import Progress
from nfdrl.reports import Row
from nfdrl.runs.reading import RunRecord, find_runs
from nfdrl.style import color_of, figure, label_of, legend_below, line_of

PONG = "ALE/Pong-v5"
RUNS = Path("results/pong")
PAPER_STEPS = 10_000_000  # tab:hyperparameters, total_timesteps
WORST, BEST = -21, 21  # points of a game that is lost and won outright
TRAIN = f"nfdrl train --env {PONG} --method nfdrl-s --preset paper-atari --out {RUNS}/nfdrl-s-0"
CLAIM = "The paper: with a fixed rate the curve ends high but remains highly unstable (without numbers)."
WORDS = {
    ("learning_rate_decay", "constant"): "constant rate",
    ("learning_rate_decay", "linear"): "rate falls to 0",
}
SHORT = {"adam_eps": "ε", "comparison.kind": "loss"}  # a legend has little room
WIDTH = 130  # letters in a line of the title
LINES = ("-", "--", ":", "-.")


def compute(seed: int, smoke: bool, progress: Progress, runs: Path | None = None) -> Result:  # noqa: ARG001
    """Read the runs: on Pong where there are any, otherwise on the one environment that they have."""
    if runs is None and not RUNS.is_dir():
        raise NoRunsError(f"no runs in {str(RUNS)!r}: name a folder with --runs, or first `{TRAIN}`")
    found = _of_one_env(find_runs(RUNS if runs is None else runs))
    variants = [described(settings) for settings in differences(found)]
    rows = [_row(run, variant) for run, variant in zip(found, variants, strict=True)]
    shown = ("method", "variant", "seed", "steps", "frames", "of_paper", "best", "last", "fall", "evaluation")
    return Result(rows, found, {"runs": [{name: row[name] for name in shown} for row in rows]})


def _of_one_env(runs: list[RunRecord]) -> list[RunRecord]:
    names = sorted({run.game for run in runs})
    if PONG not in names and len(names) > 1:
        raise NfdrlError(f"no run on {PONG}, and others on {', '.join(names)}: name a folder with one environment")
    chosen = PONG if PONG in names else names[0]
    return [run for run in runs if run.game == chosen]


def described(settings: Mapping[str, Any]) -> str | None:
    """Settings in words, or as `--set` takes them.

    >>> described({"learning_rate_decay": "constant", "n_step": 3}), described({"adam_eps": 1e-6})
    ('constant rate, n_step=3', 'ε=1e-06')
    """
    # The axis shows the steps.
    shown = {SHORT.get(name, name): value for name, value in settings.items() if name != "steps"}
    return ", ".join(WORDS.get((name, str(value)), f"{name}={value}") for name, value in shown.items()) or None


def _row(run: RunRecord, variant: str | None) -> Row:
    """`fall` is the largest drop of the return below a peak before it: how unstable the curve is."""
    returns = [line["episode_return"] for line in run.curve if not math.isnan(line["episode_return"])]
    evaluated = run.evaluation or {}
    return {
        "method": run.method,
        "variant": variant,
        "env": run.env,
        "seed": run.seed,
        "steps": run.step,
        "frames": run.frames,
        "of_paper": _share(run.step) if run.game == PONG else None,
        "best": round(max(returns), 3) if returns else None,
        "last": round(returns[-1], 3) if returns else None,
        "fall": round(largest_fall(returns), 3) if returns else None,
        "evaluation": evaluated.get("mean"),
        "evaluation_std": evaluated.get("std"),
        "episodes": len(evaluated.get("returns", ())),
        "resumed": run.resumed,
        "folder": run.folder.name,
    }


def largest_fall(values: Sequence[float]) -> float:
    """The largest drop from a value to a later one.

    >>> largest_fall([0.0, 3.0, 1.0, 2.0])
    2.0
    """
    array = np.asarray(values)
    return float((np.maximum.accumulate(array) - array).max())


def draw(result: Result) -> Figure:
    """Return against steps, frames above; the title says how much of the paper's training it is, and what it shows."""
    runs: list[RunRecord] = result.data
    made, axes = figure(9.0, 6.0)
    ax = axes[0, 0]
    pong = runs[0].game == PONG
    if pong:
        for level, name, gap in ((WORST, "every point lost", -11), (BEST, "every point won", 3)):
            ax.axhline(level, color=LIGHT, linewidth=1, zorder=0)
            ax.annotate(name, (1, level), (-2, gap), xycoords=("axes fraction", "data"), textcoords="offset points",
                        ha="right", fontsize=8.5, color=GREY)  # fmt: skip
        ax.set_ylim(WORST - 3, BEST + 3)
    for run, name, line in zip(runs, _names(result.rows), _lines(result.rows), strict=True):
        _draw_run(ax, run, name, line)
    ax.set(xlabel="agent steps", ylabel="return of an episode, mean of the last 100")
    longest = max(run.step for run in runs)
    ax.set_xlim(0, longest * 1.02)
    ax.xaxis.set_major_formatter(lambda value, _: _count(value))
    if runs[0].frame_skip > 1:
        _draw_frames(ax, runs[0].frame_skip)
    told = f"{runs[0].game}: {longest:,} agent steps"
    if pong:
        told += f", {_share(longest)} of the paper's {PAPER_STEPS:,}"
        ax.set_title(f"{CLAIM}\n{_shown(runs, result.rows)}", fontsize=8.5, color=GREY)
    made.suptitle(told, x=0.01, ha="left", fontsize=11.5)
    legend_below(made, ax, 1)
    return made


def _names(rows: list[Row]) -> list[str]:
    """What a legend calls each run: method, the settings that tell it from others, and its seed if they differ."""
    told = zip(rows, _seeds(rows), strict=True)
    return [_joined(label_of(row["method"]), row["variant"], seed) for row, seed in told]


def _seeds(rows: list[Row]) -> list[str | None]:
    """Each run's seed in words, if they differ."""
    several = len({row["seed"] for row in rows}) > 1
    return [f"seed {row['seed']}" if several else None for row in rows]


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def _lines(rows: list[Row]) -> list[str]:
    """A method's own line for its first variant and seed, and other dashes for the rest."""
    styles: list[str] = []
    for row in rows:
        others = [(other["variant"], other["seed"]) for other in rows if other["method"] == row["method"]]
        place = list(dict.fromkeys(others)).index((row["variant"], row["seed"]))
        own = line_of(row["method"])
        cycle = [own, *(line for line in LINES if line != own)]
        styles.append(cycle[place % len(cycle)])
    return styles


def _shown(runs: list[RunRecord], rows: list[Row]) -> str:
    """What these runs say about the paper's point: how far each fell below a peak, by what its rate did."""
    if not any(run.config.get("train", {}).get("learning_rate_decay") == "constant" for run in runs):
        return "No run here has a fixed rate."
    falls = [
        f"{row['fall']:.2g} ({_joined(row['variant'] or label_of(row['method']), seed, _count(row['steps']))} steps)"
        for row, seed in zip(rows, _seeds(rows), strict=True)
        if row["fall"] is not None
    ]
    return fill(f"Here, the mean of 100 episodes falls below an earlier one by at most {', '.join(falls)}.", WIDTH)


def _share(steps: int) -> str:
    return f"{100 * steps / PAPER_STEPS:.2g} %"


def _draw_run(ax: Axes, run: RunRecord, name: str, line: str) -> None:
    steps = np.array([point["step"] for point in run.curve])
    returns = np.array([point["episode_return"] for point in run.curve])
    # Later variants are darker as well: where two curves run together, dashes alone would be lost in a line.
    color = color_of(run.method) if line == line_of(run.method) else darker(color_of(run.method))
    if run.evaluation is not None:
        mean, std = float(run.evaluation["mean"]), float(run.evaluation.get("std") or 0.0)
        count = len(run.evaluation.get("returns", ())) or run.evaluation.get("episodes")
        ax.errorbar([run.step], [mean], [std], fmt="D", color=color, markersize=6, capsize=3, clip_on=False, zorder=5)
        name += f"; greedy, {count} episodes: {mean:.3g} ± {std:.2g}"
    ax.plot(steps, returns, line, color=color, linewidth=1.6, label=name)
    for at in run.resumed:
        ax.axvline(at, color=GREY, linestyle=":", linewidth=1.2, label="stopped and resumed")


def darker(color: str) -> tuple[float, float, float]:
    """The colour at 45 % of its brightness."""
    red, green, blue = to_rgb(color)
    return 0.45 * red, 0.45 * green, 0.45 * blue


def _draw_frames(ax: Axes, skip: int) -> None:
    top = ax.secondary_xaxis("top", functions=(partial(np.multiply, skip), partial(np.multiply, 1 / skip)))
    top.set_xlabel("frames of the game")
    top.xaxis.set_major_formatter(lambda value, _: _count(value))


def _count(value: float) -> str:
    """
    >>> _count(0), _count(50_000), _count(2_500_000)
    ('0', '50k', '2.5M')
    """
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


EXPERIMENT = Experiment("pong", "Learning curves on Pong", compute, draw, reads_runs=True)
