"""What a user holds: learn, predict, returns, evaluate, save, load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
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
from nfdrl.frames import FrameStorage
from nfdrl.laws import Law, Method, find_method
from nfdrl.learner import Learner
from nfdrl.memory import check_memory
from nfdrl.networks import Network, is_image, network_for
from nfdrl.replay import COLUMN_BYTES, ArrayStorage, Replay, Storage, row_bytes, storage_dtype
from nfdrl.risk import Mean, Risk, parse_risk
from nfdrl.runs import checkpoint
from nfdrl.runs.journal import Journal, Snapshot, remove_unused, restore
from nfdrl.runs.layout import REPLAY, locate, replay_of
from nfdrl.threads import threads
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

    def _new_network(self) -> Network:
        return network_for(self.method, self.observation_space, int(self.action_space.n), self.config.torso, self.seed)

    def _new_learner(self) -> Learner:
        network = self._new_network()
        generator = torch.Generator(self.device).manual_seed(self.seed)
        learner = Learner(
            self.method, network.to(self.device), self.config.optimisation(), risk=self.risk, generator=generator
        )
        self._actor = Actor(learner, int(self.action_space.n), self._rng)
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

    def events(
        self, steps: int, trackers: Iterable[Tracker] = (), *, pause_every: int | None = None
    ) -> Iterator[Event]:
        """Train for `steps` more transitions, one event at a time; with a `Pause` at multiples of `pause_every`."""
        if steps < 1:
            raise NfdrlError(f"steps must be at least 1, got {steps}")
        trainer = self.trainer
        with threads(_threads_for(self.observation_space)):
            for event in tracked(trainer.run(steps, pause_every), trackers):
                self.step = trainer.step
                yield event

    @property
    def trainer(self) -> Trainer:
        """The loop with its environments and its replay, made when it is first needed."""
        if self._trainer is None:
            self._trainer = self._new_trainer(loaded=self.step > 0)
        return self._trainer

    def _new_trainer(self, loaded: bool) -> Trainer:
        config = self.config
        self.check_memory()
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
        learner = self.learner if loaded else None  # one that has learned goes on
        return Trainer(
            stream, replay, config, self._after_warm_up, rng=self._rng, seed=self.seed, learner=learner, step=self.step
        )

    def _new_storage(self, num_envs: int) -> Storage:
        config, space = self.config, self.observation_space
        folder = Path(config.replay_on_disk) if config.replay_on_disk else None
        if self.frames:
            compressed = config.frame_replay == "compressed"
            if compressed and folder is not None:
                raise NfdrlError("a replay is compressed or on disk, not both: set one of frame_replay, replay_on_disk")
            return FrameStorage(config.buffer_size, num_envs, space, folder, compressed=compressed)
        return ArrayStorage(config.buffer_size // num_envs * num_envs, space, folder)

    @property
    def frames(self) -> bool:
        """Whether the replay keeps the frames of stacked images instead of the stacks."""
        choice, space = self.config.frame_replay, self.observation_space
        asked = choice in ("on", "compressed")
        if asked and not (isinstance(space, gymnasium.spaces.Box) and is_image(space)):
            raise NfdrlError(f"frame_replay is for stacked images, observations are {space}")
        return asked or (choice == "auto" and self._source().stacked)

    def check_memory(self) -> None:
        """Refuse a replay that this machine cannot hold."""
        row = COLUMN_BYTES if self.config.replay_on_disk else self.row_bytes
        if self.config.frame_replay == "compressed":
            row = COLUMN_BYTES + row // 4  # games that were tried take a thirtieth to a fifth
        check_memory(self.config.buffer_size, row)

    @property
    def row_bytes(self) -> int:
        """What a transition takes in the replay."""
        return row_bytes(self.observation_space, self.frames)

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

    def save(self, path: str | Path, *, replay: bool = False) -> None:
        """Write a folder from which `load` makes this agent again; with the replay, it continues exactly.

        Episodes that are open count as cut off at this step.
        """
        folder, snapshot = Path(path), None
        if replay and self._trainer is not None:
            snapshot = Journal(folder / REPLAY).append(self._trainer.replay)
        checkpoint.write(folder, self.saved(snapshot))
        remove_unused(folder / REPLAY, [] if snapshot is None else [snapshot])

    def saved(self, replay: Snapshot | None = None) -> checkpoint.Saved:
        """Everything a checkpoint holds; the replay's rows are in files of their own."""
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
        }
        trainer = self._trainer
        state = {
            "step": self.step,
            "rng": self._rng.bit_generator.state,
            "trainer": None if trainer is None else trainer.state(),
            "replay": None if replay is None else replay.to_json(),
        }
        tensors = self.learner.tensors() | ({} if trainer is None else trainer.tensors())
        if self.learner.generator is not None:
            tensors["generator"] = self.learner.generator.get_state()
        return checkpoint.Saved(config, state, tensors)

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
        saved id unless one is given; `method` is for one that nfdrl does not have.
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
        kind = checkpoint.method_from(config["method"]) if method is None else method
        if not isinstance(config["risk"], str | None):
            raise NfdrlError(f"the saved risk must be a word, got {config['risk']!r}")
        if risk is None and config["risk"] is None:
            raise NfdrlError("the saved agent chose actions by a function of your own: pass it as `risk`")
        train = checkpoint.train_config_from(config["train"])
        agent._setup(kind, config["seed"], train, config["risk"] if risk is None else risk, device)
        agent.observation_space = checkpoint.space_from(config["observation_space"])
        agent.action_space = cast(gymnasium.spaces.Discrete, checkpoint.space_from(config["action_space"]))
        given = config["env"] if env is None else env
        if env is None and ":" in str(given):
            raise NfdrlError(f"the saved environment {given!r} would import a module: pass it as `env` if you trust it")
        if given is not None:
            agent._use(_matching(source_of(given), config))
        checkpoint.check_shapes(agent._new_network, saved.tensors)
        agent.learner = agent._new_learner()
        agent.learner.load_tensors(saved.tensors)
        agent.step = int(state["step"])
        assert agent.learner.generator is not None
        agent.learner.generator.set_state(saved.tensors["generator"])
        agent._rng.bit_generator.state = state["rng"]
        snapshot = saved.replay
        if replay and snapshot is not None and agent.source is not None:
            if not isinstance(env, VectorEnv) and len(snapshot.position) != train.num_envs:
                raise NfdrlError("the saved replay is of another number of environments than the saved settings")
            agent._trainer = agent._new_trainer(loaded=bool(state["trainer"]["learning"]))
            try:
                restore(agent._trainer.replay, replay_of(folder), snapshot)
            except NfdrlError as error:
                raise NfdrlError(f"{error} (the agent without its replay: Agent.load(…, replay=False))") from None
            agent._trainer.restore(state["trainer"], saved.tensors)
        return agent


def _threads_for(space: gymnasium.Space[Any]) -> int:
    """One thread for networks without convolutions: sharing out their small tensors costs more than it saves."""
    return torch.get_num_threads() if isinstance(space, gymnasium.spaces.Box) and is_image(space) else 1


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
