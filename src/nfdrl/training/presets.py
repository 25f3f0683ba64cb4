"""Named settings: ours, and the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from nfdrl.errors import unknown_name
from nfdrl.laws.base import Method
from nfdrl.laws.flow import FlowMethod
from nfdrl.networks import TorsoSizes
from nfdrl.training.config import TrainConfig


@dataclass(frozen=True)
class Preset:
    """Settings of the run, and what it changes in a method."""

    config: TrainConfig
    steps: int  # how long to train where nobody says
    adapt: Callable[[Method], Method]


def unchanged(method: Method) -> Method:
    """The method with its own defaults."""
    return method


def paper_method(method: Method) -> Method:
    """The paper's table of hyper-parameters in a flow method; peers keep the settings of their own papers."""
    if not isinstance(method, FlowMethod):
        return method
    smoothing = replace(
        method.comparison,
        kernel="gaussian",
        bandwidth=0.05,  # bandwidth
        relative_bandwidth=0.0,
        grid_size=500,  # Algorithm 1: as many grid points as samples
    )
    return replace(
        method,
        comparison=smoothing,
        components=4,  # n_components
        n_flows=1,  # n_flows
        samples=500,  # n_samples
        points="random",  # Algorithm 1 draws them
        terminal_std=0.1,  # final_reward_variance, read as a spread (Algorithm 1)
    )


PAPER = TrainConfig(
    discount=0.99,  # gamma
    learning_rate=5e-5,  # learning_rate
    learning_rate_decay="constant",
    max_grad_norm=3.0,  # max_norm
    batch_size=64,  # batch_size
    buffer_size=1_000_000,  # buffer_size
    learning_starts=30_000,  # learning_starts
    train_every=4,  # train_frequency
    target_every=1,  # target_network_frequency
    epsilon_start=1.0,  # start_e
    epsilon_end=0.01,  # end_e
    epsilon_fraction=0.2,  # exploration_fraction
    num_envs=4,  # num_envs
    return_range="method",
    torso=TorsoSizes(mlp=(512, 256), image=(512, 256), small_image=(512, 256)),  # hidden_size_1, hidden_size_2
)

PRESETS: dict[str, Preset] = {
    "default": Preset(TrainConfig(), 200_000, unchanged),
    "paper": Preset(PAPER, 10_000_000, paper_method),  # total_timesteps
}


def find_preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]
