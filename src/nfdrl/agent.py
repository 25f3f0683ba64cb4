"""What a user holds: learn, predict, returns, evaluate, save, load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from typing_extensions import Self

from nfdrl.bellman import Valuation
from nfdrl.envs.make import EnvLike, Source, source_of
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.rollouts import Episodes, rollout
from nfdrl.laws import Law, Method, find_method, method_config, method_from
from nfdrl.learner import Learner
from nfdrl.networks import Network, is_image, network_for
from nfdrl.replay import storage_dtype
from nfdrl.risk import Mean, Risk, parse_risk
from nfdrl.runs import checkpoint
from nfdrl.runs.journal import Journal, Snapshot, remove_unused, restore
from nfdrl.runs.layout import REPLAY, locate, replay_of
from nfdrl.settings import to_plain
from nfdrl.threads import threads
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import Event
from nfdrl.training.loop import Trainer
from nfdrl.training.trackers import ProgressTracker, Tracker, tracked

Array = NDArray[Any]
EVALUATION_ENVS = 8


class Agent:
    """A method, the environment it learns in, and the return laws it has learned.

    >>> agent = Agent("nfdrl-s", "CartPole-v1", seed=1)
    >>> agent.learn(1_100, progress=False).returns([0.0, 0.0, 0.0, 0.0]).batch_shape
    torch.Size([2])
    """

    def __init__(
        self,
        method: str | Method,
        env: EnvLike,
        *,
        seed: int = 0,
        config: TrainConfig | None = None,
        risk: str | Valuation | None = None,
        device: str | torch.device = "auto",
    ) -> None:
        kind = find_method(method) if isinstance(method, str) else method
        self._setup(kind, source_of(env), seed, TrainConfig() if config is None else config, risk, device)

    def _setup(
        self,
        method: Method,
        source: Source,
        seed: int,
        config: TrainConfig,
        risk: str | Valuation | None,
        device: str | torch.device,
    ) -> None:
        if seed < 0:
            raise NfdrlError(f"seed must not be negative, got {seed}")
        self.source, self.seed, self.config = source, int(seed), config
        self.observation_space, self.action_space = source.observation_space, source.action_space
        self.risk: Valuation = parse_risk(risk) if isinstance(risk, str) else risk or Mean()
        self.device = _device(device)
        self.network = _network(method, source, config, self.seed).to(self.device)
        self.trainer = Trainer(method, self.network, source, config, risk=self.risk, seed=self.seed)

    @property
    def method(self) -> Method:
        """The method, set to the observed range of returns once learning has begun."""
        return self.trainer.method

    @property
    def step(self) -> int:
        """The transitions so far."""
        return self.trainer.step

    @property
    def learner(self) -> Learner:
        """What moves the weights, once learning has begun."""
        if self.trainer.learner is None:
            raise NfdrlError(
                f"this agent does not learn yet: its first {self.config.learning_starts:,} steps are random"
            )
        return self.trainer.learner

    def learn(self, steps: int, *, progress: bool = True) -> Self:
        """Train for `steps` more transitions."""
        trackers = [ProgressTracker(self.step + steps, self.step)] if progress else []
        for _ in self.events(steps, trackers):
            pass
        return self

    def events(
        self, steps: int, trackers: Iterable[Tracker] = (), *, pause_every: int | None = None
    ) -> Iterator[Event]:
        """Train for `steps` more transitions, one event at a time; with a `Pause` at multiples of `pause_every`."""
        if steps < 1:
            raise NfdrlError(f"steps must be at least 1, got {steps}")
        with threads(_threads_for(self.observation_space)):
            yield from tracked(self.trainer.run(steps, pause_every), trackers)

    def predict(
        self,
        observation: ArrayLike,
        state: tuple[Array, ...] | None = None,  # noqa: ARG002
        episode_start: Array | None = None,  # noqa: ARG002
        deterministic: bool = True,
    ) -> tuple[Array, None]:
        """The action for one observation or for a batch of them, in the form of Stable-Baselines3's `predict`."""
        batch, single = self._batch(observation)
        actor = self.trainer.actor
        chosen = actor.engine.greedy(batch) if deterministic else actor.act(batch, self.config.epsilon_end)
        action = chosen + int(self.action_space.start)
        return action.reshape(()) if single else action, None

    @torch.no_grad()
    def returns(self, observation: ArrayLike) -> Law:
        """The return law of every action: batch shape (A,) for one observation, (B, A) for a batch."""
        batch, single = self._batch(observation)
        features = cast(Tensor, self.network.torso(torch.from_numpy(batch).to(self.device)))
        return self.network.head(features[0] if single else features)

    def _batch(self, observation: ArrayLike) -> tuple[Array, bool]:
        """Observations as rows in the dtype of the replay, and whether there was only one without a batch axis."""
        array = np.asarray(observation)
        shape = self.observation_space.shape
        assert shape is not None
        single = array.shape == shape
        if not single and array.shape[1:] != shape:
            raise NfdrlError(f"observations must have shape {shape} or (B, …), got {array.shape}")
        rows = array[None] if single else array
        return np.ascontiguousarray(rows, dtype=storage_dtype(self.observation_space)), single

    def evaluate(self, episodes: int = 10, seed: int = 10_000) -> Episodes:
        """Greedy returns over whole episodes, in environments of their own where those can be made."""
        if episodes < 1:
            raise NfdrlError(f"episodes must be at least 1, got {episodes}")
        envs = self.source.for_evaluation(min(episodes, EVALUATION_ENVS))
        try:
            return rollout(lambda rows: self.predict(rows)[0], envs, episodes, seed)
        finally:
            for env in envs:
                if env is not self.source.given:
                    env.close()

    def save(self, path: str | Path, *, replay: bool = False) -> None:
        """Write a folder from which `load` makes this agent again; with the replay, it continues exactly.

        Episodes that are open count as cut off at this step.
        """
        folder = Path(path)
        snapshot = (
            Journal(folder / REPLAY).append(self.trainer.replay) if replay and self.step and self.source.known else None
        )
        checkpoint.write(folder, self.saved(snapshot))
        remove_unused(folder / REPLAY, [] if snapshot is None else [snapshot])

    def saved(self, replay: Snapshot | None = None) -> checkpoint.Saved:
        """Everything a checkpoint holds; the replay's rows are in files of their own."""
        config = {
            "nfdrl": version("nfdrl"),
            "method": method_config(self.method),
            "env": self.source.name,
            "observation_space": checkpoint.space_config(self.observation_space),
            "action_space": checkpoint.space_config(self.action_space),
            "train": to_plain(self.config),
            "risk": str(self.risk) if isinstance(self.risk, Risk) else None,
            "seed": self.seed,
        }
        state = self.trainer.state() | {"replay": None if replay is None else replay.to_json()}
        return checkpoint.Saved(config, state, self.trainer.tensors())

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: EnvLike | None = None,
        *,
        method: Method | None = None,
        risk: str | Valuation | None = None,
        device: str | torch.device = "auto",
        replay: bool = True,
    ) -> Self:
        """An agent as it was saved, from its folder or from a run's; with its replay it continues exactly.

        Without a saved replay, or with `replay=False`, it learns with an empty one. The environment is made from its
        saved id unless one is given. `method` is for one that nfdrl does not have: its class, with the saved settings.
        """
        folder = locate(Path(path))
        saved = checkpoint.read(folder)
        try:
            return cls._from_saved(saved, folder, env, method, risk, device, replay)
        except NfdrlError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
            # A gymnasium space, a network or a generator did not take what the files say.
            said = " ".join(repr(error).split())
            raise NfdrlError(f"{folder} does not describe an agent: {said[:300]}") from None
        except MemoryError:
            raise NfdrlError(f"{folder} describes an agent that does not fit into memory") from None

    @classmethod
    def _from_saved(
        cls,
        saved: checkpoint.Saved,
        folder: Path,
        env: EnvLike | None,
        method: Method | None,
        risk: str | Valuation | None,
        device: str | torch.device,
        replay: bool,
    ) -> Self:
        config, state, agent = saved.config, saved.state, cls.__new__(cls)
        kind = method_from(config["method"], method)
        if not isinstance(config["risk"], str | None):
            raise NfdrlError(f"the saved risk must be a word, got {config['risk']!r}")
        if risk is None and config["risk"] is None:
            raise NfdrlError("the saved agent chose actions by a function of your own: pass it as `risk`")
        train, source = checkpoint.train_config_from(config["train"]), _source_from(config, env)
        parts = ("online", "target") if state["trainer"]["learning"] else ("online",)
        network = partial(_network, kind, source, train, config["seed"])
        checkpoint.check_shapes(network, saved.tensors, parts)
        agent._setup(kind, source, config["seed"], train, config["risk"] if risk is None else risk, device)
        agent.trainer.restore(state, saved.tensors)
        snapshot = saved.replay
        if replay and snapshot is not None and source.known:
            if not isinstance(env, VectorEnv) and len(snapshot.position) != train.num_envs:
                raise NfdrlError("the saved replay is of another number of environments than the saved settings")
            try:
                restore(agent.trainer.replay, replay_of(folder), snapshot)
            except NfdrlError as error:
                raise NfdrlError(f"{error} (the agent without its replay: Agent.load(…, replay=False))") from None
        return agent


