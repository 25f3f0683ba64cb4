"""The agent: learn, predict, returns, evaluate, save, load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
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
from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.evaluation.rollouts import Episodes, rollout
from nfdrl.files import describing
from nfdrl.laws import Law, Method, find_method, method_config, method_from
from nfdrl.learner import Learner
from nfdrl.networks import Network, is_image, network_for
from nfdrl.replay import storage_dtype
from nfdrl.risk import Mean, Risk, parse_risk
from nfdrl.runs import checkpoint
from nfdrl.runs.journal import Journal, Snapshot, remove_unused, restore
from nfdrl.runs.layout import REPLAY, locate, replay_of
from nfdrl.settings import from_plain, to_plain
from nfdrl.threads import threads
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import Event
from nfdrl.training.loop import Trainer
from nfdrl.training.trackers import ProgressTracker, Tracker, tracked

Array = NDArray[Any]
EVALUATION_ENVS = 8


class Agent:
    """A method, the environment it learns in, and the return laws it has learned.

    `method` is a name, with settings in brackets (`c51[atoms=13]`), or a `Method`; `env` a Gymnasium id, environment or
    vector environment; `risk` what actions are chosen by: a word (`cvar:0.1`), a `Risk`, or a function of a law.

    >>> agent = Agent(env="CartPole-v1", seed=1)
    >>> agent.learn(1_100, progress=False).returns([0.0, 0.0, 0.0, 0.0]).batch_shape
    torch.Size([2])
    """

    def __init__(
        self,
        method: str | Method = "nfdrl",
        env: EnvLike | Source | None = None,
        *,
        seed: int = 0,
        config: TrainConfig | None = None,
        risk: str | Valuation | None = None,
        device: str | torch.device = "auto",
    ) -> None:
        kind = find_method(method) if isinstance(method, str) else method
        if env is None:
            raise NfdrlError(f'an agent needs an environment: Agent("{kind.name}", "CartPole-v1"), or pass env=')
        source = env if isinstance(env, Source) else source_of(env)
        check_at_least(0, seed=seed)
        self.source, self.seed, self.config = source, int(seed), (config or TrainConfig()).of_method(kind)
        self.observation_space, self.action_space = source.observation_space, source.action_space
        self.risk: Valuation = parse_risk(risk) if isinstance(risk, str) else risk or Mean()
        self.device = _device(device)
        self.network = _network(kind, source, self.config, self.seed).to(self.device)
        self.trainer = Trainer(kind, self.network, source, self.config, risk=self.risk, seed=self.seed)

    @property
    def method(self) -> Method:
        """The method, set to the observed range of returns once learning has begun."""
        return self.trainer.method

    @property
    def step(self) -> int:
        """The number of transitions so far."""
        return self.trainer.step

    @property
    def learner(self) -> Learner:
        """What updates the weights, once learning has begun."""
        if self.trainer.learner is None:
            raise NfdrlError(f"learning begins after {self.config.learning_starts:,} random steps, got {self.step:,}")
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
        """Train for `steps` more transitions and yield what happens; with a `Pause` at multiples of `pause_every`."""
        check_at_least(1, steps=steps)
        with threads(_threads_for(self.observation_space)):
            yield from tracked(self.trainer.run(steps, pause_every), trackers)

    def predict(
        self,
        observation: ArrayLike,
        state: tuple[Array, ...] | None = None,  # noqa: ARG002
        episode_start: Array | None = None,  # noqa: ARG002
        deterministic: bool = True,
    ) -> tuple[Array, None]:
        """The action for an observation, or one per row of a batch, as `predict` of Stable-Baselines3 returns it."""
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
        """Observations as rows in the replay's dtype, and whether it was a single one without a batch axis."""
        array = np.asarray(observation)
        shape = self.observation_space.shape
        assert shape is not None
        single = array.shape == shape
        if not single and array.shape[1:] != shape:
            raise NfdrlError(f"observations must have shape {shape} or (B, …), got {array.shape}")
        rows = array[None] if single else array
        return np.ascontiguousarray(rows, dtype=storage_dtype(self.observation_space)), single

    def evaluate(self, episodes: int = 10, seed: int = 10_000) -> Episodes:
        """Greedy returns of whole episodes, the k-th seeded with seed + k, in new environments if those can be made."""
        check_at_least(1, episodes=episodes)
        envs = self.source.for_evaluation(min(episodes, EVALUATION_ENVS))
        try:
            return rollout(lambda rows: self.predict(rows)[0], envs, episodes, seed)
        finally:
            for env in envs:
                if env is not self.source.given:
                    env.close()

    def save(self, path: str | Path, *, replay: bool = False) -> None:
        """Write a folder that `load` reads; with its replay, the loaded agent continues exactly.

        Open episodes count as cut off at this step.
        """
        folder = Path(path)
        snapshot = (
            Journal(folder / REPLAY).append(self.trainer.replay) if replay and self.step and self.source.known else None
        )
        checkpoint.write(folder, state_of(self, snapshot))
        remove_unused(folder / REPLAY, [] if snapshot is None else [snapshot])

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
        """The agent in a folder that `save` or a run wrote; with its replay, it continues exactly.

        Without a saved replay, or with `replay=False`, it starts with an empty one. The environment is made from its
        saved id unless `env` is given. Pass `method` if it is your own; its settings are the saved ones.
        """
        folder = locate(Path(path))
        saved = checkpoint.read(folder)
        config, state = saved.config, saved.state
        with describing("an agent", folder):
            kind = method_from(config["method"], method)
            train, source = from_plain(TrainConfig, config["train"], "the saved run"), _source_from(config, env)
            parts = ("online", "target") if state["trainer"]["learning"] else ("online",)
            checkpoint.check_shapes(partial(_network, kind, source, train, config["seed"]), saved.tensors, parts)
            chosen = _saved_risk(config["risk"]) if risk is None else risk
            agent = cls(kind, source, seed=config["seed"], config=train, risk=chosen, device=device)
            agent.trainer.restore(state, saved.tensors)
            if replay and saved.replay is not None and source.known:
                if not isinstance(env, VectorEnv) and len(saved.replay.position) != train.num_envs:
                    raise NfdrlError("the saved replay has another number of environments than the saved settings")
                try:
                    restore(agent.trainer.replay, replay_of(folder), saved.replay)
                except NfdrlError as error:
                    raise NfdrlError(f"{error} (to load the agent alone: Agent.load(…, replay=False))") from None
        return agent


