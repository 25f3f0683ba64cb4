"""From the paper as printed to our defaults, one change at a time, on MDP2 and FrozenLake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from matplotlib.figure import Figure

from nfdrl.colours import BLUE, GREY, ORANGE
from nfdrl.envs.finite import FiniteMDP
from nfdrl.envs.toy import mdp2
from nfdrl.evaluation.distances import batch_distances
from nfdrl.evaluation.truth import exact_returns
from nfdrl.laws import METHODS
from nfdrl.laws.flow import FlowMethod
from nfdrl.paper.base import Experiment, Result
from nfdrl.paper.frozenlake import DISCOUNT
from nfdrl.paper.toy import learn_pair
from nfdrl.progress import Progress
from nfdrl.reports import Row
from nfdrl.settings import changed
from nfdrl.style import figure
from nfdrl.training.policy_laws import PolicyLearning, learn_policy_laws
from nfdrl.training.presets import find_preset

CHANCE = 0.7  # of MDP2's larger return: a loss that learns a median instead of the law shows at once
MIDDLE = 0.55  # between the two returns 0.3 and 0.8
TABLE = PolicyLearning(updates=300, batch_size=16, learning_rate=2e-2, schedule="constant")


@dataclass(frozen=True)
class Step:
    """One change, as words of `--set`, which stays for the steps after it unless it is a side step."""

    label: str
    words: dict[str, str] = field(default_factory=dict)
    schedule: str | None = None
    aside: bool = False


PATH = (
    Step("as printed: eq:loss_full, eq:loss rooted"),
    Step("64 midpoints, not 500 draws", {"samples": "64", "points": "midpoint"}),
    Step("masses and gradients from the KDE", {
        "comparison.masses": "kernel", "comparison.kernel_gradients": "true",
    }),
    Step("(aside: weighted by density, Algorithm 1)", {"comparison.masses": "weighted"}, aside=True),
    Step("(aside: at the samples, Appendix F)", {"comparison.support": "samples"}, aside=True),
    Step("squared, not rooted", {"comparison.rooted": "false"}),
    Step("without N⁻²", {"comparison.averaged": "false"}),
    Step("on one shared grid", {"comparison.support": "shared"}),
    Step("three scales, relative to the range", {
        "comparison.kernel": "multi-scale", "comparison.bandwidth": "0", "comparison.relative_bandwidth": "0.25",
    }),
    Step("(aside: rooted all the same)", {"comparison.rooted": "true"}, aside=True),
    Step("a point, not N(r, 0.1), at the end", {"terminal_std": "0"}),
    Step("a rate that falls to zero", schedule="linear"),
    Step("mean in closed form: ours", {"action_value": "mean"}),  # of the greedy action: no part of evaluating a policy
)  # fmt: skip


def methods() -> Iterator[tuple[Step, FlowMethod, PolicyLearning]]:
    """Each step with what it trains."""
    literal = find_preset("paper-literal").adapt(METHODS["nfdrl-s"])
    assert isinstance(literal, FlowMethod)
    method, table = literal, TABLE
    for step in PATH:
        stepped = changed(method, step.words, "method")
        rate = table if step.schedule is None else replace(table, schedule="linear")
        yield step, stepped, rate
        if not step.aside:
            method, table = stepped, rate


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Learn with every step."""
    lake = FiniteMDP.from_env("FrozenLake-v1", map_name="4x4", is_slippery=True)
    policy = lake.optimal_policy(DISCOUNT)
    truth = exact_returns(lake, policy, DISCOUNT)
    rows: list[Row] = []
    for step, method, table in methods():
        settings = replace(table, updates=3, batch_size=4) if smoke else table
        coin = learn_pair(
            mdp2(p=CHANCE), (0, 0), method, settings, label=f"{step.label}, MDP2", seed=seed, progress=progress
        )
        learned = learn_policy_laws(
            lake, policy, method, settings, discount=DISCOUNT, seed=seed,
            track=_tracked(progress, f"{step.label}, FrozenLake", settings.updates),
        )  # fmt: skip
        measured = batch_distances(learned.laws(truth.pairs), truth.laws)
        rows.append({
            "method": method.name, "step": step.label, "words": step.words,
            "mdp2_below": coin.law.cdf(MIDDLE), "mdp2_cramer": coin.row["cramer"],
            "frozenlake_cramer": measured["cramer"].mean(), "frozenlake_mean_error": measured["mean_error"].mean(),
            "updates": settings.updates, "samples": method.samples,
        })  # fmt: skip
    return Result(rows)


def _tracked(progress: Progress, label: str, total: int) -> Callable[[Any], Any]:
    return lambda steps: progress.track(steps, label, total)


def draw(result: Result) -> Figure:
    """A line per step, a column per measure."""
    made, axes = figure(10.0, 0.34 * len(result.rows) + 1.2, 1, 3, sharey=True)
    columns = (
        ("mdp2_below", f"MDP2, p = {CHANCE}: P(Z < {MIDDLE})", 1 - CHANCE),
        ("frozenlake_cramer", "FrozenLake: Cramér distance", None),
        ("frozenlake_mean_error", "FrozenLake: error of the means", None),
    )
    heights = range(len(result.rows))
    made.suptitle(
        f"after {result.rows[0]['updates']} updates; grey: the truth; orange: tried and not kept", fontsize=10
    )
    for ax, (key, title, true) in zip(axes[0], columns, strict=True):
        for height, row in zip(heights, result.rows, strict=True):
            ax.plot(float(row[key]), height, "o", clip_on=False, color=ORANGE if row["step"].startswith("(") else BLUE)
        if true is not None:
            ax.axvline(true, color=GREY, linewidth=4, alpha=0.5, zorder=0)
        ax.set_xlim(0, 1.05 if true else None)
        ax.set_title(title, fontsize=9.5)
        ax.grid(axis="y", color="#eeeeee")
    axes[0][0].set(yticks=list(heights), yticklabels=[row["step"] for row in result.rows])
    axes[0][0].invert_yaxis()
    return made


EXPERIMENT = Experiment("literal", "From the paper as printed to our defaults, one change at a time", compute, draw)