def _network(method: Method, source: Source, config: TrainConfig, seed: int) -> Network:
    return network_for(method, source.observation_space, int(source.action_space.n), config.torso, seed)


def _threads_for(space: gymnasium.Space[Any]) -> int:
    """One thread for networks without convolutions: sharing out their small tensors costs more than it saves."""
    return torch.get_num_threads() if isinstance(space, gymnasium.spaces.Box) and is_image(space) else 1


def _source_from(config: dict[str, Any], env: EnvLike | None) -> Source:
    """The environment that is given or was saved, in which the saved network must be able to act; or its spaces."""
    given = config["env"] if env is None else env
    if env is None and ":" in str(given):
        raise NfdrlError(f"the saved environment {given!r} would import a module: pass it as `env` if you trust it")
    if given is None:
        spaces = [checkpoint.space_from(config[name]) for name in ("observation_space", "action_space")]
        return Source(None, None, spaces[0], cast(gymnasium.spaces.Discrete, spaces[1]), None)
    source = source_of(given)
    for name in ("observation_space", "action_space"):
        found = checkpoint.space_config(getattr(source, name))
        if found != config[name]:
            raise NfdrlError(f"the environment's {name} is {found}, the saved agent's {config[name]}")
    return source


def _device(name: str | torch.device) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except RuntimeError:
        raise NfdrlError(f"unknown device {name!r}: use 'auto', 'cpu' or 'cuda'") from None
