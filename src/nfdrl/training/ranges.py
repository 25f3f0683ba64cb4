"""The range of returns to expect and the size of rewards, from the first ones, to set a support or an initial bound.

Methods on a fixed support (C51, UMDQN) must be told the range of returns, and a flow learns its range faster from the
right scale. All of them get the same range, measured the same way, so that none knows more than the others.
"""

from __future__ import annotations

import numpy as np

from nfdrl.replay import Replay

GROWTH = 2.0  # how far a policy may improve on the warm-up, in widths of the returns seen there
UNSEEN = (-1.0, 1.0)  # if no reward was seen at all: most sparse rewards are ±1


def observed_range(replay: Replay) -> tuple[float, float]:
    """The smallest and largest discounted return that the stored rewards allow; 0 is always inside.

    Rewards before the last step may repeat for 1/(1−γ) steps, rewards at termination come once: that bounds every
    return. Where the former are rare or cancel, this bound is far too wide, so a second one applies as well: the
    returns that were seen, widened by `GROWTH` times their own width.
    """
    reward, going = replay.reward[replay.live].astype(float), replay.kept[replay.live] > 0
    repeated, once = reward[going], reward[~going]
    seen = np.concatenate([discounted_returns(replay), reward, [0.0]])
    if not np.any(reward):
        return UNSEEN
    horizon = 1 / (1 - replay.discount) if replay.discount < 1 else np.inf
    allowed = np.concatenate([horizon * repeated[repeated != 0], once, reward, [0.0]])
    width = seen.max() - seen.min()
    low = max(allowed.min(), seen.min() - GROWTH * width)
    high = min(allowed.max(), seen.max() + GROWTH * width)
    return float(low), float(high)


def observed_reward(replay: Replay) -> float:
    """The root mean square of the stored rewards that are not 0; 1 if there are none, as most sparse rewards are ±1."""
    found = replay.reward[replay.live & (replay.reward != 0)].astype(float)
    return float(np.sqrt(np.square(found).mean())) if len(found) else 1.0


def discounted_returns(replay: Replay) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The return from every stored step to the end of its episode, or of the data."""
    length = replay.length
    reward, kept = (part.reshape(-1, length).astype(float) for part in (replay.reward, replay.kept))
    live, ended = (part.reshape(-1, length) for part in (replay.live, replay.ended))
    order = [(replay.cursor - back) % length for back in range(1, length)]
    rows = np.arange(len(reward))
    value, found = np.zeros(len(reward)), []
    for at in order[: replay.filled]:
        here = live[rows, at]
        value = np.where(here, reward[rows, at] + np.where(ended[rows, at], 0, kept[rows, at] * value), 0)
        found.append(value[here])
    return np.concatenate(found) if found else np.zeros(0)
