"""Named settings: ours, the paper's, and those in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nfdrl.errors import NfdrlError, check_at_least, unknown_name
from nfdrl.files import read_toml, replace_file, to_toml
from nfdrl.laws import find_method
from nfdrl.laws.anchored import AnchoredMethod
from nfdrl.laws.base import Method
from nfdrl.laws.flow import FlowMethod
from nfdrl.losses.exact import Exact
from nfdrl.losses.grid import GridDistance
from nfdrl.losses.surrogate import Surrogate
from nfdrl.settings import apply_settings, from_plain, own_words, words_of
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig

FILE = ".toml"  # how the name of a preset file ends


@dataclass(frozen=True)
class Preset:
    """Settings of the run, and what it changes in a method."""

    config: TrainConfig
    steps: int  # how long to train where nobody says
    adapt: Callable[[Method], Method]
    method: str = "nfdrl"  # what to train where nobody says


def unchanged(method: Method) -> Method:
    """The method with its own defaults."""
    return method


def atari_method(method: Method) -> Method:
    """The default law with gradients as large as those of NFDRL-S, with which Adam's ε was chosen."""
    return replace(method, gain=10.0) if isinstance(method, AnchoredMethod) else method


def paper_method(method: Method) -> Method:
    """The paper's table of hyper-parameters in a flow method; peers keep the settings of their own papers."""
    if not isinstance(method, FlowMethod):
        return method
    how = method.comparison
    if isinstance(how, GridDistance):
        # The table's bandwidth; in Algorithm 1 as many grid points as samples.
        how = replace(how, kernel="gaussian", bandwidth=0.05, relative_bandwidth=0.0, grid_size=500)
    return replace(
        method,
        comparison=how,
        components=4,  # n_components
        n_flows=1,  # n_flows
        samples=500,  # n_samples
        points="random",  # Algorithm 1 draws them
        terminal_std=0.1,  # final_reward_variance, read as a spread (Algorithm 1)
    )


def literal_method(method: Method) -> Method:
    """The loss and the choice of actions as the paper prints them, on top of its table."""
    method = paper_method(method)
    if not isinstance(method, FlowMethod):
        return method
    how = method.comparison
    if isinstance(how, Surrogate):
        how = replace(
            how,
            rooted=True,  # eq:loss, per transition
            averaged=True,  # eq:loss: N⁻²
            support="interpolated",  # Algorithm 1; Appendix F: "samples"
            masses="density",  # eq:loss_full: each law's own density at its own returns; Algorithm 1: "weighted"
            kernel_gradients=False,  # Limitations, "KDE for Target Distribution"
            grid_size=None,  # as many points as samples
        )
    elif isinstance(how, Exact):
        how = replace(how, bandwidth=0.05)  # fig:final and fig:bimodal smooth it as well
    return replace(method, comparison=how, action_value="density-sum")  # Algorithm 1: Q = Σ y·p(y)


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
    double_q=False,
    n_step=1,
    epsilon_start=1.0,  # start_e
    epsilon_end=0.01,  # end_e
    epsilon_fraction=0.2,  # exploration_fraction
    num_envs=4,  # num_envs
    return_range="method",
    torso=TorsoSizes(mlp=(512, 256), image=(512, 256), small_image=(512, 256)),  # hidden_size_1, hidden_size_2
)

LITERAL = replace(PAPER, adam_eps=1e-8)  # CleanRL's DQN, whose training loop the paper follows

ATARI = TrainConfig(
    discount=0.99,
    learning_rate=1e-4,  # ours: between the 6.25e-5 of Hessel et al. 2018 for 200M frames and what short runs need
    learning_rate_decay="linear",
    adam_eps=1e-5,  # ours: early on Pong most gradients are smaller than the 1.5e-4 of Hessel et al. 2018
    max_grad_norm=10.0,  # Hessel et al. 2018, Section "Evaluation methodology": clipped as in dueling networks
    batch_size=32,  # Mnih et al. 2015, Extended Data Table 1
    buffer_size=1_000_000,  # Mnih et al. 2015, Extended Data Table 1: 7.1 GB as single frames
    learning_starts=20_000,  # Hessel et al. 2018, Table 1: 80,000 frames
    train_every=4,  # Mnih et al. 2015, Extended Data Table 1
    target_every=2_000,  # Hessel et al. 2018, Table 1: 32,000 frames = 8,000 steps = 2,000 updates
    double_q=True,  # Hessel et al. 2018
    n_step=3,  # Hessel et al. 2018, Table 1
    epsilon_start=1.0,
    epsilon_end=0.01,  # Hessel et al. 2018, without noisy networks
    epsilon_fraction=0.1,  # Mnih et al. 2015: 1M of 10M steps
    num_envs=4,  # the paper: one forward pass for four games
    return_range="method",
)

