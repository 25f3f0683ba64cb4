"""`nfdrl train`: one run of one method in one environment."""

from __future__ import annotations

import csv
import os
import shlex
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nfdrl.errors import NfdrlError
from nfdrl.files import check_writable, from_json, replace_file, to_json
from nfdrl.settings import apply_settings

if TYPE_CHECKING:
    from nfdrl.agent import Agent
    from nfdrl.runs import Checkpoints
    from nfdrl.training.loop import NonFiniteError, Report, Trainer
    from nfdrl.training.trackers import Tracker

CONFIG, METRICS, SUMMARY, TENSORBOARD = "config.json", "metrics.csv", "metrics.json", "tensorboard"
FOLDERS = ("checkpoints", "replay", "checkpoint", "diagnostic", TENSORBOARD)
KEPT = ("method", "env", "seed", "preset", "set", "risk", "checkpoint_every")  # what a resumed run does not change


@dataclass(frozen=True)
class Train:
    """Train a method in a Gymnasium environment with discrete actions.

    Writes config.json, metrics.csv, checkpoints/, replay/ and, at the end, metrics.json. After a crash, a kill or
    Ctrl-C, `--resume RUN` goes on.

    Example: `nfdrl train --method nfdrl-s --env CartPole-v1 --steps 100000 --out out/cartpole`.
    """

    method: str = "nfdrl-s"
    """dqn, c51, qr-dqn, iqn, fqf, er-dqn, umdqn, nfdrl-s or nfdrl-e."""

    env: str = "CartPole-v1"
    """A Gymnasium id, with settings in brackets (`ALE/Pong-v5[sticky=0.25]`); `module:id` imports what registers it."""

    steps: int | None = None
    """Transitions to train for, in all; the preset's number where it is not given."""

    seed: int = 0
    """The same seed on the same machine gives the same weights."""

    out: Path = Path("out/train")
    """Folder of the run."""

    preset: str = "default"
    """Settings to start from: default, atari, minatar, or paper (its table; paper-atari is the same)."""

    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Settings to change, of the run or of the method: `--set learning_rate=1e-3 n_step=3 comparison.rooted=true`."""

    risk: str = "mean"
    """What actions are chosen by, in training as well: mean, cvar:0.1, var:0.1, wang:-0.75, cpw, …"""

    device: str = "auto"
    """auto, cpu or cuda."""

    evaluate: int = 20
    """Episodes of the final evaluation; 0 for none."""

    checkpoint_every: int = 50_000
    """Steps between two checkpoints, at which all environments are reset; there is one at the end in any case."""

    keep: int = 3
    """How many of the last checkpoints stay; the best one stays besides, without its replay."""

    tensorboard: bool = False
    """Write scalars for TensorBoard as well."""

    resume: Path | None = None
    """Go on with the run in this folder, with its own settings; more --steps than it was to have lengthen it."""

    exact: bool = False
    """With --resume: go back to the last checkpoint that no signal made, for the weights of an undisturbed run."""

    overwrite: bool = False
    """Remove the run in `out` first."""

    progress: bool = True
    """Show a progress bar."""

    def run(self) -> int:
        """Do what was asked; the exit code."""
        if self.evaluate < 0 or self.checkpoint_every < 1 or self.keep < 1:
            raise NfdrlError("evaluate must not be negative, checkpoint_every and keep at least 1")
        if self.steps is not None and self.steps < 1:
            raise NfdrlError(f"steps must be at least 1, got {self.steps}")
        if self.resume is None:
            return self._start()
        if self.overwrite:
            raise NfdrlError("a run can be resumed or overwritten, not both")
        return self._resume(self.resume)

    def _start(self) -> int:
        from nfdrl.agent import Agent
        from nfdrl.laws import find_method
        from nfdrl.runs import Checkpoints
        from nfdrl.training.presets import find_preset

        preset = find_preset(self.preset)
        present = any((self.out / name).exists() for name in (CONFIG, *FOLDERS))
        if present and not self.overwrite:
            raise NfdrlError(
                f"{str(self.out)!r} holds a run: go on with --resume {shlex.quote(str(self.out))}, add --overwrite, "
                "or name another folder"
            )
        config, method = apply_settings(self.set, preset.config, find_method(self.method, preset.adapt))
        agent = Agent(method, self.env, seed=self.seed, config=config, risk=self.risk, device=self.device)
        steps = preset.steps if self.steps is None else self.steps
        check_room(agent, self.out, steps, self.checkpoint_every, self.keep)
        check_writable(self.out)
        if self.overwrite:
            clear_run(self.out)
        self._write_config(agent, steps)
        print(agent.learner.engine)
        session = Session(self.out, agent, steps, self.evaluate, self.checkpoint_every, self.tensorboard, self.progress)
        return session.run(Checkpoints(self.out, keep=self.keep), metrics_bytes=0)

    def _write_config(self, agent: Agent, steps: int) -> None:
        from nfdrl.laws import method_config

        config = {
            "method": method_config(agent.method),
            "env": self.env,
            "steps": steps,
            "seed": agent.seed,
            "preset": self.preset,
            "risk": str(agent.risk),
            "evaluate": self.evaluate,
            "checkpoint_every": self.checkpoint_every,
            "keep": self.keep,
            "tensorboard": self.tensorboard,
            "train": asdict(agent.config),
        }
        replace_file(self.out / CONFIG, to_json(config))

    def _resume(self, folder: Path) -> int:
        from nfdrl.checkpoint import locate, read
        from nfdrl.runs import Checkpoints, newest

        defaults = {field.name: field.default for field in fields(self)}
        changed = [name for name in (*KEPT, "out") if getattr(self, name) != defaults[name]]
        if changed:
            raise NfdrlError(f"a resumed run keeps its own {', '.join(changed)}: leave out --{changed[0]}")
        if not (folder / CONFIG).is_file():
            raise NfdrlError(f"no run in {str(folder)!r}: {CONFIG} is missing")
        config = from_json((folder / CONFIG).read_bytes(), folder / CONFIG)
        check_writable(folder)
        if not isinstance(config.get("env"), str):
            raise NfdrlError(f"{folder / CONFIG} has no env")
        found = newest(folder, config["env"], exact=self.exact, device=self.device)
        if found is not None:
            agent, saved = found
            position = saved.state.get("run", {}).get("metrics_bytes")
        elif (folder / "checkpoint").is_dir():  # a run of version 0.1.0 before it had checkpoints with a replay
            agent, saved, position = self._old_agent(folder), read(locate(folder)), None
        else:
            agent, saved, position = _agent_of(config, folder, self.device), None, 0
        if position is None:
            trim_metrics(folder / METRICS, agent.step)
        steps = int(_setting(config, "steps", folder)) if self.steps is None else self.steps
        if agent.step >= steps and (agent.step > steps or (folder / SUMMARY).exists()):
            raise NfdrlError(f"the run in {str(folder)!r} has {agent.step:,} steps: ask for more than that")
        resumed = [*config.get("resumed", ()), agent.step]
        replace_file(folder / CONFIG, to_json(config | {"steps": steps, "resumed": resumed}))
        own = {name: self._or_own(name, config) for name in ("evaluate", "tensorboard", "keep")}
        every = int(config.get("checkpoint_every", self.checkpoint_every))
        session = Session(folder, agent, steps, own["evaluate"], every, own["tensorboard"], self.progress)
        return session.run(Checkpoints(folder, keep=own["keep"], resumed=saved), position)

    def _old_agent(self, folder: Path) -> Agent:
        from nfdrl.agent import Agent

        return Agent.load(folder, device=self.device)

    def _or_own(self, name: str, config: dict[str, Any]) -> Any:
        """What was asked for, or else what the run has."""
        default = next(field.default for field in fields(self) if field.name == name)
        given = getattr(self, name)
        return config.get(name, given) if given == default else given


def _agent_of(config: dict[str, Any], folder: Path, device: str) -> Agent:
    """The agent of a run that was stopped before its first checkpoint."""
    from nfdrl.agent import Agent
    from nfdrl.checkpoint import train_config_from
    from nfdrl.laws import method_from
    from nfdrl.risk import parse_risk

    try:
        method, train = method_from(config["method"]), train_config_from(config["train"])
        risk = parse_risk(config["risk"])
        return Agent(method, config["env"], seed=config["seed"], config=train, risk=risk, device=device)
    except NfdrlError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError, MemoryError) as error:
        raise NfdrlError(f"{folder / CONFIG} does not describe a run: {error!r}") from None


def _setting(config: dict[str, Any], name: str, folder: Path) -> Any:
    if not isinstance(config.get(name), int):
        raise NfdrlError(f"{folder / CONFIG} has no {name}")
    return config[name]


@dataclass(frozen=True)
class Session:
    """One process's part of a run."""

    folder: Path
    agent: Agent
    steps: int
    evaluate: int
    checkpoint_every: int
    tensorboard: bool
    progress: bool

    def run(self, checkpoints: Checkpoints, metrics_bytes: int | None) -> int:
        """Train to the end, or to a signal; the exit code."""
        from nfdrl.training.loop import NonFiniteError

        started, report = time.perf_counter(), None
        if self.agent.step < self.steps:
            (self.folder / SUMMARY).unlink(missing_ok=True)
            with pausing_on_signals(self.agent.trainer) as received:
                try:
                    report = self._train(checkpoints, metrics_bytes, received)
                except NonFiniteError as error:
                    raise self._failed(error) from None
            if received and self.agent.step < self.steps:
                return self._stopped(received[0])
            if not checkpoints.save(self.agent, regular=True, metrics=self.folder / METRICS):
                raise NfdrlError(
                    "the last checkpoint could not be written; `--resume` trains on from the one before it"
                )
        self._write_summary(report, time.perf_counter() - started, checkpoints.failures)
        return 0

    def _train(self, checkpoints: Checkpoints, metrics_bytes: int | None, received: list[int]) -> Report | None:
        from nfdrl.runs import say
        from nfdrl.training.loop import Pause, Report

        agent, last = self.agent, None
        trackers = self._trackers(metrics_bytes)
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: say(str(message))
            for event in agent.events(self.steps - agent.step, trackers, pause_every=self.checkpoint_every):
                if isinstance(event, Report):
                    last = event
                elif isinstance(event, Pause):
                    checkpoints.save(agent, regular=event.regular, metrics=self.folder / METRICS)
                    if received:
                        break
        return last

    def _trackers(self, metrics_bytes: int | None) -> list[Tracker]:
        from nfdrl.training.trackers import CsvTracker, ProgressTracker, TensorBoardTracker

        trackers: list[Tracker] = [CsvTracker(self.folder / METRICS, metrics_bytes)]
        if self.tensorboard:
            trackers.append(TensorBoardTracker(self.folder / TENSORBOARD, self.agent.step))
        if self.progress:
            trackers.append(ProgressTracker(self.steps, self.agent.step))
        return trackers

    def _failed(self, error: NonFiniteError) -> NfdrlError:
        from nfdrl.checkpoint import of_run
        from nfdrl.runs import write_diagnostic

        found = of_run(self.folder)
        last = f"the last checkpoint is {found[0]}" if found else "there is no checkpoint yet"
        return NfdrlError(f"{error}: see {write_diagnostic(self.folder, error)}; {last}")

    def _stopped(self, number: int) -> int:
        name = signal.Signals(number).name
        print(
            f"stopped at step {self.agent.step:,} by {name}; go on with: "
            f"nfdrl train --resume {shlex.quote(str(self.folder))}",
            flush=True,
        )
        return 128 + number

    def _write_summary(self, report: Report | None, seconds: float, failures: int) -> None:
        agent = self.agent
        summary: dict[str, Any] = {"step": agent.step, "seconds": round(seconds, 3), "failed_checkpoints": failures}
        if report is not None:
            summary["training"] = asdict(report)
        if self.evaluate:
            result = agent.evaluate(self.evaluate)
            summary["evaluation"] = {
                "episodes": self.evaluate,
                "mean": result.mean,
                "std": result.std,
                "returns": result.returns.tolist(),
                "lengths": result.lengths.tolist(),
            }
            print(f"return {result.mean:.4g} ± {result.std:.3g} over {self.evaluate} episodes")
        write_json(self.folder / SUMMARY, summary)
        print(f"{agent.step:,} steps in {seconds:.1f} s; written: {self.folder}")


