"""The agent: learn, predict, returns, evaluate, save, load."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from nfdrl import hub
from nfdrl.arguments import config_of, device_of, method_of, network_of, risk_of, seed_of
from nfdrl.bellman import Valuation
from nfdrl.envs.layers import discount_of
from nfdrl.envs.make import EnvLike, Source, source_of
from nfdrl.envs.stacking import stacked
from nfdrl.envs.stepping import environments
from nfdrl.envs.watching import closed_after
from nfdrl.errors import NfdrlError, check_at_least, whole
from nfdrl.evaluation.arenas import arena_of
from nfdrl.evaluation.calibration import Calibration, Scores, calibration_of
from nfdrl.evaluation.observed import Sampling, observe
from nfdrl.evaluation.rollouts import Episodes, rollout
from nfdrl.export import Policy
from nfdrl.files import describing
from nfdrl.laws import Law, Method, method_config, method_from
from nfdrl.learner import Learner
from nfdrl.networks import TorsoLike, method_for, name_of, threads_for
from nfdrl.observations import as_rows, as_tensors, zeros
from nfdrl.risk import Risk, parse_risk
from nfdrl.runs import checkpoint
from nfdrl.runs.journal import Journal, Snapshot, remove_unused, restore
from nfdrl.runs.layout import CHECKPOINTS, REPLAY, locate, replay_of
from nfdrl.runs.parts import check_spaces, check_torso, saved_risk, saved_source
from nfdrl.settings import from_plain, to_plain
from nfdrl.threads import threads
from nfdrl.training.acting import Actor
from nfdrl.training.callbacks import Callback, called
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import Event
from nfdrl.training.loop import Trainer
from nfdrl.training.trackers import ProgressTracker, Tracker, tracked

Array = NDArray[Any]
EVALUATION_ENVS = 8


class Agent:
    """A method, the environment it learns in, and the return laws it has learned.

    `method` is a name, with settings in brackets (`c51[atoms=13]`), or a `Method`; `env` a Gymnasium id, environment or
    vector environment; `risk` what actions are chosen by: a word (`cvar:0.1`), a `Risk`, or a function of a law;
    `torso` an `nn.Module` of your own from observations to features, or a function of the space that makes one;
    `config` a `TrainConfig` or a dict of its settings. The same `seed` gives the same agent; None draws one.

    >>> agent = Agent(env="CartPole-v1", seed=1)
    >>> agent.learn(1_100, progress=False).returns([0.0, 0.0, 0.0, 0.0]).batch_shape
    torch.Size([2])
    """

    def __init__(
        self,
        method: str | Method = "nfdrl",
        env: EnvLike | Source | None = None,
        *,
        seed: int | None = 0,
        config: TrainConfig | Mapping[str, Any] | None = None,
        risk: str | Valuation | None = None,
        torso: TorsoLike | None = None,
        device: str | torch.device = "auto",
    ) -> None:
        kind = method_of(method)
        if env is None:
            raise NfdrlError(f'an agent needs an environment: Agent("{kind.name}", "CartPole-v1"), or pass env=')
        self.seed, given, self.torso = seed_of(seed), config_of(config), torso
        self.source = source = env if isinstance(env, Source) else stacked(source_of(env), given.frame_stack)
        kind = method_for(kind, source.observation_space)
        self.config = given.of_method(kind, source.observation_space)
        self.observation_space, self.action_space = source.observation_space, source.action_space
        chosen, self.device = risk_of(risk), device_of(device)
        self._rng = np.random.default_rng([self.seed, 1])  # of actions outside training
        self.network = network_of(kind, source, self.config, self.seed, torso).to(self.device)
        self.trainer = Trainer(kind, self.network, source, self.config, risk=chosen, seed=self.seed)

    def __repr__(self) -> str:
        plan = self.trainer.plan
        steps = f"{self.step:,} steps" if plan in (None, self.step) else f"{self.step:,} of {plan:,} steps"
        risk = self.risk if isinstance(self.risk, Risk) else getattr(self.risk, "__name__", "a function")
        env = self.source.name or (type(self.source.given).__name__ if self.source.known else "no environment")
        return f"Agent({self.method.name} on {env}: {steps}, risk {risk}, seed {self.seed}, {self.device})"

    @property
    def risk(self) -> Valuation:
        """What actions are chosen by. A new one counts at once: in acting and in all further updates."""
        return self.trainer.risk

    @risk.setter
    def risk(self, risk: str | Valuation) -> None:
        self.trainer.set_risk(risk_of(risk))

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

    def learn(
        self,
        steps: int,
        *,
        total_steps: int | None = None,
        callbacks: Iterable[Callback] = (),
        progress: bool = True,
    ) -> Self:
        """Train for `steps` more transitions.

        To train in several calls, pass the `total_steps` of all of them to the first: exploration and learning rate
        follow that plan, and the calls together are one call, bit for bit. Without it a call is the whole plan; more
        steps after that stretch it, with a warning.

        Each of `callbacks` is called with this agent and every event; one that returns False stops training.
        """
        steps = whole("steps", steps)
        trackers = [ProgressTracker(self.step + steps, self.step)] if progress else []
        for _ in self.events(steps, trackers, total_steps=total_steps, callbacks=callbacks):
            pass
        return self

    def events(
        self,
        steps: int,
        trackers: Iterable[Tracker] = (),
        *,
        pause_every: int | None = None,
        total_steps: int | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> Iterator[Event]:
        """Train as `learn` does and yield what happens; with a `Pause` at multiples of `pause_every`."""
        steps, total = whole("steps", steps), None if total_steps is None else whole("total_steps", total_steps)
        check_at_least(1, steps=steps)
        if not self.step:
            self._compare_discounts()
        with threads(threads_for(self.observation_space)):
            events = called(self, self.trainer.run(steps, pause_every, total), callbacks)
            yield from tracked(events, trackers)

    def _compare_discounts(self) -> None:
        """Say so if the environment is an MDP with a discount of its own, and training has another."""
        own = discount_of(environments(self.trainer.stream))
        if own is not None and own != self.config.discount:
            warnings.warn(
                f"the environment has a discount of {own:g} of its own and training one of {self.config.discount:g}, "
                f"by which laws and actions may differ: set discount={own:g}",
                stacklevel=4,
            )

    def close(self) -> None:
        """Close the environments that the agent made. An environment that you passed is yours to close."""
        self.trainer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def predict(
        self,
        observation: ArrayLike,
        state: tuple[Array, ...] | None = None,  # noqa: ARG002
        episode_start: Array | None = None,  # noqa: ARG002
        deterministic: bool = True,
    ) -> tuple[Array, None]:
        """The action for an observation, or one per row of a batch, as `predict` of Stable-Baselines3 returns it."""
        batch, single = as_rows(self.observation_space, observation)
        engine = self.trainer.actor.engine
        if deterministic:
            chosen = engine.greedy(batch)
        else:  # by a generator of its own: acting must not change training
            chosen = Actor(engine, int(self.action_space.n), self._rng).act(batch, self.config.epsilon_end)
        action = chosen + int(self.action_space.start)
        return action.reshape(()) if single else action, None

    @torch.no_grad()
    def returns(self, observation: ArrayLike) -> Law:
        """The return law of every action: batch shape (A,) for one observation, (B, A) for a batch."""
        batch, single = as_rows(self.observation_space, observation)
        features = self.network.features(as_tensors(batch, self.device))
        return self.network.head(features[0] if single else features)

    def policy(
        self, levels: Sequence[float | str] = (0.05, 0.5, 0.95), *, risk: str | Valuation | None = None
    ) -> Policy:
        """A plain module: observations → actions, the mean of every action, and its law at `levels`.

        A number is a quantile; a word is a risk functional, such as `cvar:0.1`. Actions are chosen by `risk`, by
        default the agent's own.
        """
        value = self.risk if risk is None else parse_risk(risk) if isinstance(risk, str) else risk
        blank, start = zeros(self.observation_space, 1), int(self.action_space.start)
        return Policy(self.network, self.method, value, levels, blank=blank, start=start)

    def evaluate(
        self,
        episodes: int = 10,
        seed: int = 10_000,
        *,
        env: EnvLike | None = None,
        max_steps: int | None = None,
        progress: bool = True,
    ) -> Episodes:
        """Greedy returns of whole episodes, the k-th seeded with seed + k.

        They are played in `env`, or in new environments like that of training, with its normalisation as it now is and
        frozen. An episode that has not ended after `max_steps` (108,000) is cut off, with a warning.
        """
        check_at_least(1, episodes=episodes)
        source = self.source
        if env is not None and env is not source.given:
            source = stacked(source_of(env), self.config.frame_stack)
            check_spaces(source, self.observation_space, self.action_space)
        with arena_of(source, min(episodes, EVALUATION_ENVS), self.trainer) as arena:
            shown = None if progress else False
            return rollout(self._greedy, arena, episodes, seed, max_steps=max_steps, progress=shown)

    def _greedy(self, rows: Array) -> Array:
        return self.predict(rows)[0]

    def calibration(
        self,
        episodes: int = 100,
        seed: int = 10_000,
        *,
        states: int = 20,
        resolution: float = 0.0,
        progress: bool = True,
    ) -> Calibration:
        """Hold the laws of greedy actions against the discounted returns that followed: `states` per episode at most.

        Rewards and discount are those of training. Differences of at most `resolution` in the return do not count.
        """
        sampling = Sampling(episodes, self.config.discount, seed, states, self.config.limits())
        stream = self.source.for_observation(min(episodes, EVALUATION_ENVS))
        start = int(self.action_space.start)
        with closed_after(stream.close):
            shown = None if progress else False
            seen = observe(stream, lambda rows: self._greedy(rows) - start, self._value, sampling, shown)
        scores = Scores.by_parts(self._laws, seen.observation, seen.action, seen.returns, resolution)
        return calibration_of(scores, seen.episode, counts=seen.counts)

    def _laws(self, rows: Array, action: Array) -> Law:
        """The law of each row's action, counted from 0."""
        return self.returns(rows).select(torch.from_numpy(action))

    def _value(self, rows: Array) -> NDArray[np.float64]:
        """The mean return of each row's greedy action."""
        return self._laws(rows, self._greedy(rows) - int(self.action_space.start)).mean().double().cpu().numpy()

    def save(self, path: str | Path, *, replay: bool = False) -> None:
        """Write a folder that `load` reads; with its replay, the loaded agent continues exactly.

        Open episodes count as cut off at this step: with the replay also in this agent, so that both continue alike.
        """
        folder = Path(path)
        if (folder / CHECKPOINTS).exists():
            raise NfdrlError(f"{str(folder)!r} holds a run: save the agent in another folder")
        if replay:
            self.trainer.cut()
        snapshot = (
            Journal(folder / REPLAY).append(self.trainer.replay) if replay and self.step and self.source.known else None
        )
        checkpoint.write(folder, state_of(self, snapshot))
        remove_unused(folder / REPLAY, [] if snapshot is None else [snapshot])

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: EnvLike | Literal[False] | None = None,
        *,
        method: Method | None = None,
        risk: str | Valuation | None = None,
        torso: TorsoLike | None = None,
        device: str | torch.device = "auto",
        replay: bool = True,
        replay_on_disk: str = "",
    ) -> Self:
        """The agent in a folder that `save` or a run wrote; with its replay, it continues exactly.

        Without a saved replay, or with `replay=False`, it starts with an empty one. The environment is made again,
        with its arguments and wrappers; where that is impossible, pass it as `env`, or `False` for an agent that only
        acts. Pass `method` and `torso` if they are your own: a method's settings and a torso's weights are the saved.
        Only a folder that you pass as `replay_on_disk` holds the replay, never one that the saved agent names.
        """
        folder = locate(Path(path))
        saved = checkpoint.read(folder)
        config, state = saved.config, saved.state
        with describing("an agent", folder):
            kind = method_from(config["method"], method)
            check_torso(config.get("torso"), torso)
            train = replace(from_plain(TrainConfig, config["train"], "the saved run"), replay_on_disk=replay_on_disk)
            source = saved_source(config, env, train.frame_stack)
            parts = ("online", "target") if state["trainer"]["learning"] else ("online",)
            checkpoint.check_shapes(
                partial(network_of, kind, source, train, config["seed"], torso), saved.tensors, parts
            )
            chosen = saved_risk(config["risk"]) if risk is None else risk
            agent = cls(kind, source, seed=config["seed"], config=train, risk=chosen, torso=torso, device=device)
            agent.trainer.restore(state, saved.tensors)
            if replay and saved.replay is not None and source.known:
                if not isinstance(source.given, VectorEnv) and len(saved.replay.position) != train.num_envs:
                    raise NfdrlError("the saved replay has another number of environments than the saved settings")
                try:
                    restore(agent.trainer.replay, replay_of(folder), saved.replay)
                except NfdrlError as error:
                    raise NfdrlError(f"{error} (to load the agent alone: Agent.load(…, replay=False))") from None
        return agent

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        commit_message: str = "Upload an nfdrl agent",
        token: str | None = None,
    ) -> str:
        """Upload the agent, without its replay, to the Hugging Face Hub; returns the address of the commit."""
        with TemporaryDirectory() as folder:
            self.save(folder)
            page = hub.card(repo_id, self.method.name, self.source.name, self.step)
            (Path(folder) / hub.CARD).write_text(page, encoding="utf-8")
            return hub.upload(Path(folder), repo_id, private=private, message=commit_message, token=token)

    @classmethod
    def from_hub(
        cls,
        repo_id: str,
        env: EnvLike | Literal[False] | None = None,
        *,
        revision: str | None = None,
        token: str | None = None,
        method: Method | None = None,
        risk: str | Valuation | None = None,
        torso: TorsoLike | None = None,
        device: str | torch.device = "auto",
    ) -> Self:
        """The agent that `push_to_hub` uploaded, read as `load` reads a folder: nothing in it is executed."""
        folder = hub.download(repo_id, revision=revision, token=token)
        return cls.load(folder, env, method=method, risk=risk, torso=torso, device=device, replay=False)


def state_of(agent: Agent, replay: Snapshot | None = None) -> checkpoint.Saved:
    """Everything a checkpoint holds but the rows of the replay, which have files of their own."""
    config = {
        "nfdrl": version("nfdrl"),
        "method": method_config(agent.method),
        "env": agent.source.name,
        "source": agent.source.described(),
        "observation_space": checkpoint.space_config(agent.observation_space),
        "action_space": checkpoint.space_config(agent.action_space),
        "train": to_plain(agent.config),
        "risk": str(agent.risk) if isinstance(agent.risk, Risk) else None,
        "seed": agent.seed,
        "torso": None if agent.torso is None else name_of(agent.torso),
    }
    state = agent.trainer.state() | {"replay": None if replay is None else asdict(replay)}
    return checkpoint.Saved(config, state, agent.trainer.tensors())