MINATAR = TrainConfig(  # Young and Tian 2019, Section 3, and their released code; RMSprop there, Adam here
    discount=0.99,
    learning_rate=2.5e-4,
    learning_rate_decay="constant",
    adam_eps=3.125e-4,  # Obando-Ceron and Castro 2021, who ran MinAtar with Adam
    max_grad_norm=None,
    batch_size=32,
    buffer_size=100_000,
    learning_starts=5_000,
    train_every=1,
    target_every=1_000,
    double_q=False,
    n_step=1,
    epsilon_start=1.0,
    epsilon_end=0.1,
    epsilon_fraction=0.02,  # 100,000 of 5,000,000 frames
)


PRESETS: dict[str, Preset] = {
    "default": Preset(TrainConfig(), 200_000, unchanged),
    "paper": Preset(PAPER, 10_000_000, paper_method, "nfdrl-s"),  # total_timesteps; the paper's flow and loss
    "paper-atari": Preset(PAPER, 10_000_000, paper_method, "nfdrl-s"),  # the same, by the name of what it was made for
    "paper-literal": Preset(LITERAL, 10_000_000, literal_method, "nfdrl-s"),
    "paper-literal-atari": Preset(LITERAL, 10_000_000, literal_method, "nfdrl-s"),
    "atari": Preset(ATARI, 10_000_000, atari_method),
    "minatar": Preset(MINATAR, 5_000_000, unchanged),
}


def find_preset(name: str | Path) -> Preset:
    """The preset of that name, or the one in a .toml file."""
    if str(name).endswith(FILE):
        return read_preset(Path(name)).resolved(str(name))
    if name not in PRESETS:
        raise unknown_name("preset", str(name), [*PRESETS, f"a {FILE} file"])
    return PRESETS[str(name)]


@dataclass(frozen=True)
class PresetFile:
    """What a preset file says: the named preset that it starts from, and what it changes in it."""

    # settings of the run and of the method, by the names that --set takes
    set: Mapping[str, Any] = field(default_factory=dict)
    # the named preset to start from
    preset: str = "default"
    # the method, maybe with settings in brackets, where nobody names another; "" for that of the named preset
    method: str = ""
    # how long to train where nobody says; 0 for as long as the named preset
    steps: int = 0

    def __post_init__(self) -> None:
        check_at_least(0, steps=self.steps)
        if self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)
        if not self.method:
            object.__setattr__(self, "method", PRESETS[self.preset].method)
        if not isinstance(self.set, Mapping):
            raise NfdrlError(f"set must be a table of settings, got {self.set!r:.80}")

    def resolved(self, where: str) -> Preset:
        """The preset; errors say `where` its settings are from."""
        base = PRESETS[self.preset]

        def adapt(method: Method) -> Method:
            with _blaming(where):
                return apply_settings(words, base.config, base.adapt(method))[1]

        with _blaming(where):
            words = words_of(self.set)
            config, _ = apply_settings(own_words(words, base.config), base.config, base.config)
            named = find_method(self.method) if ":" not in self.method else None  # one of your own is not imported here
        if named is not None:
            adapt(named)
        return Preset(config, self.steps or base.steps, adapt, self.method)


def read_preset(path: Path) -> PresetFile:
    """The preset file at a path; whatever is not known in it is refused."""
    content = read_toml(path)
    with _blaming(str(path)):
        given = content.pop("set", {})
        return replace(from_plain(PresetFile, content, "a preset"), set=given)


def write_preset(path: Path, preset: PresetFile, comment: str = "") -> None:
    """Write a preset file that `read_preset` and `nfdrl train --preset` read."""
    about = {"preset": preset.preset, "method": preset.method, "steps": preset.steps}
    replace_file(path, to_toml(about | {"set": dict(preset.set)}, comment))


@contextmanager
def _blaming(where: str) -> Iterator[None]:
    """Say where the settings are from that cannot be read."""
    try:
        yield
    except NfdrlError as error:
        raise NfdrlError(f"{where}: {error}") from None
