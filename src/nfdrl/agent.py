"""What a user holds: learn, predict, returns, evaluate, save, load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from typing_extensions import Self

from nfdrl import checkpoint
from nfdrl.bellman import Valuation
from nfdrl.envs.make import EnvLike, Source, source_of
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.rollouts import Episodes, rollout
from nfdrl.frames import FrameStorage
from nfdrl.laws import Law, Method, find_method
from nfdrl.learner import Learner
from nfdrl.networks import is_image, network_for
from nfdrl.replay import ArrayStorage, Replay, Storage, storage_dtype
from nfdrl.risk import Mean, Risk, parse_risk
from nfdrl.training.config import TrainConfig
from nfdrl.training.loop import Actor, Event, Trainer
from nfdrl.training.ranges import observed_range, within
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
        self._setup(find_method(method) if isinstance(method, str) else method, seed, config, risk, device)
        self._use(source_of(env))
        self.learner = self._new_learner()

    def _setup(
        self,
        method: Method,
        seed: int,
        config: TrainConfig | None,
        risk: str | Valuation | None,
        device: str | torch.device,
    ) -> None:
        if seed < 0:
            raise NfdrlError(f"seed must not be negative, got {seed}")
        self.method, self.seed = method, int(seed)
        self.config = TrainConfig() if config is None else config
        self.risk: Valuation = parse_risk(risk) if isinstance(risk, str) else risk or Mean()
        self.device = _device(device)
        self._rng = np.random.default_rng(self.seed)
        self._trainer: Trainer | None = None
        self.source: Source | None = None
        self.step = 0

    def _use(self, source: Source) -> None:
        self.source = source
        self.observation_space, self.action_space = source.observation_space, source.action_space

    def _new_learner(self) -> Learner:
        network = network_for(
            self.method, self.observation_space, int(self.action_space.n), self.config.torso, self.seed
        )
        generator = torch.Generator(self.device).manual_seed(self.seed)
        learner = Learner(
            self.method, network.to(self.device), self.config.optimisation(), risk=self.risk, generator=generator
        )
        self._actor = Actor(learner.online, int(self.action_space.n), self._rng, self.risk)
        return learner

    def _after_warm_up(self, replay: Replay) -> Learner:
        """The learner, with the method set to the returns that the first rewards allow."""
        if self.config.return_range == "observed":
            self.method = within(self.method, *observed_range(replay))
            self.learner = self._new_learner()
        return self.learner

    def learn(self, steps: int, *, progress: bool = True) -> Self:
        """Train for `steps` more transitions."""
        trackers = [ProgressTracker(self.step + steps, self.step)] if progress else []
        for _ in self.events(steps, trackers):
            pass
        return self

    def events(self, steps: int, trackers: Iterable[Tracker] = ()) -> Iterator[Event]:
        """Train for `steps` more transitions, one event at a time."""
        if steps < 1:
            raise NfdrlError(f"steps must be at least 1, got {steps}")
        if self._trainer is None:
            self._trainer = self._new_trainer()
        trainer = self._trainer
        with _threads_for(self.observation_space):
            for event in tracked(trainer.run(steps), trackers):
                self.step = trainer.step
                yield event

    def _new_trainer(self) -> Trainer:
        config = self.config
        stream = self._source().stream(config.num_envs)
        replay = Replay(
            config.buffer_size,
            self.observation_space,
            num_envs=stream.num_envs,
            discount=config.discount,
            n_step=config.n_step,
            rng=self._rng,
            storage=self._new_storage(stream.num_envs),
        )
        learner = self.learner if self.step else None  # one that was loaded goes on
        return Trainer(
            stream, replay, config, self._after_warm_up, rng=self._rng, seed=self.seed, learner=learner, step=self.step
        )

    def _new_storage(self, num_envs: int) -> Storage:
        """Single frames for stacks of them, else observations as they are; on disk where that was asked for."""
        config, space = self.config, self.observation_space
        folder = Path(config.replay_on_disk) if config.replay_on_disk else None
        if config.frame_replay == "on" or (config.frame_replay == "auto" and self._source().stacked):
            if not (isinstance(space, gymnasium.spaces.Box) and is_image(space)):
                raise NfdrlError(f"frame_replay is for stacked images, observations are {space}")
            return FrameStorage(config.buffer_size, num_envs, space, folder)
        return ArrayStorage(config.buffer_size // num_envs * num_envs, space, folder)

    def _source(self) -> Source:
        if self.source is None:
            raise NfdrlError("this agent was loaded without an environment: pass `env` to Agent.load")
        return self.source

    def predict(
        self,
        observation: ArrayLike,
        state: tuple[Array, ...] | None = None,  # noqa: ARG002
        episode_start: Array | None = None,  # noqa: ARG002
        deterministic: bool = True,
    ) -> tuple[Array, None]:
        """The action for one observation or for a batch of them, in the form of Stable-Baselines3's `predict`."""
        batch, single = self._batch(observation)
        chosen = self._actor.act(batch, 0.0 if deterministic else self.config.epsilon_end)
        action = chosen + int(self.action_space.start)
        return action.reshape(()) if single else action, None

    @torch.no_grad()
    def returns(self, observation: ArrayLike) -> Law:
        """The return law of every action: batch shape (A,) for one observation, (B, A) for a batch."""
        batch, single = self._batch(observation)
        network, inputs = self.learner.online, torch.from_numpy(batch).to(self.device)
        features = cast(Tensor, network.torso(inputs))
        return network.head(features[0] if single else features)

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
        envs = self._source().for_evaluation(min(episodes, EVALUATION_ENVS))
        try:
            return rollout(lambda rows: self.predict(rows)[0], envs, episodes, seed)
        finally:
            for env in envs:
                if env is not self._source().given:
                    env.close()

    def save(self, path: str | Path) -> None:
        """Write a folder with `config.json` and `weights.safetensors`."""
        name = None if self.source is None else self.source.name
        config = {
            "nfdrl": version("nfdrl"),
            "method": checkpoint.method_config(self.method),
            "env": name,
            "observation_space": checkpoint.space_config(self.observation_space),
            "action_space": checkpoint.space_config(self.action_space),
            "train": asdict(self.config),
            "risk": str(self.risk) if isinstance(self.risk, Risk) else None,
            "seed": self.seed,
            "step": self.step,
        }
        checkpoint.write(Path(path), config, self.learner.tensors())

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: EnvLike | None = None,
        *,
        method: Method | None = None,
        risk: str | Valuation | None = None,
        device: str | torch.device = "auto",
    ) -> Self:
        """An agent as it was saved; it can go on learning, with an empty replay.

        The environment is made from its saved id unless one is given; `method` is for one that nfdrl does not have.
        """
        config, tensors = checkpoint.read(Path(path))
        agent = cls.__new__(cls)
        saved = checkpoint.method_from(config["method"]) if method is None else method
        if risk is None and config["risk"] is None:
            raise NfdrlError("the saved agent chose actions by a function of your own: pass it as `risk`")
        train = checkpoint.train_config_from(config["train"])
        agent._setup(saved, config["seed"], train, config["risk"] if risk is None else risk, device)
        agent.observation_space = checkpoint.space_from(config["observation_space"])
        agent.action_space = cast(gymnasium.spaces.Discrete, checkpoint.space_from(config["action_space"]))
        given = config["env"] if env is None else env
        if given is not None:
            agent._use(_matching(source_of(given), config))
        agent.learner = agent._new_learner()
        agent.learner.load_tensors(tensors)
        agent.step = config["step"]
        return agent


@contextmanager
def _threads_for(space: gymnasium.Space[Any]) -> Iterator[None]:
    """One thread for networks without convolutions: sharing out their small tensors costs more than it saves."""
    before = torch.get_num_threads()
    if not (isinstance(space, gymnasium.spaces.Box) and is_image(space)):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _matching(source: Source, config: dict[str, Any]) -> Source:
    """Refuse an environment in which the saved network cannot act."""
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
