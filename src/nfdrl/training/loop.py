"""The training loop: a generator of events. Its caller logs, evaluates and saves."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdrl.bellman import Valuation
from nfdrl.engines import Work, engine_for
from nfdrl.envs.layers import AnyEnv, layers, restore_statistics, statistics, trace_of
from nfdrl.envs.make import Source
from nfdrl.envs.stepping import Step, Stream, check_observation, check_step, environments
from nfdrl.envs.watching import Blaming, watched
from nfdrl.laws.base import Method
from nfdrl.learner import Learner
from nfdrl.networks import Network, change_head
from nfdrl.observations import Observation, storage_dtype
from nfdrl.replay import Replay
from nfdrl.training.acting import Actor
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import EpisodeEnd, Event, NonFiniteError, Pause, Report
from nfdrl.training.meter import Meter
from nfdrl.training.ranges import observed_range, observed_reward
from nfdrl.training.saved import checked_counters
from nfdrl.training.schedules import Goal, following, goal_of
from nfdrl.training.storing import new_replay

Array = NDArray[Any]
RECENT = 100  # episodes in the reported mean return
LOOK_EVERY = 100  # updates between two counts of dormant units, each of which costs a forward pass
ENVIRONMENT = "environment."  # before the names of saved statistics
MAX_SKIPPED = 20  # updates in a row that may fail before training stops


class Trainer:
    """Everything that training changes: the network, its learner, the environments, the replay, and the counters.

    The first `learning_starts` steps are random. The learner is built after them, because some methods are first set to
    the scale of the rewards.
    """

    def __init__(
        self, method: Method, network: Network, source: Source, config: TrainConfig, *, risk: Valuation, seed: int
    ) -> None:
        self.method, self.network, self.source = method, network, source
        self.config = config.of_method(method, source.observation_space)
        self.risk, self.seed, self.step = risk, seed, 0
        self.rng = np.random.default_rng(seed)
        self.device = next(network.parameters()).device
        engine = engine_for(Work(method, network, risk), config.engine)
        self.actor = Actor(engine, self._actions, self.rng, self.config.explore_by_mean)
        self.learner: Learner | None = None
        self._due = 0
        self._recent: deque[EpisodeEnd] = deque(maxlen=RECENT)
        self._episodes = 0
        self._meter = Meter()
        self._seen: Observation | None = None  # observations of the last update since the last report or pause
        self._warned = False
        self._blaming = Blaming()
        self.plan: int | None = None  # the steps over which the schedules run
        self._asked = 0  # the step at which the last call was to end: several environments may pass it
        self._open: tuple[Array, Any] | None = None  # the next observation between two calls, and what it belongs to
        self.running = False  # whether a call is under way, whose environments are in use
        self.pausing = False  # if set, by a signal handler for example, the current step is followed by a pause

    @cached_property
    def stream(self) -> Stream:
        stream = self.source.stream(self.config.num_envs)
        stream.reset_limit = self.config.reset_limit
        return stream

    @cached_property
    def replay(self) -> Replay:
        return new_replay(self.source, self.config, self.stream.num_envs, self.rng)

    def start_learning(self) -> Learner:
        generator = torch.Generator(self.device).manual_seed(self.seed)
        settings = self.config.optimisation()
        self.learner = Learner(self.method, self.network, settings, risk=self.risk, generator=generator)
        self.actor.engine = self.learner.engine
        return self.learner

    def set_risk(self, risk: Valuation) -> None:
        """Choose actions by another functional, in acting and in the targets of all updates from now on."""
        self.risk, learner = risk, self.learner
        if learner is None:
            self.actor.engine = engine_for(Work(self.method, self.network, risk), self.config.engine)
        else:
            learner.__setstate__(learner.__getstate__() | {"risk": risk})  # the same learner with a new engine
            self.actor.engine = learner.engine

    def close(self) -> None:
        """Close the environments that were made here; the next call makes new ones."""
        stream, given = vars(self).pop("stream", None), self.source.given
        self.cut()
        for made in () if stream is None else environments(stream) or (stream,):
            if given is None or all(layer is not given for layer in layers(made)):
                made.close()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made from: everything but the environments, which it resets as a loaded agent does."""
        state = {name: value for name, value in vars(self).items() if name not in ("actor", "stream")}
        return state | {"_open": None, "running": False, "statistics": statistics(self.stepped())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("statistics")
        self.__dict__.update(state)
        engine = engine_for(Work(self.method, self.network, self.risk), self.config.engine)
        engine = engine if self.learner is None else self.learner.engine
        self.actor = Actor(engine, self._actions, self.rng, self.config.explore_by_mean)
        if saved and self.source.known:
            restore_statistics(environments(self.stream), saved)

    @property
    def _actions(self) -> int:
        return int(self.source.action_space.n)

    def _after_warm_up(self) -> Learner:
        """Set the method to the returns that the first rewards allow; the network keeps its weights."""
        if self.config.return_range == "observed":
            method = self.method.within(*observed_range(self.replay)).of_rewards(observed_reward(self.replay))
            if method is not self.method:
                change_head(self.network, method, self.actor.actions)
            self.method = method
        return self.start_learning()

    def run(self, steps: int, pause_every: int | None = None, total_steps: int | None = None) -> Iterator[Event]:
        """Train for `steps` more transitions of the `total_steps` over which the schedules run.

        Two calls are one call: the episodes that are open at the end of the first continue in the second.
        """
        self.running = True
        try:
            with watched(self._blaming, self.config.step_limit):
                yield from self._run(steps, pause_every, total_steps)
        finally:
            self.running = False

    def _run(self, steps: int, pause_every: int | None, total_steps: int | None) -> Iterator[Event]:
        config, stream, replay = self.config, self.stream, self.replay
        goal = goal_of(steps, self.step, min(self._asked, self.step), stream.num_envs, self.plan, total_steps)
        self._warn_of(goal)
        self.plan, self._asked, end = goal.plan, goal.end, goal.end
        observation = self._begin()
        self._meter.restart(self.step)
        report_at, pause_at = following(self.step, config.report_every), following(self.step, pause_every)
        while self.step < end:
            fraction = self.step / goal.plan
            epsilon = config.epsilon(fraction)
            action = self._act(observation, epsilon)
            with self._blaming.at(self.step):
                step = stream.step(action)
                check_step(step)
            added = replay.add(action, step, self._explored(len(action)))
            observation = self._typed(step.observation)
            self.step += added
            ended = self._count(step)
            if ended is not None:
                yield from ended
            self._train(added, fraction)
            if self.step >= report_at or self.step >= end:
                report_at = following(self.step, config.report_every)
                yield self._report(epsilon)
            if (self.pausing or self.step >= pause_at) and self.step < end:
                self.pausing = False  # before the pause, during which another may be asked for
                self._seen = None  # as in a run that is resumed from here
                yield Pause(self.step, self.step >= pause_at)
                pause_at = following(self.step, pause_every)
                observation = self._reset()
        self._open = observation, trace_of(self.source.given)

    def _begin(self) -> Array:
        """The next observation of the open episodes, or of new ones if somebody else used the environment since."""
        kept, self._open = self._open, None
        if kept is not None and kept[1] == trace_of(self.source.given):
            return kept[0]
        return self._reset()

    def cut(self) -> None:
        """End the open episodes: the next call begins new ones, as a saved agent does."""
        self._open = None

    def _warn_of(self, goal: Goal) -> None:
        """Say that a plan is exceeded, and what that does to schedules that change."""
        config, before = self.config, self.plan
        if not goal.stretched or before is None:
            return
        was, becomes = (self.step / total for total in (before, goal.plan))
        if (config.epsilon(was), config.rate(was)) == (config.epsilon(becomes), config.rate(becomes)):
            return
        warnings.warn(
            f"training was planned for {before:,} steps and now continues to {goal.end:,}: its schedules, at epsilon "
            f"{config.epsilon(was):.3g} and learning rate {config.rate(was):.3g}, are stretched and continue from "
            f"{config.epsilon(becomes):.3g} and {config.rate(becomes):.3g}; to train in several calls, pass "
            "total_steps to the first",
            stacklevel=2,
        )

    def _reset(self) -> Array:
        with self._blaming.at(self.step):
            first = self.stream.reset(seed=reset_seed(self.seed, self.step))
            check_observation(first)
        observation = self._typed(first)
        self.replay.start(observation)
        self._return, self._length = np.zeros(len(observation)), np.zeros(len(observation), np.int64)
        self.actor.begin(np.ones(len(observation), np.bool_))
        return observation

    def _typed(self, observation: Array) -> Array:
        """New observations in the replay's dtype; a normaliser takes note of them."""
        if self.network.normaliser is not None:
            self.network.normaliser.update(observation)
        return observation if observation.dtype == self._dtype else observation.astype(self._dtype)

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        return storage_dtype(self.source.observation_space)

    def _act(self, observation: Array, epsilon: float) -> Array:
        if self.learner is None:
            return self.rng.integers(self.actor.actions, size=len(observation))
        return self.actor.act(observation, epsilon)

    def _explored(self, n: int) -> Array | None:
        """Which of the last actions were explored; None if that does not matter."""
        if self.config.n_step == 1 or not self.config.cut_explored:
            return None
        return np.ones(n, np.bool_) if self.learner is None else self.actor.explored

    def _train(self, added: int, fraction: float) -> None:
        """Make the updates that are due: one per `train_every` transitions since learning began."""
        config = self.config
        if self.replay.transitions < max(config.learning_starts, 1):
            return
        learner = self._after_warm_up() if self.learner is None else self.learner
        self._due += added
        count, self._due = divmod(self._due, config.train_every)
        if not count:
            return
        if config.learning_rate_decay != "constant":
            learner.set_learning_rate(config.rate(fraction))
        batch = self.replay.sample(count * config.batch_size)
        if self.device.type != "cpu":
            batch = batch.to(self.device)
        for part in [batch] if count == 1 else batch.split(config.batch_size):
            loss = learner.update(part)
            if not learner.skipped_in_a_row:
                self._meter.add(loss)
            elif learner.skipped_in_a_row >= MAX_SKIPPED:
                raise NonFiniteError(self.step, part, learner)
            self._seen = part.observation

    def _count(self, step: Step) -> list[Event] | None:
        """Add a step to the running episodes; returns those that ended."""
        self._return += step.reward
        self._length += 1 if step.live is None else step.live
        ended = step.terminated | step.truncated
        if not np.count_nonzero(ended):
            return None
        self.actor.begin(ended)
        events: list[Event] = []
        for env in np.flatnonzero(ended).tolist():
            event = EpisodeEnd(self.step, env, float(self._return[env]), int(self._length[env]))
            self._return[env], self._length[env] = 0.0, 0
            self._recent.append(event)
            self._episodes += 1
            events.append(event)
        return events

    def state(self) -> dict[str, Any]:
        """Where training stands, as JSON, without tensors and replay."""
        learner = self.learner
        counters = {
            "learning": learner is not None,
            "learning_rate": None if learner is None else learner.learning_rate,
            "skipped": [0, 0] if learner is None else [learner.skipped, learner.skipped_in_a_row],
            "due": self._due,
            "episodes": self._episodes,
            "recent": [[end.step, end.env, end.episode_return, end.length] for end in self._recent],
            "updates_since_report": self._meter.updates,
            "plan": self.plan,
            "asked": self._asked,
        }
        return {"step": self.step, "rng": self.rng.bit_generator.state, "trainer": counters}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that belong to `state`."""
        learner, loss = self.learner, self._meter.sum
        if learner is None:
            online = {f"online.{name}": value for name, value in self.network.state_dict().items()}
            return online | self._statistics()
        assert learner.generator is not None
        tensors = learner.tensors() | {"generator": learner.generator.get_state()}
        tensors |= self._statistics()
        return tensors if loss is None else tensors | {"trainer.loss": torch.tensor(loss, dtype=torch.float64)}

    def _statistics(self) -> dict[str, Tensor]:
        """What normalises the environments, if anything does."""
        found = statistics(self.stepped())
        return {ENVIRONMENT + name: torch.from_numpy(value) for name, value in found.items()}

    def stepped(self) -> Sequence[AnyEnv]:
        """The environments that training steps, as far as they are Gymnasium's; none before the first step."""
        return environments(self.stream) if "stream" in vars(self) else ()

    def restore(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Return to where `state` and `tensors` were taken."""
        counters = checked_counters(state, self.config)
        if counters["learning"]:
            learner = self.start_learning()
            learner.load_tensors(tensors)
            assert learner.generator is not None
            learner.generator.set_state(tensors["generator"])
            learner.set_learning_rate(float(counters["learning_rate"]))
            learner.skipped, learner.skipped_in_a_row = (int(count) for count in counters["skipped"])
        else:
            online = {name: value for name, value in tensors.items() if name.startswith("online.")}
            self.network.load_state_dict({name.removeprefix("online."): value for name, value in online.items()})
        self.step, self.rng.bit_generator.state = int(state["step"]), state["rng"]
        self._due, self._episodes = int(counters["due"]), int(counters["episodes"])
        recent = (EpisodeEnd(int(a), int(b), float(c), int(d)) for a, b, c, d in counters["recent"])
        self._recent = deque(recent, maxlen=RECENT)
        loss = tensors.get("trainer.loss")
        self._meter.sum = None if loss is None else loss.item()
        self._meter.updates = int(counters["updates_since_report"])
        saved = {
            name.removeprefix(ENVIRONMENT): t.numpy() for name, t in tensors.items() if name.startswith(ENVIRONMENT)
        }
        if saved and self.source.known:
            restore_statistics(environments(self.stream), saved)
        plan = counters.get("plan")  # earlier versions saved none
        self.plan, self._asked = None if plan is None else int(plan), int(counters.get("asked", self.step))

    @property
    def mean_return(self) -> float | None:
        """The mean return of the last episodes."""
        return float(np.mean([end.episode_return for end in self._recent])) if self._recent else None

    def _report(self, epsilon: float) -> Report:
        learner, recent = self.learner, self._recent
        dormant = self._dormant(self._meter.updates)
        loss, speed = self._meter.read(self.step)
        return Report(
            self.step,
            0 if learner is None else learner.updates,
            self._episodes,
            self.mean_return,
            float(np.mean([end.length for end in recent])) if recent else None,
            loss,
            epsilon,
            self.config.rate(0.0) if learner is None else learner.learning_rate,
            speed,
            0 if learner is None else learner.skipped,
            dormant,
        )

    def _dormant(self, updates: int) -> float | None:
        """The share in the last batch, once `updates` since the last report have passed a multiple of LOOK_EVERY."""
        seen, self._seen = self._seen, None
        if self.learner is None or seen is None:
            return None
        if (self.learner.updates - updates) // LOOK_EVERY == self.learner.updates // LOOK_EVERY:
            return None
        shares = self.learner.online.dormant(seen)
        if not shares:
            return None
        name, share = max(shares.items(), key=lambda item: item[1])
        if share == 1 and not self._warned:
            self._warned = True
            warnings.warn(
                f"at step {self.step:,} no unit of the layer {name!r} responds to the last batch any more, so nothing "
                "below it can learn: try a smaller learning_rate, or a range nearer to the true returns",
                stacklevel=2,
            )
        return share


def reset_seed(seed: int, step: int) -> int:
    """The seed of a reset at a step; at the start, the run's own.

    >>> reset_seed(3, 0), reset_seed(3, 1000) == reset_seed(3, 1000), reset_seed(3, 1000) == reset_seed(3, 2000)
    (3, True, False)
    """
    if step == 0:
        return seed
    # Below 2³¹, with room for seed + 1, seed + 2, … of the other environments.
    return int(np.random.SeedSequence([seed, step]).generate_state(1)[0] % (2**31 - 2**16))
