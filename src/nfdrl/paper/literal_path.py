"""The way from the paper as printed to our defaults: which settings change, in which order, on a table and in play."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nfdrl.laws import METHODS
from nfdrl.laws.flow import FlowMethod
from nfdrl.settings import changed
from nfdrl.training.config import TrainConfig
from nfdrl.training.policy_laws import PolicyLearning
from nfdrl.training.presets import find_preset

LAKE = PolicyLearning(updates=2_500, batch_size=32, learning_rate=2e-2, schedule="constant")
COIN = replace(LAKE, updates=500)  # one pair to learn, not 44
EPISODES, STEPS = 20, 5_000  # on CartPole: of evaluation, and of training
# The paper trains for 10,000,000 steps at a rate of 5e-5 and begins to learn after 30,000. In 5,000 steps that could
# teach nothing: these two hold for all lines, ours included. The rate is our default.
SCALED = {"learning_starts": "500", "learning_rate": "5e-4"}
MULTI_SCALE = {"comparison.kernel": "multi-scale", "comparison.bandwidth": "0", "comparison.relative_bandwidth": "0.25"}
THROUGH = {"comparison.masses": "kernel", "comparison.kernel_gradients": "true"}
PRINTED = {
    "comparison.support": "interpolated", "comparison.rooted": "true", "comparison.averaged": "true",
    "comparison.kernel": "gaussian", "comparison.bandwidth": "0.05", "comparison.relative_bandwidth": "0",
    "comparison.masses": "density", "comparison.kernel_gradients": "false",
}  # fmt: skip
SIZES = {
    "num_envs": "1", "train_every": "2", "torso.mlp": "(128, 128)", "torso.image": "(512,)",
    "torso.small_image": "(128,)", "buffer_size": "100000", "epsilon_end": "0.04", "max_grad_norm": "10.0",
    "adam_eps": "1e-5",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One change, as words of `--set` for the method and for the run; it stays for the steps after it, unless `aside`.

    Tables of laws learn MDP2 and FrozenLake with every step that makes a difference there. `played` ones are trained on
    CartPole: not each change of the loss on its own, since in so few steps the paper's loop teaches none of them to
    balance; losses are compared there in our loop, at the end.
    """

    label: str
    method: dict[str, str] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    tabular: bool = True
    played: bool = True
    aside: bool = False


PATH = (
    Step("as printed: eq:loss_full, eq:loss rooted"),
    Step("64 midpoints, not 500 draws", {"samples": "64", "points": "midpoint"}, played=False),
    Step("masses and gradients from the KDE", THROUGH, played=False),
    Step("(there, weighted by density: Algorithm 1)", {"comparison.masses": "weighted"}, played=False, aside=True),
    Step("(there, at the samples: Appendix F)", {"comparison.support": "samples"}, played=False, aside=True),
    Step("squared, not rooted, without N⁻²", {
        "comparison.rooted": "false", "comparison.averaged": "false",
    }, played=False),
    Step("on one shared grid", {"comparison.support": "shared"}, played=False),
    Step("three scales, relative to the range", MULTI_SCALE, played=False),
    Step("a point, not N(r, 0.1), at the end", {"terminal_std": "0"}, played=False),
    # A policy that is only evaluated chooses no actions by Q.
    Step("Q in closed form", {"action_value": "mean"}, tabular=False, played=False),
    Step("a rate that falls to zero", run={"learning_rate_decay": "linear"}),
    Step("a target copied every 250 updates", run={"target_every": "250"}, tabular=False),
    Step("returns over 3 steps, Double-Q", run={"n_step": "3", "double_q": "true"}, tabular=False),
    Step("range from the first rewards", run={"return_range": "observed"}, tabular=False),
    Step("sizes, clipping, ε: ours", run=SIZES, tabular=False),
    Step("(ours, but rooted)", {"comparison.rooted": "true"}, aside=True),
    Step("(ours, but interpolated)", {"comparison.support": "interpolated"}, aside=True),
    Step("(the same, with the paper's kernel and spread)", {
        "comparison.support": "interpolated", "comparison.kernel": "gaussian", "comparison.bandwidth": "0.05",
        "comparison.relative_bandwidth": "0", "terminal_std": "0.1",
    }, aside=True),
    Step("(ours, but with the printed loss)", PRINTED, tabular=False, aside=True),
    Step("(that loss, with gradients through the KDE)", PRINTED | THROUGH, tabular=False, aside=True),
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """A step with what it trains: a method, the schedule of a table's rate, and the settings of a run."""

    step: Step
    method: FlowMethod
    config: TrainConfig

    def table(self, settings: PolicyLearning) -> PolicyLearning:
        """The settings of a table with this trial's schedule."""
        return replace(settings, schedule=self.config.learning_rate_decay)


def trials() -> Iterator[Trial]:
    """Every step, each with the changes before it."""
    preset = find_preset("paper-literal")
    method, config = preset.adapt(METHODS["nfdrl-s"]), changed(preset.config, SCALED, "run")
    assert isinstance(method, FlowMethod)
    for step in PATH:
        trial = Trial(step, changed(method, step.method, "method"), changed(config, step.run, "run"))
        yield trial
        if not step.aside:
            method, config = trial.method, trial.config
