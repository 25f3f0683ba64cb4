"""The training loop: a generator of events. Its caller logs, evaluates and saves."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfdrl.bellman import Valuation
from nfdrl.engines import Engine, Work, engine_for
from nfdrl.envs.make import Source
from nfdrl.envs.stepping import Step, Stream, check_observation, check_step
from nfdrl.laws.base import Method
from nfdrl.learner import Learner
from nfdrl.networks import Network
from nfdrl.replay import Replay, storage_dtype
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import EpisodeEnd, Event, NonFiniteError, Pause, Report
from nfdrl.training.ranges import observed_range
from nfdrl.training.schedules import decay
from nfdrl.training.storing import new_replay

Array = NDArray[Any]
RECENT = 100  # episodes in the reported mean return
LOOK_EVERY = 100  # updates between two counts of dormant units, each of which costs a forward pass
MAX_SKIPPED = 20  # updates in a row that may fail before training stops


class Actor:
    """ε-greedy actions for all environments, in at most one forward pass."""

    def __init__(self, engine: Engine, actions: int, rng: np.random.Generator) -> None:
        self.engine, self.actions, self.rng = engine, actions, rng
        self.explored: Array = np.zeros(0, np.bool_)  # where the last action was random

    def act(self, observation: Array, epsilon: float) -> Array:
        """One action per row; the coins are tossed first, and no network runs if all rows explore."""
        n = len(observation)
        explore = self.explored = self.rng.random(n) < epsilon
        exploring = np.count_nonzero(explore)  # counting is the fastest way to ask for any and all
        if exploring == n:
            return self.rng.integers(self.actions, size=n)
        action = self.engine.greedy(observation)
        if exploring:
            action = np.where(explore, self.rng.integers(self.actions, size=n), action)
        return action


class Trainer:
    """Everything that training changes: the network, its learner, the environments, the replay, and the counters.

    The first `learning_starts` steps are random. The learner is built after them, because some methods are first set to
    the scale of the rewards.
    """

    def __init__(
        self, method: Method, network: Network, source: Source, config: TrainConfig, *, risk: Valuation, seed: int
    ) -> None:
        self.method, self.network, self.source, self.config = method, network, source, config.of_method(method)
        self.risk, self.seed, self.step = risk, seed, 0
        self.rng = np.random.default_rng(seed)
        self.device = next(network.parameters()).device
        engine = engine_for(Work(method, network, risk), config.engine)
        self.actor = Actor(engine, int(source.action_space.n), self.rng)
        self.learner: Learner | None = None
        self._due = 0
        self._recent: deque[EpisodeEnd] = deque(maxlen=RECENT)
        self._episodes = 0
        self._meter = _Meter()
        self._seen: Tensor | None = None  # observations of the last update since the last report or pause
        self._warned = False
        self.pausing = False  # if set, by a signal handler for example, the current step is followed by a pause

    @cached_property
    def stream(self) -> Stream:
        return self.source.stream(self.config.num_envs)

    @cached_property
    def replay(self) -> Replay:
        return new_replay(self.source, self.config, self.stream.num_envs, self.rng)

    def start_learning(self) -> Learner:
        generator = torch.Generator(self.device).manual_seed(self.seed)
        settings = self.config.optimisation()
        self.learner = Learner(self.method, self.network, settings, risk=self.risk, generator=generator)
        self.actor.engine = self.learner.engine
        return self.learner

    def _after_warm_up(self) -> Learner:
        """Set the method to the returns that the first rewards allow; the network keeps its weights."""
        if self.config.return_range == "observed":
            method = self.method.within(*observed_range(self.replay))
            if method is not self.method:
                change_head(self.network, method, self.actor.actions)
            self.method = method
        return self.start_learning()

    def run(self, steps: int, pause_every: int | None = None) -> Iterator[Event]:
        """Train for `steps` more transitions."""
        config, end = self.config, self.step + steps
        stream, replay = self.stream, self.replay
        observation = self._reset()
        self._meter.restart(self.step)
        report_at, pause_at = following(self.step, config.report_every), following(self.step, pause_every)
        while self.step < end:
            fraction = self.step / end
            epsilon = config.epsilon(fraction)
            action = self._act(observation, epsilon)
            step = stream.step(action)
            check_step(step, self.step)
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

    def _reset(self) -> Array:
        observation = self._typed(self.stream.reset(seed=reset_seed(self.seed, self.step)))
        if observation.dtype.kind == "f":
            check_observation(observation, self.step)
        self.replay.start(observation)
        self._return, self._length = np.zeros(len(observation)), np.zeros(len(observation), np.int64)
        return observation

    def _typed(self, observation: Array) -> Array:
        return observation if observation.dtype == self._dtype else observation.astype(self._dtype)

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        return storage_dtype(self.source.observation_space)

    def _act(self, observation: Array, epsilon: float) -> Array:
        if self.learner is None:
            return self.rng.integers(self.actor.actions, size=len(observation))
        return self.actor.act(observation, epsilon)

    def _explored(self, n: int) -> Array | None:
        """Which of the last actions were random; None if that does not matter."""
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
            rate = learner.settings.learning_rate
            learner.set_learning_rate(rate * decay(config.learning_rate_decay, fraction))
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
        }
        return {"step": self.step, "rng": self.rng.bit_generator.state, "trainer": counters}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that belong to `state`."""
        learner, loss = self.learner, self._meter.sum
        if learner is None:
            return {f"online.{name}": value for name, value in self.network.state_dict().items()}
        assert learner.generator is not None
        tensors = learner.tensors() | {"generator": learner.generator.get_state()}
        return tensors if loss is None else tensors | {"trainer.loss": torch.tensor(loss, dtype=torch.float64)}

    def restore(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Return to where `state` and `tensors` were taken."""
        counters = state["trainer"]
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
            self.config.optimisation().learning_rate if learner is None else learner.learning_rate,
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


class _Meter:
    """The sum of losses and a clock, read once per report."""

    def __init__(self) -> None:
        self.sum: float | None = None
        self.updates = 0
        self.restart(0)

    def restart(self, step: int) -> None:
        """Restart the clock; losses stay."""
        self._step, self._time = step, time.perf_counter()

    def add(self, loss: float) -> None:
        self.sum = loss if self.sum is None else self.sum + loss
        self.updates += 1

    def read(self, step: int) -> tuple[float | None, float]:
        """The mean loss and the steps per second since the last reading."""
        loss = None if self.sum is None else self.sum / self.updates
        speed = (step - self._step) / max(time.perf_counter() - self._time, 1e-9)
        self.sum, self.updates = None, 0
        self.restart(step)
        return loss, speed


def change_head(network: Network, method: Method, actions: int) -> None:
    """Give the network the method's head with the weights of its current one; the range of returns is no weight."""
    with torch.random.fork_rng(devices=[]):  # the new head draws weights, which are discarded
        head = method.head(cast(int, network.torso.features), actions)
    head.load_state_dict(network.head.state_dict())
    network.head = head.to(next(network.parameters()).device)


def following(step: int, every: int | None) -> float:
    """The next multiple of `every` after a step; never if there is no interval.

    >>> following(999, 1000), following(1000, 1000), following(5, None)
    (1000, 2000, inf)
    """
    return math.inf if every is None else (step // every + 1) * every


def reset_seed(seed: int, step: int) -> int:
    """The seed of a reset at a step; at the start, the run's own.

    >>> reset_seed(3, 0), reset_seed(3, 1000) == reset_seed(3, 1000), reset_seed(3, 1000) == reset_seed(3, 2000)
    (3, True, False)
    """
    if step == 0:
        return seed
    # Below 2³¹, with room for seed + 1, seed + 2, … of the other environments.
    return int(np.random.SeedSequence([seed, step]).generate_state(1)[0] % (2**31 - 2**16))
