"""What the toy-MDP experiments share: learn one pair's law by TD and measure it against the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nfdrl.envs.finite import FiniteMDP
from nfdrl.evaluation.distances import distances
from nfdrl.evaluation.truth import exact_returns
from nfdrl.laws.base import Law, Method
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.progress import Progress
from nfdrl.reports import Row
from nfdrl.training.policy_laws import PolicyLearning, learn_policy_laws


@dataclass(frozen=True)
class Learned:
    """One learned law with the true one behind it, and what was measured."""

    label: str
    method: Method
    law: Law
    truth: MixtureLaw
    row: Row


def learn_pair(
    mdp: FiniteMDP,
    pair: tuple[int, int],
    method: Method,
    settings: PolicyLearning,
    *,
    label: str,
    seed: int,
    progress: Progress,
    **columns: Any,
) -> Learned:
    """Learn all laws of the MDP's only policy from sampled transitions and look at those of one pair."""
    policy = np.zeros(mdp.n_states, dtype=np.int64)
    truth = exact_returns(mdp, policy, pairs=[pair])[pair]
    learned = learn_policy_laws(
        mdp, policy, method, settings, seed=seed, track=lambda steps: progress.track(steps, label, settings.updates)
    )
    law = learned.laws([pair]).select(0)
    names = (mdp.state_names or (), mdp.action_names or ())
    row: Row = {
        "method": method.name,
        "state": names[0][pair[0]],
        "action": names[1][pair[1]],
        **distances(law, truth),
        "std": law.std(),
        "loss": learned.losses[-max(1, settings.updates // 10) :].mean(),
        "updates": settings.updates,
        **columns,
    }
    return Learned(label, method, law, truth, row)


def with_spread(truth: MixtureLaw, std: float) -> MixtureLaw:
    """The law of the targets where a final reward is N(r, std) and no reward comes before it."""
    return MixtureLaw(truth.weights, truth.means, truth.stds + std)


def valley(law: Law, low: float, high: float, points: int = 2000) -> float | None:
    """The depth of the valley between two modes: lowest density between them over the lower peak.

    None where either half of the range has no density. Peaks are looked for in each half of [low, high] widened by
    half its length; under ½ counts as two visible modes.
    """
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    y = torch.linspace(low - half, high + half, points, dtype=law.reference.dtype)
    # Mass in narrow windows, not the density itself: a sharp peak between two points must not be missed.
    width = float(y[1] - y[0])
    mass = (law.cdf(y + width) - law.cdf(y - width)).detach() / (2 * width)
    left, right = mass[y < middle], mass[y >= middle]
    peaks = min(float(left.max()), float(right.max()))
    if peaks <= 0:
        return None
    first, last = int(left.argmax()), int((y < middle).sum()) + int(right.argmax())
    return float(mass[first : last + 1].min()) / peaks