def state_of(agent: Agent, replay: Snapshot | None = None) -> checkpoint.Saved:
    """Everything a checkpoint holds but the rows of the replay, which have files of their own."""
    config = {
        "nfdrl": version("nfdrl"),
        "method": method_config(agent.method),
        "env": agent.source.name,
        "observation_space": checkpoint.space_config(agent.observation_space),
        "action_space": checkpoint.space_config(agent.action_space),
        "train": to_plain(agent.config),
        "risk": str(agent.risk) if isinstance(agent.risk, Risk) else None,
        "seed": agent.seed,
    }
    state = agent.trainer.state() | {"replay": None if replay is None else asdict(replay)}
    return checkpoint.Saved(config, state, agent.trainer.tensors())


def _saved_risk(word: Any) -> Risk:
    if word is None:
        raise NfdrlError("the saved agent chose actions by a function of your own: pass it as `risk`")
    if not isinstance(word, str):
        raise NfdrlError(f"the saved risk must be a word, got {word!r}")
    return parse_risk(word)


def _network(method: Method, source: Source, config: TrainConfig, seed: int) -> Network:
    return network_for(method, source.observation_space, int(source.action_space.n), config.torso, seed)


def _threads_for(space: gymnasium.Space[Any]) -> int:
    """One thread for networks without convolutions, whose tensors are too small to share."""
    return torch.get_num_threads() if isinstance(space, gymnasium.spaces.Box) and is_image(space) else 1


def _source_from(config: dict[str, Any], env: EnvLike | None) -> Source:
    """The given or the saved environment, whose spaces must be the saved ones; or the saved spaces alone."""
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
