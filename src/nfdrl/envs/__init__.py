"""Environments: importing this package registers `nfdrl/MDP1-v0` to `nfdrl/MDP3-v0` and `nfdrl/RiskyCliff-v0`."""

from collections.abc import Callable

import gymnasium

from nfdrl.envs.cliff import risky_cliff
from nfdrl.envs.finite import FiniteMDP
from nfdrl.envs.toy import TOY_MDPS

FINITE_MDPS: dict[str, Callable[..., FiniteMDP]] = {**TOY_MDPS, "cliff": risky_cliff}


def register_toy_envs() -> None:
    """Make the finite MDPs known to Gymnasium; a second call changes nothing."""
    entry_points = {f"nfdrl/MDP{k}-v0": f"nfdrl.envs.toy:mdp{k}_env" for k in (1, 2, 3)}
    entry_points["nfdrl/RiskyCliff-v0"] = "nfdrl.envs.cliff:risky_cliff_env"
    for name, entry_point in entry_points.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=entry_point)


register_toy_envs()
