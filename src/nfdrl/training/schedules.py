"""Numbers that change over a run, as functions of the fraction that is done."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from nfdrl.errors import NfdrlError, unknown_name

Decay = Literal["constant", "linear", "quadratic", "cosine"]
DECAYS: tuple[Decay, ...] = ("constant", "linear", "quadratic", "cosine")


def decay(kind: Decay, fraction: float) -> float:
    """The factor on a learning rate after `fraction` of the run: 1 at the start.

    >>> [decay("linear", f) for f in (0.0, 0.25, 1.0)]
    [1.0, 0.75, 0.0]
    """
    if kind == "constant":
        return 1.0
    if kind == "linear":
        return max(0.0, 1 - fraction)
    if kind == "quadratic":
        return max(0.0, 1 - fraction) ** 2
    if kind == "cosine":
        return 0.5 * (1 + math.cos(math.pi * min(1.0, fraction)))
    raise unknown_name("decay", kind, DECAYS)


def forgetting(rate: float, usual: float, fraction: float) -> float:
    """A rate that forgets where it began: 1/rate² grows by (fraction/usual)², whatever the start was.

    A rate of five times the usual one is half of that after a third of the run, and at the end nearly the usual one.

    >>> [round(forgetting(rate, 0.004, 1.0), 4) for rate in (0.003, 0.004, 0.02)]
    [0.0024, 0.0028, 0.0039]
    """
    return 1 / math.hypot(1 / rate, fraction / usual)


def following(step: int, every: int | None) -> float:
    """The next multiple of `every` after a step; never if there is no interval.

    >>> following(999, 1000), following(1000, 1000), following(5, None)
    (1000, 2000, inf)
    """
    return math.inf if every is None else (step // every + 1) * every


@dataclass(frozen=True)
class Goal:
    """Where one call of training ends, the steps over which its schedules run, and whether it exceeds its plan."""

    end: int
    plan: int
    stretched: bool = False


def goal_of(steps: int, done: int, asked: int, width: int, plan: int | None, total: int | None) -> Goal:
    """The goal of `steps` more transitions after `done`, within the plan so far or a `total` that is now stated.

    A step of `width` environments may pass the end that was `asked` for; the next call does not count that twice, and
    one that reaches the plan ends with it. So calls of 500 and 500 are one call of 1,000.

    >>> goal_of(500, 0, 0, 3, None, 1000), goal_of(500, 501, 500, 3, 1000, None)
    (Goal(end=500, plan=1000, stretched=False), Goal(end=1000, plan=1000, stretched=False))
    >>> goal_of(1000, 1000, 1000, 1, 1000, None)
    Goal(end=2000, plan=2000, stretched=True)
    """
    end, plan = asked + steps, plan if total is None else total
    if plan is not None and (plan <= end < plan + width or end < plan <= done + steps):
        end = plan
    if plan is None or end > plan:
        if total is not None:
            raise NfdrlError(f"total_steps must be at least {end:,}, the steps so far and these, got {total:,}")
        return Goal(end, end, stretched=plan is not None)
    return Goal(end, plan)
