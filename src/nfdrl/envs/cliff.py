"""A cliff: the short way is better on average, the long way is better in the worst tenth.

How a risk functional is used for control. CVaR of the return is not time-consistent: an action that is best for the
worst tenth of what can still happen need not belong to the plan that is best for the worst tenth seen from the start,
so no Bellman equation in the CVaR alone has the static optimum as its solution (Lim and Malik 2022). We follow
Dabney et al. 2018b. A static functional of each action's return law chooses the action, and that law belongs to a
policy: the given one in policy evaluation, the agent's own in control, where the same functional chooses the next
action of the Bellman target. The Bellman update of the laws is the usual one, so the laws are right for the policy that
is followed. Whether this policy is optimal for the static CVaR from the start, or for a nested CVaR, is not guaranteed.
On this cliff the question does not arise, since the only choice is at the start.
"""

from __future__ import annotations

from nfdrl.envs.finite import FiniteMDP
from nfdrl.errors import NfdrlError, check_at_least

SHORT, LONG = 0, 1


def risky_cliff(
    length: int = 3, slip: float = 0.03, loss: float = 1.0, step_cost: float = 0.1, discount: float = 1.0
) -> FiniteMDP:
    """Walk `length` cells along the edge, or around them; each step costs, each step from an edge cell may be a fall.

        path0 → path1 → path2 → path3 → path4
          ↑ long                          ↓
        start →  edge1 → edge2 → edge3 → goal
           short   ↓       ↓       ↓
                 abyss   abyss   abyss

    The only choice is at the start; elsewhere both actions do the same. A step costs `step_cost`, and a step from an
    edge cell ends in the abyss with probability `slip` and costs `loss` on top. Without discount the short way takes
    4 steps and the long way 6:

    | return, short        | probability        |
    |----------------------|--------------------|
    | −1 − 0.4 = −1.4      | 0.97²·0.03 = 0.028227 |
    | −1 − 0.3 = −1.3      | 0.97·0.03  = 0.0291   |
    | −1 − 0.2 = −1.2      | 0.03                  |
    | −0.4                 | 0.97³      = 0.912673 |

    Mean of the short way: −(1.4·0.028227 + 1.3·0.0291 + 1.2·0.03 + 0.4·0.912673) = −0.478417.
    CVaR(0.1) of it, the falls (0.087327) and 0.012673 of the rest:
    −(1.4·0.028227 + 1.3·0.0291 + 1.2·0.03 + 0.4·0.012673)/0.1 = −1.184170.
    The long way returns −0.6, always: worse in the mean, better in the CVaR.
    """
    check_at_least(1, length=length)
    if not 0 <= slip <= 1:
        raise NfdrlError(f"slip must lie in [0, 1], got {slip}")
    names = ["start", *(f"edge{k + 1}" for k in range(length)), *(f"path{k}" for k in range(length + 2))]
    edge, path, goal = 1, 1 + length, 2 * length + 3
    outcomes = [(0, SHORT, 1.0, edge), (0, LONG, 1.0, path)]
    for action in (SHORT, LONG):
        for k in range(length):
            outcomes += [(edge + k, action, slip, goal + 1)]
            outcomes += [(edge + k, action, 1 - slip, edge + k + 1 if k < length - 1 else goal)]
        outcomes += [(s, action, 1.0, s + 1) for s in range(path, goal)]
    state, action_, probability, next_state = zip(*outcomes, strict=True)
    return FiniteMDP(
        name="cliff",
        n_states=goal + 2,
        n_actions=2,
        state=state,
        action=action_,
        probability=probability,
        next_state=next_state,
        reward=[-step_cost - (loss if s == goal + 1 else 0.0) for s in next_state],
        terminated=[s >= goal for s in next_state],
        initial=[1.0] + [0.0] * (goal + 1),
        discount=discount,
        state_names=(*names, "goal", "abyss"),
        action_names=("short", "long"),
    )
