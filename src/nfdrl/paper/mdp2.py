"""MDP2: two returns with equal probability (fig:bimodal), and what the root does to a loss on sampled transitions."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nfdrl.envs.toy import mdp2
from nfdrl.laws.flow import FlowMethod
from nfdrl.losses.exact import Exact
from nfdrl.losses.l2 import L2
from nfdrl.losses.surrogate import Surrogate
from nfdrl.paper.base import SAMPLES, Experiment, Progress, Result
from nfdrl.paper.toy import Learned, learn_pair, valley
from nfdrl.style import color_of, draw_law, draw_truth, figure, legend_below
from nfdrl.training.policy_evaluation import Evaluation

SETTINGS = Evaluation(updates=8_000, batch_size=64, learning_rate=2e-2)
SMOKE = Evaluation(updates=60, batch_size=16, learning_rate=2e-2)

PAPER = Surrogate(kernel="gaussian", bandwidth=0.05, relative_bandwidth=0.0)

LOADED = 0.7  # a coin that is not fair: the root then prefers one side, where at ½ it is indifferent

# Label, method, comparison, probability of 0.8.
CASES: tuple[tuple[str, str, Exact | Surrogate | L2, float], ...] = (
    ("exact Cramér", "nfdrl-e", Exact(), 0.5),
    ("surrogate", "nfdrl-s", Surrogate(), 0.5),
    ("L²", "l2", L2(), 0.5),
    ("exact, rooted", "nfdrl-e", Exact(rooted=True), 0.5),
    ("surrogate, rooted", "nfdrl-s", Surrogate(rooted=True), 0.5),
    ("exact, p = 0.7", "nfdrl-e", Exact(), LOADED),
    ("exact, rooted, p = 0.7", "nfdrl-e", Exact(rooted=True), LOADED),
    ("surrogate, p = 0.7", "nfdrl-s", Surrogate(), LOADED),
    ("surrogate, rooted, p = 0.7", "nfdrl-s", Surrogate(rooted=True), LOADED),
    ("Gaussian kernel, h = 0.05", "nfdrl-s", PAPER, 0.5),
    ("interpolated to samples", "nfdrl-s", Surrogate(support="interpolated"), 0.5),
    ("at the samples", "nfdrl-s", Surrogate(support="samples"), 0.5),
)


def compute(seed: int, smoke: bool, progress: Progress) -> Result:
    """Learn the law of (s1, a1) with every loss from the same stream of sampled transitions."""
    settings = SMOKE if smoke else SETTINGS
    learned = []
    for label, method_name, comparison, probability in CASES:
        one = learn_pair(
            mdp2(p=probability), (0, 0), FlowMethod(comparison, samples=SAMPLES), settings,
            method_name=method_name, label=label, seed=seed, progress=progress,
            loss_form=label, rooted=comparison.rooted, probability=probability,
        )  # fmt: skip
        one.row.update(mean=one.law.mean(), valley=valley(one.law, 0.3, 0.8))
        learned.append(one)
    return Result([one.row for one in learned], learned)


def draw(result: Result) -> Figure:
    """Densities of the three squared losses; squared against rooted CDFs; the distances of all forms."""
    cases: dict[str, Learned] = {one.label: one for one in result.data}
    made, axes = figure(9.4, 6.4, 2, 3)
    for ax, name in zip(axes[0], ("exact Cramér", "surrogate", "L²"), strict=True):
        one = cases[name]
        draw_truth(ax, one.truth)
        draw_law(ax, one.law, one.method, low=0.0, high=1.1)
        ax.set(title=f"{name}: ℓ₂ = {one.row['cramer']:.4f}", xlabel="return", xlim=(0, 1.1))
        ax.set_ylim(bottom=0)
    axes[0][0].set_ylabel("density")
    for ax, (name, p) in zip(axes[1], (("surrogate", ""), ("exact", ", p = 0.7")), strict=False):
        _squared_and_rooted(ax, cases.get(name + p, cases.get(name)), cases[f"{name}, rooted{p}"])
    _bars(axes[1][2], result.data)
    legend_below(made, axes, columns=5)
    return made


def _squared_and_rooted(ax: Axes, squared: Learned | None, rooted: Learned) -> None:
    assert squared is not None
    draw_truth(ax, squared.truth, "cdf")
    draw_law(ax, squared.law, squared.method, "cdf", 0.0, 1.1)
    draw_law(ax, rooted.law, "dqn", "cdf", 0.0, 1.1, label="the same loss, rooted", linestyle=":")
    ax.set(title=f"{rooted.label}: ℓ₂ = {rooted.row['cramer']:.3f}", xlabel="return", xlim=(0, 1.1))
    ax.set_ylabel("P(Z ≤ y)")


def _bars(ax: Axes, learned: list[Learned]) -> None:
    values = [one.row["cramer"] for one in learned]
    shades = [0.45 if one.row["rooted"] else 1.0 for one in learned]
    for height, (one, value, shade) in enumerate(zip(learned, values, shades, strict=True)):
        ax.barh(height, value, color=color_of(one.method), alpha=shade)
    ax.set(yticks=range(len(values)), yticklabels=[one.label for one in learned], xscale="log")
    ax.set(xlabel="Cramér distance to truth", title="every form of the loss")
    ax.tick_params(axis="y", labelsize=8)
    ax.invert_yaxis()


EXPERIMENT = Experiment(
    "mdp2",
    "Two returns with equal probability",
    "bimodality, and why the loss is squared (fig:bimodal)",
    compute,
    draw,
)