def check_room(agent: Agent, folder: Path, steps: int, every: int, keep: int) -> None:
    """Refuse before anything is written where the replay fits neither memory nor disk."""
    from nfdrl.memory import check_disk

    agent.check_memory()
    size = agent.config.buffer_size
    check_disk(folder, min(size + keep * min(every, size), 2 * steps), agent.row_bytes)


@contextmanager
def pausing_on_signals(trainer: Trainer) -> Iterator[list[int]]:
    """SIGINT and SIGTERM ask for a pause behind the running step; a second one acts as it would without this."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # Python has no handlers elsewhere
        return

    def handle(number: int, frame: object) -> None:  # noqa: ARG001
        received.append(number)
        trainer.pausing = True
        restore()
        os.write(2, b"\nnfdrl: stopping behind this step, with a checkpoint; once more to leave at once\n")

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}  # as under nohup

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        restore()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """JSON with a final newline, durable."""
    replace_file(path, to_json(content))


def clear_run(folder: Path) -> None:
    """Remove the files of a run, and no others."""
    for name in (CONFIG, METRICS, SUMMARY):
        (folder / name).unlink(missing_ok=True)
    for name in FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)


def trim_metrics(path: Path, step: int) -> None:
    """Drop the lines behind the step at which a run goes on, so that no step is there twice."""
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        names, rows = reader.fieldnames or [], [row for row in reader if int(row["step"]) <= step]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
