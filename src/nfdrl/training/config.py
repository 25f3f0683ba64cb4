"""The settings of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import gymnasium
from gymnasium.spaces import Discrete

from nfdrl.engines import ENGINES, EngineName
from nfdrl.envs.watching import Limits
from nfdrl.errors import NfdrlError, check_at_least, check_at_most, unknown_name
from nfdrl.laws.base import Method
from nfdrl.learner import Optimisation
from nfdrl.torsos import TorsoSizes, highest_rate
from nfdrl.training.schedules import DECAYS, Decay, decay

FrameReplay = Literal["auto", "on", "off", "compressed"]
FRAME_REPLAYS: tuple[FrameReplay, ...] = ("auto", "on", "off", "compressed")
ReturnRange = Literal["observed", "method"]
RETURN_RANGES: tuple[ReturnRange, ...] = ("observed", "method")
MOST_FRAMES = 1_000  # of a stack, whose space takes memory before anything else is checked
COUNTS = ("batch_size", "buffer_size", "train_every", "n_step", "num_envs", "target_every", "report_every")


@dataclass(frozen=True)
class TrainConfig:
    """How to train; steps are transitions, summed over all environments."""

    # weight of a reward one step later
    discount: float = 0.99  # Mnih et al. 2015, Extended Data Table 1
    # Adam's step size at the start; none for the method's own, for images at most 2.5e-4, from 36 × 36 on 1e-4
    learning_rate: float | None = None  # ours: rare returns need larger steps than means
    # how it falls over the run: constant, linear, quadratic or cosine
    learning_rate_decay: Decay = "linear"  # ours: sampled targets never stop moving; laws settle as the rate falls
    # what Adam adds to its denominator
    adam_eps: float = 1e-5  # ours: between Adam's 1e-8 and the 1e-2/batch of Bellemare et al. 2017
    # longer gradients are shortened to this norm; none for no limit
    max_grad_norm: float | None = 10.0  # Stable-Baselines3's DQN
    # transitions per update
    batch_size: int = 64  # paper, table of hyper-parameters: batch_size
    # transitions in the replay
    buffer_size: int = 100_000  # ours: fits any machine; the paper's 1,000,000 is for Atari
    # whether the replay stores the frames of stacked images one by one: auto, on, off or compressed
    frame_replay: FrameReplay = "auto"  # ours: each frame once, where images are known to be stacks
    # folder for the replay's observations; empty for memory
    replay_on_disk: str = ""  # ours: memory is faster, where it suffices
    # random steps before the first update
    learning_starts: int = 1_000  # ours: enough episodes of classic control to see the scale of returns
    # steps per update
    train_every: int = 2  # ours; Mnih et al. 2015 and the paper have 4
    # updates between two moves of the target network
    target_every: int = 250  # ours: 500 steps, as in CleanRL's DQN
    # share of the online weights in such a move
    target_tau: float = 1.0  # Mnih et al. 2015: the target is a copy
    # whether the online network chooses the next action, which the target network judges
    double_q: bool = True  # van Hasselt et al. 2016, with every law: Hessel et al. 2018
    # rewards that are summed before the law of the state that was reached
    n_step: int = 3  # Hessel et al. 2018, Table 1; with 1, NFDRL-E unlearns CartPole again (docs/training.md)
    # whether such a sum stops before an action that was explored: a random one, or one by the mean
    cut_explored: bool = True  # Watkins 1989: n-step returns stop before a random action, after which they are biased
    # share of random actions at the start
    epsilon_start: float = 1.0  # paper, table of hyper-parameters: start_e
    # share of random actions in the end
    epsilon_end: float = 0.04  # Raffin 2020 (RL Zoo), DQN on CartPole; the paper has 0.01
    # share of the run after which that is reached
    epsilon_fraction: float = 0.2  # paper, table of hyper-parameters: exploration_fraction
    # share of episodes in which training acts by the mean, where actions are chosen by another functional
    explore_by_mean: float = 0.5  # ours: who avoids an action sees few of its bad ends (docs/law.md)
    # environments that are stepped together
    num_envs: int = 1  # ours: one environment is stepped directly; the paper uses 4
    # where a method's range of returns comes from: observed in the first steps, or the method's own settings
    return_range: ReturnRange = "observed"  # ours: support or initial bound from the rewards of the first steps
    # what computes updates: auto, compiled or graph
    engine: EngineName = "auto"  # ours: compiled where it can run, else graph; the same numbers up to rounding
    # steps between two lines of metrics
    report_every: int = 1_000  # ours
    # observations that the agent sees at once; Atari games have a setting of their own
    frame_stack: int = 1  # ours: an observation is a state
    # whether numbers are brought to mean 0 and variance 1 by what training has seen; images never are
    normalise_observations: bool = False  # ours
    # seconds after which an environment that is being reset has hung; 0 for never
    reset_limit: float = Limits.reset  # ours
    # seconds after which a step has hung; 0 for never
    step_limit: float = Limits.step  # ours
    # the layers below the head
    torso: TorsoSizes = field(default_factory=TorsoSizes)  # ours, and Mnih et al. 2015 for images

    def __post_init__(self) -> None:
        check_at_least(1, **{name: getattr(self, name) for name in COUNTS})
        check_at_least(1, frame_stack=self.frame_stack)
        check_at_most(MOST_FRAMES, frame_stack=self.frame_stack)
        check_at_least(0, learning_starts=self.learning_starts)
        for name in ("discount", "epsilon_start", "epsilon_end", "epsilon_fraction", "explore_by_mean"):
            if not 0 <= getattr(self, name) <= 1:
                raise NfdrlError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        for name in ("reset_limit", "step_limit"):
            if not 0 <= getattr(self, name) < math.inf:
                raise NfdrlError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")
        if self.buffer_size // self.num_envs < self.n_step + 2:
            least = (self.n_step + 2) * self.num_envs
            raise NfdrlError(f"buffer_size must be at least (n_step + 2) · num_envs = {least}, got {self.buffer_size}")
        for kind, value, known in (
            ("learning_rate_decay", self.learning_rate_decay, DECAYS),
            ("frame_replay", self.frame_replay, FRAME_REPLAYS),
            ("return_range", self.return_range, RETURN_RANGES),
            ("engine", self.engine, ENGINES),
        ):
            if value not in known:
                raise unknown_name(kind, value, known)
        self.optimisation()

    def of_method(self, method: Method, space: gymnasium.Space[Any]) -> TrainConfig:
        """The settings with the method's own learning rate, or what images allow, where they have none."""
        if self.learning_rate is not None:
            return self
        rate = method.finite_rate if isinstance(space, Discrete) else method.learning_rate
        return replace(self, learning_rate=min(rate, highest_rate(space)))

    def limits(self) -> Limits:
        """The part that whoever plays episodes needs."""
        return Limits(self.reset_limit, self.step_limit)

    def optimisation(self) -> Optimisation:
        """The part that the learner needs."""
        return Optimisation(self.rate(0.0), *(getattr(self, field.name) for field in fields(Optimisation)[1:]))

    def epsilon(self, fraction: float) -> float:
        """The share of random actions after `fraction` of the run.

        >>> TrainConfig().epsilon(0.0), TrainConfig().epsilon(0.2)
        (1.0, 0.04)
        """
        if fraction >= self.epsilon_fraction:
            return self.epsilon_end
        return self.epsilon_start + (self.epsilon_end - self.epsilon_start) * fraction / self.epsilon_fraction

    def rate(self, fraction: float) -> float:
        """The learning rate after `fraction` of the run."""
        first = Optimisation.learning_rate if self.learning_rate is None else self.learning_rate
        return first * decay(self.learning_rate_decay, fraction)
