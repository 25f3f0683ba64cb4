"""Environments: importing this package registers `nfdrl/MDP1-v0`, `nfdrl/MDP2-v0` and `nfdrl/MDP3-v0`."""

import gymnasium


def register_toy_envs() -> None:
    """Make the toy MDPs known to Gymnasium; a second call changes nothing."""
    for k in (1, 2, 3):
        name = f"nfdrl/MDP{k}-v0"
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=f"nfdrl.envs.toy:mdp{k}_env")


register_toy_envs()
