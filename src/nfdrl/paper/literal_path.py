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
COIN = replace(LAKE, updates=1_000)  # one pair to learn, not 44
EPISODES, STEPS = 20, 5_000  # on CartPole: of evaluation, and of training
# The paper trains for 10,000,000 steps at a rate of 5e-5 and begins to learn after 30,000. In 5,000 steps that could
# teach nothing: these two hold for all lines, ours included. The rate is our default.
SCALED = {"learning_starts": "500", "learning_rate": "5e-4"}
MULTI_SCALE = {"comparison.kernel": "multi-scale", "comparison.bandwidth": "0", "comparison.relative_bandwidth": "0.25"}
OWN_DENSITY = {"comparison.masses": "density", "comparison.kernel_gradients": "false"}
PRINTED = {
    "comparison.support": "interpolated", "comparison.rooted": "true", "comparison.averaged": "true",
    "comparison.kernel": "gaussian", "comparison.bandwidth": "0.05", "comparison.relative_bandwidth": "0",
}  # fmt: skip
SIZES = {
    "num_envs": "1", "train_every": "2", "torso.mlp": "(128, 128)", "torso.image": "(512,)",
    "torso.small_image": "(128,)", "buffer_size": "100000", "epsilon_end": "0.04", "max_grad_norm": "10.0",
    "adam_eps": "1e-5",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One change, as words of `--set` for the method and for the run; it stays for the steps after it, unless `aside`.

    A table of laws knows nothing of the run's settings but the rate. `played` steps are trained on CartPole too.
    """

    label: str
    method: dict[str, str] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    played: bool = False
    aside: bool = False

    @property
    def tabular(self) -> bool:
        """Whether a table of laws would learn anything else than in the step before."""
        return bool(self.method) or not self.run or "learning_rate_decay" in self.run


PATH = (
    Step("as printed: eq:loss_full, eq:loss rooted", played=True),
    Step("64 midpoints, not 500 draws", {"samples": "64", "points": "midpoint"}),
    Step("masses and gradients from the KDE", {
        "comparison.masses": "kernel", "comparison.kernel_gradients": "true",
    }, played=True),
    Step("(aside: weighted by density, Algorithm 1)", {"comparison.masses": "weighted"}, aside=True),
    Step("(aside: at the samples, Appendix F)", {"comparison.support": "samples"}, aside=True),
    Step("squared, not rooted", {"comparison.rooted": "false"}, played=True),
    Step("without N⁻²", {"comparison.averaged": "false"}),
    Step("on one shared grid", {"comparison.support": "shared"}, played=True),
    Step("three scales, relative to the range", MULTI_SCALE, played=True),
    Step("a point, not N(r, 0.1), at the end", {"terminal_std": "0"}, played=True),
    Step("mean in closed form", {"action_value": "mean"}, played=True),  # no part of evaluating a policy
    Step("a rate that falls to zero", run={"learning_rate_decay": "linear"}, played=True),
    Step("a target copied every 250 updates", run={"target_every": "250"}, played=True),
    Step("returns over 3 steps, Double-Q", run={"n_step": "3", "double_q": "true"}, played=True),
    Step("range from the first rewards", run={"return_range": "observed"}, played=True),
    Step("sizes, clipping, ε: ours", run=SIZES, played=True),
    Step("(ours, but rooted)", {"comparison.rooted": "true"}, played=True, aside=True),
    Step("(ours, but interpolated)", {"comparison.support": "interpolated"}, played=True, aside=True),
    Step("(ours, but interpolated and rooted)", {
        "comparison.support": "interpolated", "comparison.rooted": "true",
    }, played=True, aside=True),
    Step("(ours, but the printed loss, gradients through the KDE)", PRINTED, played=True, aside=True),
    Step("(ours, but the loss as printed)", PRINTED | OWN_DENSITY, played=True, aside=True),
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
