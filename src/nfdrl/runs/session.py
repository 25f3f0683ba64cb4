"""A run: an agent and the folder from which it can be resumed."""

from __future__ import annotations

import math
import shlex
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from typing_extensions import Self

from nfdrl.agent import Agent
from nfdrl.arguments import device_of
from nfdrl.envs.watching import EnvironmentFailure
from nfdrl.errors import MOST_EPISODES, MOST_STEPS, NfdrlError, check_at_least, check_at_most, whole
from nfdrl.evaluation.rollouts import Episodes
from nfdrl.files import check_writable, describing, read_json, write_json
from nfdrl.laws import Method, method_config, method_from
from nfdrl.memory import check_disk
from nfdrl.progress import say
from nfdrl.risk import Risk, parse_risk
from nfdrl.runs import layout
from nfdrl.runs.checkpoint import Saved
from nfdrl.runs.claim import check_free, check_no_links, claimed
from nfdrl.runs.diagnostic import write_diagnostic
from nfdrl.runs.keeping import KEEP, Checkpoints, newest
from nfdrl.runs.signals import pausing_on_signals
from nfdrl.settings import from_plain, to_plain
from nfdrl.training.callbacks import Callback, Evaluate, StopAt
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import EpisodeEnd, NonFiniteError, Pause, Report
from nfdrl.training.storing import check_replay_fits, transition_bytes
from nfdrl.training.trackers import (
    CsvTracker,
    EvaluationsTracker,
    ProgressTracker,
    TensorBoardTracker,
    Tracker,
    read_evaluations,
)

