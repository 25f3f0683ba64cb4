"""Environments: importing this package registers `nfdrl/MDP1-v0` to `nfdrl/MDP3-v0` and `nfdrl/RiskyCliff-v0`."""

from collections.abc import Callable

import gymnasium

from nfdrl.envs.cliff import risky_cliff
from nfdrl.envs.finite import FiniteMDP, TabularEnv
from nfdrl.envs.toy import TOY_MDPS

FINITE_MDPS: dict[str, Callable[..., FiniteMDP]] = {**TOY_MDPS, "cliff": risky_cliff}


def finite_env(mdp: str, **settings: float) -> TabularEnv:
    """A finite MDP of ours as a Gymnasium environment; `gymnasium.make` passes its settings."""
    return TabularEnv(FINITE_MDPS[mdp](**settings))


def register_finite_mdps() -> None:
    """Make the finite MDPs known to Gymnasium; a second call changes nothing."""
    for name in FINITE_MDPS:
        env_id = f"nfdrl/{'RiskyCliff' if name == 'cliff' else name.upper()}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, "nfdrl.envs:finite_env", kwargs={"mdp": name})


register_finite_mdps()
