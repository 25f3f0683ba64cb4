"""Tutorial 3: a method of your own in one file.

Three classes: a law, the head that reads it off a network, and the method, which compares two laws. Here the return of
an action is logistic, with two numbers per action, learned by maximum likelihood. About a minute.
"""

# %% The law: what Law asks for, in closed form where there is one
from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import matplotlib
import torch
from torch.nn.functional import logsigmoid, softplus

import nfdrl
from nfdrl.laws.base import LinearHead, select_rows
from nfdrl.style import STYLE, figure, legend_below


@dataclass(frozen=True, eq=False)
class LogisticLaw(nfdrl.DensityLaw):
    center: torch.Tensor
    scale: torch.Tensor

    @property
    def batch_shape(self):
        return self.center.shape

    @property
    def reference(self):
        return self.center

    def mean(self):
        return self.center

    def variance(self):
        return self.scale.square() * (math.pi**2 / 3)

    def _standard(self, y):
        return (y - self.center[..., None]) / self.scale[..., None].clamp_min(1e-6)

    def _quantile(self, tau):
        return self.center[..., None] + self.scale[..., None] * torch.logit(tau)

    def _cdf(self, y):
        return torch.sigmoid(self._standard(y))

    def _cvar(self, alpha):  # the mean of logit(τ) over τ < α is −H(α)/α, with H the entropy of a coin
        entropy = -alpha * alpha.log() - (1 - alpha) * torch.log1p(-alpha)
        return self.center[..., None] - self.scale[..., None] * entropy / alpha

    def _log_prob(self, y):
        x = self._standard(y)
        return logsigmoid(x) + logsigmoid(-x) - self.scale[..., None].clamp_min(1e-6).log()

    def select(self, action):
        return LogisticLaw(*(select_rows(part, action, 0) for part in (self.center, self.scale)))

    def bootstrap(self, reward, discount):
        return LogisticLaw(reward + discount * self.center, discount * self.scale)


# %% The head: one linear layer, two numbers per action
class LogisticHead(LinearHead):
    def __init__(self, features, actions, unit):
        super().__init__(features, actions, 2)
        self.unit = unit

    def read(self, raw):
        center, scale = self.by_action(raw).unbind(-1)
        return LogisticLaw(self.unit * center, self.unit * (0.01 + softplus(scale)))


# %% The method: its settings, its head and its loss
@dataclass(frozen=True)
class Logistic(nfdrl.Method):
    name: ClassVar[str] = "logistic"
    label: ClassVar[str] = "logistic"
    colour: ClassVar[str] = "#8a4fbf"

    # scale of the returns
    unit: float = 1.0  # ours: a quarter of their range, where that is known
    # returns of the target whose likelihood is taken
    levels: int = 16  # ours

    def head(self, features, actions):
        return LogisticHead(features, actions, self.unit)

    def loss(self, predicted, target, generator=None):  # noqa: ARG002
        """Minus the mean log-likelihood of the target's quantiles; sampled targets do not bias its gradients."""
        tau = (torch.arange(self.levels) + 0.5) / self.levels
        return -predicted.log_prob(target.quantile(tau)).mean(-1)

    def within(self, low, high):
        """The method for returns in this range, which training measures in its first steps."""
        return replace(self, unit=(high - low) / 4)


METHOD = Logistic()


# %% Everything else works: training, risk, saving, evaluation
def train(steps: int) -> nfdrl.Agent:
    agent = nfdrl.Agent(METHOD, "CartPole-v1", seed=0).learn(steps)
    agent.save("out/tutorials/own")
    return nfdrl.Agent.load("out/tutorials/own", method=METHOD)  # a saved agent never imports your code by itself


# %% A picture: what the agent expects of both actions, from a pole that stands to one that falls to either side
def draw(agent: nfdrl.Agent, path: Path) -> None:
    angles = torch.linspace(-0.2, 0.2, 81)
    still, falling = 0 * angles, 8 * angles  # cart at rest in the middle; angular velocity of the pole
    law = agent.returns(torch.stack([still, still, angles, falling], -1).numpy())  # batch shape (81, 2)
    with matplotlib.rc_context(STYLE):
        made, axes = figure(9, 3.4, cols=2, sharey=True)
        for action, (ax, name) in enumerate(zip(axes[0], ("push left", "push right"), strict=True)):
            low, mean, high = (value[:, action] for value in (law.quantile(0.05), law.mean(), law.quantile(0.95)))
            ax.fill_between(angles, low, high, color=METHOD.colour, alpha=0.2, linewidth=0, label="5 % to 95 %")
            ax.plot(angles, mean, color=METHOD.colour, label="mean")
            ax.set(title=name, xlabel="angle of the falling pole (rad)")
        axes[0, 0].set_ylabel("discounted return")
        legend_below(made, axes)
        path.parent.mkdir(parents=True, exist_ok=True)
        made.savefig(path, dpi=150)


if __name__ == "__main__":
    agent = train(int(os.environ.get("NFDRL_STEPS", "30000")))
    print(agent)
    print("mean return over 20 episodes:", agent.evaluate(20, progress=False).mean)
    agent.risk = "cvar:0.25"
    print("acting by the worst quarter:", agent.evaluate(20, progress=False).mean)
    draw(agent, Path("out/tutorials/own_law.png"))
