"""The paper's toy MDPs (fig:simpleMDP, fig:MDP3)."""

from __future__ import annotations

from collections.abc import Callable

from nfdrl.envs.finite import FiniteMDP


def mdp1(r1: float = -0.8, r2: float = 0.3) -> FiniteMDP:
    """s1 → s2 → s3: arriving in s2 pays `r1`, arriving in s3 ends and pays `r2` (fig:MDP: −0.8 and 0.3).

    The return of (s2, a1) is r2 and that of (s1, a1) is r1 + 0.9·r2.
    """
    return FiniteMDP(
        name="mdp1",
        n_states=3,
        n_actions=1,
        state=[0, 1],
        action=[0, 0],
        probability=[1.0, 1.0],
        next_state=[1, 2],
        reward=[r1, r2],
        terminated=[False, True],
        initial=[1.0, 0.0, 0.0],
        discount=0.9,
        state_names=("s1", "s2", "s3"),
        action_names=("a1",),
    )


def mdp2(r1: float = 0.8, r2: float = 0.3, p: float = 0.5) -> FiniteMDP:
    """s1 ends in s2 with probability `p`, in s3 otherwise, and pays `r1` or `r2` (fig:bimodal: 0.8 and 0.3, ½)."""
    return FiniteMDP(
        name="mdp2",
        n_states=3,
        n_actions=1,
        state=[0, 0],
        action=[0, 0],
        probability=[p, 1 - p],
        next_state=[1, 2],
        reward=[r1, r2],
        terminated=[True, True],
        initial=[1.0, 0.0, 0.0],
        discount=0.9,
        state_names=("s1", "s2", "s3"),
        action_names=("a1",),
    )


def mdp3(second_std: float = 1.0) -> FiniteMDP:
    """s1 → s2 → s3 → s4, undiscounted; only the arrival in s4 pays: ½N(−2, 1) + ½N(2, `second_std`).

    The paper's text has a second spread of 1, its diagram (fig:MDP3) one of 0.8.
    """
    return FiniteMDP(
        name="mdp3",
        n_states=4,
        n_actions=1,
        state=[0, 1, 2, 2],
        action=[0, 0, 0, 0],
        probability=[1.0, 1.0, 0.5, 0.5],
        next_state=[1, 2, 3, 3],
        reward=[0.0, 0.0, -2.0, 2.0],
        reward_std=[0.0, 0.0, 1.0, second_std],
        terminated=[False, False, True, True],
        initial=[1.0, 0.0, 0.0, 0.0],
        discount=1.0,
        state_names=("s1", "s2", "s3", "s4"),
        action_names=("a1",),
    )


TOY_MDPS: dict[str, Callable[..., FiniteMDP]] = {"mdp1": mdp1, "mdp2": mdp2, "mdp3": mdp3}