CHECKPOINT_EVERY = 50_000
TOO_OFTEN = (
    "warning: no episode has ended since the last checkpoint, and each checkpoint resets all environments: if episodes "
    "are longer than that, let --checkpoint-every be larger"
)


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run; there is a checkpoint at this step."""

    def __init__(self, number: int, step: int, folder: Path) -> None:
        name, how = signal.Signals(number).name, f"nfdrl train --resume {shlex.quote(str(folder))}"
        super().__init__(f"stopped at step {step:,} by {name}; resume with: {how}")
        self.number, self.step = number, step


@dataclass(frozen=True)
class Upkeep:
    """What a run does besides training."""

    checkpoint_every: int = CHECKPOINT_EVERY  # steps between two checkpoints, at which all environments are reset
    keep: int = KEEP  # the last checkpoints; the best one is kept as well
    evaluate: int = 0  # episodes of the final evaluation
    tensorboard: bool = False
    evaluate_every: int = 0  # steps between two evaluations during training, of as many episodes as the final one
    stop_at: float | None = None  # a mean return, of an evaluation or else of the last 100 episodes of training

    def __post_init__(self) -> None:
        check_at_least(1, checkpoint_every=self.checkpoint_every, keep=self.keep)
        check_at_least(0, evaluate=self.evaluate, evaluate_every=self.evaluate_every)
        check_at_most(MOST_EPISODES, evaluate=self.evaluate)
        if self.stop_at is not None and not math.isfinite(self.stop_at):
            raise NfdrlError(f"stop_at must be finite, got {self.stop_at}")
        if self.evaluate_every and not self.evaluate:
            raise NfdrlError("evaluate_every needs evaluate, the episodes of each evaluation, which is 0")

    def callbacks(self, folder: Path, step: int) -> list[Callback]:
        """Those that this asks for, in a run that is at a step."""
        made: list[Callback] = []
        if self.evaluate_every:
            evaluate = Evaluate(self.evaluate_every, self.evaluate, best=folder / layout.BEST)
            evaluate.highest = max((e.mean for e in read_evaluations(folder / layout.EVALUATIONS, step)), default=None)
            made.append(evaluate)
        if self.stop_at is not None:
            made.append(StopAt(self.stop_at, "evaluation" if self.evaluate_every else "training"))
        return made


def replay_rows(size: int, upkeep: Upkeep, steps: int) -> int:
    """How many rows of a replay of this size its files hold at most: its own, and those of kept checkpoints."""
    return min(size + upkeep.keep * min(upkeep.checkpoint_every, size), 2 * steps)


class Run:
    """One run of one method in one environment, in a folder from which it can be resumed.

    `Run(…).train(steps)` starts it; `Run.resume(folder).train()` continues it after a crash, a kill or Ctrl-C, and
    reaches the weights it would have had (docs/reliability.md says when). `train` with more steps extends it, schedules
    included. Every `checkpoint_every` steps it writes a checkpoint, resets all environments, and keeps the last `keep`
    checkpoints and the best; it ends with `evaluate` greedy episodes. Every `evaluate_every` steps it plays as many,
    adds a line to evaluations.csv and keeps the best agent in best/; it stops at a mean return of `stop_at`. Other
    arguments are those of `Agent`.
    """

    def __init__(
        self,
        folder: str | Path,
        method: str | Method,
        env: str,
        *,
        seed: int = 0,
        config: TrainConfig | None = None,
        risk: str | Risk = "mean",
        device: str | torch.device = "auto",
        checkpoint_every: int = CHECKPOINT_EVERY,
        keep: int = KEEP,
        evaluate: int = 0,
        tensorboard: bool = False,
        evaluate_every: int = 0,
        stop_at: float | None = None,
        overwrite: bool = False,
        force: bool = False,
    ) -> None:
        # Everything is checked and nothing is written: the folder is made when training starts.
        self.folder, self.upkeep = (
            Path(folder),
            Upkeep(checkpoint_every, keep, evaluate, tensorboard, evaluate_every, stop_at),
        )
        self._overwrite, self._force, self._begun = overwrite, force, False
        self._seen: tuple[int, int, int] | None = None  # config.json as this run last saw it
        check_free(self.folder, overwrite)
        if not isinstance(env, str):
            raise NfdrlError(f"a run's environment must be an id, got {type(env).__name__}: register it with Gymnasium")
        self.agent = Agent(method, env, seed=seed, config=config, risk=risk, device=device)
        self._config = _described(self.agent) | asdict(self.upkeep)
        self._open(None, metrics_bytes=0)

    def _open(self, saved: Saved | None, metrics_bytes: int | None) -> None:
        self._checkpoints = Checkpoints(self.folder, keep=self.upkeep.keep, resumed=saved)
        self._metrics_bytes = metrics_bytes  # to which metrics.csv is cut before it is continued
        self.summary: dict[str, Any] = {}

    @classmethod
    def resume(
        cls,
        folder: str | Path,
        *,
        method: Method | None = None,
        exact: bool = False,
        device: str | torch.device = "auto",
        keep: int | None = None,
        evaluate: int | None = None,
        tensorboard: bool | None = None,
        evaluate_every: int | None = None,
        stop_at: float | None = None,
        replay_on_disk: str = "",
        force: bool = False,
    ) -> Self:
        """The run in a folder, from its newest whole checkpoint, with its own settings unless others are given.

        After a signal, `exact` goes back to the last checkpoint at a multiple of `checkpoint_every`, to continue as an
        undisturbed run would have done. Pass `method` if the run's is your own, and `replay_on_disk` to keep the replay
        in a folder again. `force` takes the run from a process on another machine that is no longer there.
        """
        run = cls.__new__(cls)
        run.folder, run._overwrite, run._force, run._begun = Path(folder), False, force, True
        path = run.folder / layout.CONFIG
        run._seen = _identity(path)
        config = _read_config(path)
        method_from(config.get("method"), method)  # refuse it here, not once per checkpoint
        device = device_of(device)  # likewise
        check_writable(run.folder)
        check_no_links(run.folder)
        if replay_on_disk:
            check_writable(Path(replay_on_disk))
        given: dict[str, Any] = {"keep": keep, "evaluate": evaluate, "tensorboard": tensorboard}
        given |= {"evaluate_every": evaluate_every, "stop_at": stop_at}
        own = {field.name: config[field.name] for field in fields(Upkeep) if field.name in config}
        own |= {name: value for name, value in given.items() if value is not None}
        run.upkeep = from_plain(Upkeep, own, str(path))
        with claimed(run.folder, force=force):
            found = newest(
                run.folder, config["env"], method=method, exact=exact, device=device, replay_on_disk=replay_on_disk
            )
        run.agent, saved = (agent_of(config, path, device, method, replay_on_disk), None) if found is None else found
        run._config = config | {"resumed": [*config.get("resumed", ()), run.agent.step]}
        run._open(saved, 0 if saved is None else saved.run.get("metrics_bytes"))
        return run

    def train(
        self,
        steps: int | None = None,
        *,
        progress: bool = True,
        callbacks: Iterable[Callback] = (),
        signals: bool = True,
    ) -> Self:
        """Train until the run has `steps` transitions in total; by default as many as config.json says.

        `callbacks` are those of `Agent.learn`; they are not saved.
        SIGINT, SIGTERM and SIGHUP stop it after the current step, with a checkpoint, and raise `Interrupted`; without
        `signals`, they do what they did before.
        """
        total = self._total(steps)
        if not self._begun:
            self._check_room(total)
        check_writable(self.folder)
        with claimed(self.folder, force=self._force) as self._claim:
            return self._train(total, progress, callbacks, signals)

    def _train(self, total: int, progress: bool, callbacks: Iterable[Callback], signals: bool) -> Self:
        self._prepare(total)
        started, report = time.perf_counter(), None
        if self.agent.step < total:
            with pausing_on_signals(self.agent.trainer, enabled=signals) as received:
                try:
                    report = self._learn(total, received, progress, callbacks)
                except NonFiniteError as error:
                    raise self._failed(error) from None
                except EnvironmentFailure as error:
                    raise EnvironmentFailure(f"{error}; {self._rescued()}") from error
            if received and self.agent.step < total:
                raise Interrupted(received[0], self.agent.step, self.folder)
            last = self.agent.step >= total
            if not self._checkpoints.save(self.agent, regular=last, after=self._metrics.sync):
                raise NfdrlError("the last checkpoint could not be written; a resume starts from the one before it")
            self.agent.trainer.cut()  # more steps begin as a resumed run does
        self._summarise(report, time.perf_counter() - started, progress)
        return self

    def evaluate(self, episodes: int = 20, seed: int = 10_000) -> Episodes:
        """Greedy returns of whole episodes; a run that has begun stores them in `evaluation.json`."""
        result = self.agent.evaluate(episodes, seed)
        if self._begun:
            write_evaluation(self.folder / layout.EVALUATION, self.agent, result)
        return result

    def _total(self, steps: int | None) -> int:
        total = self._config.get("steps") if steps is None else whole("steps", steps)
        if not isinstance(total, int):
            raise NfdrlError(f"the run in {str(self.folder)!r} has no number of steps: pass `steps` (--steps)")
        check_at_least(1, steps=total)
        check_at_most(MOST_STEPS, steps=total)
        done = self.agent.step
        if done > total or (done == total and (self.folder / layout.SUMMARY).exists()):
            raise NfdrlError(f"the run in {str(self.folder)!r} already has {done:,} steps: ask for more")
        return total

    def _prepare(self, steps: int) -> None:
        """Write the settings; the folder of a new run is checked first, that of another for what others did there."""
        path = self.folder / layout.CONFIG
        if not self._begun:
            check_free(self.folder, self._overwrite)
            if self._overwrite:
                layout.clear(self.folder)
        elif _identity(path) != self._seen:
            raise NfdrlError(f"another process has used the run in {str(self.folder)!r} since: resume it again")
        check_no_links(self.folder)
        self._begun = True
        self._config["steps"] = steps
        write_json(path, self._config)
        self._seen = _identity(path)

    def _check_room(self, steps: int) -> None:
        """Refuse a replay that does not fit into memory or on disk, before anything is written."""
        agent, size, upkeep = self.agent, self.agent.config.buffer_size, self.upkeep
        check_replay_fits(agent.source, agent.config)
        if agent.config.replay_on_disk:
            check_writable(Path(agent.config.replay_on_disk))
        rows = replay_rows(size, upkeep, steps)
        check_disk(self.folder, rows, transition_bytes(agent.source, agent.config))

    def _learn(self, total: int, received: list[int], progress: bool, callbacks: Iterable[Callback]) -> Report | None:
        """Train with checkpoints until the end, a signal, or a callback that stops it; returns the last report."""
        agent, last, ended, warned = self.agent, None, False, False
        for name in (layout.SUMMARY, layout.EVALUATION):  # they describe an earlier agent
            (self.folder / name).unlink(missing_ok=True)
        trackers = self._trackers(total, progress)
        asked = {"pause_every": self.upkeep.checkpoint_every, "total_steps": total}
        all_callbacks = [*self.upkeep.callbacks(self.folder, agent.step), *callbacks]
        for event in agent.events(total - agent.step, trackers, callbacks=all_callbacks, **asked):
            if isinstance(event, Report):
                last = event
            elif isinstance(event, EpisodeEnd):
                ended = True
            elif isinstance(event, Pause):
                self._claim.check()
                self._checkpoints.save(agent, regular=event.regular, after=self._metrics.sync)
                if received:
                    break
                if not ended and not warned:
                    say(TOO_OFTEN)
                    warned = True
                ended = False
        return last

    def _trackers(self, total: int, progress: bool) -> list[Tracker]:
        self._metrics = CsvTracker(self.folder / layout.METRICS, self._metrics_bytes)
        self._metrics_bytes = None
        trackers: list[Tracker] = [self._metrics]
        if self.upkeep.evaluate_every or (self.folder / layout.EVALUATIONS).exists():
            trackers.append(EvaluationsTracker(self.folder / layout.EVALUATIONS, self.agent.step))
        if self.upkeep.tensorboard:
            trackers.append(TensorBoardTracker(self.folder / layout.TENSORBOARD, self.agent.step))
        if progress:
            trackers.append(ProgressTracker(total, self.agent.step))
        return trackers

    def _rescued(self) -> str:
        """Write a checkpoint after a failure outside the agent, unless there is one already; says where."""
        step, name = self.agent.step, layout.checkpoint_name(self.agent.step)
        if step and not (self.folder / layout.CHECKPOINTS / name).exists():
            self._checkpoints.save(self.agent, regular=False, after=self._metrics.sync)
        found = layout.checkpoints(self.folder)
        return f"the last checkpoint is {found[0]}" if found else "there is no checkpoint yet"

    def _failed(self, error: NonFiniteError) -> NfdrlError:
        found = layout.checkpoints(self.folder)
        last = f"the last checkpoint is {found[0]}" if found else "there is no checkpoint yet"
        try:
            seen = f"see {write_diagnostic(self.folder, error)}"
        except OSError as failure:
            seen = f"its diagnostic could not be written ({failure.strerror or failure})"
        return NfdrlError(f"{error}: {seen}; {last}")

    def _summarise(self, report: Report | None, seconds: float, progress: bool) -> None:
        agent, failures = self.agent, self._checkpoints.failures
        summary: dict[str, Any] = {"step": agent.step, "seconds": round(seconds, 3), "failed_checkpoints": failures}
        if report is not None:
            summary["training"] = asdict(report)
        if self.upkeep.evaluate:
            summary["evaluation"] = agent.evaluate(self.upkeep.evaluate, progress=progress).summary()
        write_json(self.folder / layout.SUMMARY, summary)
        self.summary = summary


def write_evaluation(path: Path, agent: Agent, result: Episodes) -> None:
    """Write an evaluation as JSON: its step, its risk, and all returns and lengths."""
    write_json(path, {"step": agent.step, "risk": str(agent.risk), **result.summary()})


def _described(agent: Agent) -> dict[str, Any]:
    """An agent's part of config.json: all that is needed to make the same agent again."""
    if not isinstance(agent.risk, Risk):
        raise NfdrlError("a run must be able to store its risk: pass a word or a Risk, not a function")
    return {
        "method": method_config(agent.method),
        "env": agent.source.name,
        "seed": agent.seed,
        "risk": str(agent.risk),
        "train": to_plain(agent.config),
    }


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise NfdrlError(f"no run in {str(path.parent)!r}: {path.name} is missing")
    config = read_json(path)
    for name, kind in (("env", str), ("resumed", list)):
        if not isinstance(config.get(name, []), kind):
            raise NfdrlError(f"{path} does not describe a run: its {name} is {config.get(name)!r}")
    return config


def _identity(path: Path) -> tuple[int, int, int] | None:
    """What changes whenever a file is replaced."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def agent_of(
    config: Mapping[str, Any],
    path: Path,
    device: str | torch.device,
    given: Method | None = None,
    replay_on_disk: str = "",
) -> Agent:
    """The agent of a run that stopped before its first checkpoint."""
    with describing("a run", path):
        method, train = method_from(config["method"], given), from_plain(TrainConfig, config["train"], "the saved run")
        train = replace(train, replay_on_disk=replay_on_disk)
        risk = parse_risk(config["risk"])
        return Agent(method, config["env"], seed=config["seed"], config=train, risk=risk, device=device)
