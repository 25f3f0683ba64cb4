"""A trial of a sweep: what it computes, what it needs, and what it leaves in its folder."""

from __future__ import annotations

import socket
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from nfdrl.envs.make import Source, source_of
from nfdrl.envs.stacking import stacked
from nfdrl.errors import MOST_STEPS, NfdrlError, check_at_least, check_at_most
from nfdrl.evaluation.comparison import DISTANCES, Budget, Problem, Store, stored_cell
from nfdrl.evaluation.problems import contender, discount_for, finite_mdp
from nfdrl.files import describing, read_json, write_json
from nfdrl.laws import Method, find_method, method_config
from nfdrl.networks import method_for
from nfdrl.risk import parse_risk
from nfdrl.runs import layout
from nfdrl.runs.claim import InUseError, claimed
from nfdrl.runs.journal import remove_unused
from nfdrl.runs.reading import read_run
from nfdrl.runs.session import Run, Upkeep
from nfdrl.settings import apply_settings, to_plain
from nfdrl.training.config import TrainConfig
from nfdrl.training.presets import find_preset
from nfdrl.training.storing import resident_bytes

RESULT, FAILED = "result.json", "failed.json"  # how a trial ended
CELLS = "cells"  # where `nfdrl compare` keeps its finished parts, too
PROCESS = 512 << 20  # bytes of a worker with PyTorch and a network
PATIENCE = 120.0  # seconds after which a file server has released the locks of a lost machine


@dataclass(frozen=True)
class Resources:
    """What a trial is given; others wait until there is enough of it."""

    cpus: float = 1.0  # small networks do not share: only image networks are faster on several
    gpus: float = 0.0  # a share of one, or several
    memory_gb: float | None = None  # none for what its replay will take

    def __post_init__(self) -> None:
        for name, value in (("cpus", self.cpus), ("gpus", self.gpus), ("memory_gb", self.memory_gb or 0.0)):
            if not 0 <= value < 1e6:
                raise NfdrlError(f"{name} must be at least 0, got {value}")
        if not self.cpus:
            raise NfdrlError("cpus must be positive, got 0")

    @property
    def threads(self) -> int:
        return max(1, int(self.cpus))

    @property
    def device(self) -> str:
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True)
class Trial(ABC):
    """One method in one environment with one seed; its name is its folder in the sweep's."""

    name: str
    method: str
    env: str
    seed: int
    varied: tuple[tuple[str, str], ...]  # what the grid sets for it

    @property
    def cell(self) -> tuple[object, ...]:
        """What it shares with its other seeds."""
        return self.method, self.env, self.varied

    @property
    @abstractmethod
    def work(self) -> int:
        """Its size: trials of one cell take a time in proportion."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that its result depends on."""

    @abstractmethod
    def begun(self, out: Path) -> dict[str, Any] | None:
        """The settings with which its folder was begun."""

    @abstractmethod
    def memory(self) -> int:
        """The bytes of memory that it will take."""

    def check(self) -> None:
        """Raise what is wrong with its method, its environment or its settings."""
        self.settings()
        self.memory()

    @abstractmethod
    def run(self, out: Path, resources: Resources, *, force: bool) -> dict[str, Any]:
        """Start or continue it; returns its result."""


@dataclass(frozen=True)
class TrainTrial(Trial):
    """A run of `nfdrl train`."""

    preset: str
    words: tuple[str, ...]  # those of `train --set`
    risk: str
    steps: int
    evaluate: int
    evaluate_every: int
    checkpoint_every: int
    keep: int
    keep_replay: bool

    def __post_init__(self) -> None:
        check_at_least(1, steps=self.steps)
        check_at_most(MOST_STEPS, steps=self.steps)
        Upkeep(self.checkpoint_every, self.keep, self.evaluate, evaluate_every=self.evaluate_every)

    @property
    def work(self) -> int:
        return self.steps

    def parts(self) -> tuple[TrainConfig, Method]:
        """The settings of the run as far as they are given, and its method."""
        preset = find_preset(self.preset)
        return apply_settings(self.words, preset.config, find_method(self.method, preset.adapt))

    def settings(self) -> dict[str, Any]:
        given, method = self.parts()
        space = _space(self.env, given.frame_stack)
        method = method_for(method, space)
        config = given.of_method(method, space)
        upkeep = {"checkpoint_every": self.checkpoint_every, "evaluate": self.evaluate}
        upkeep |= {"evaluate_every": self.evaluate_every, "steps": self.steps}
        saved = {"method": method_config(method), "env": self.env, "seed": self.seed, "train": to_plain(config)}
        return saved | {"risk": str(parse_risk(self.risk)), **upkeep}

    def begun(self, out: Path) -> dict[str, Any] | None:
        path = out / self.name / layout.CONFIG
        return read_json(path) if path.exists() else None

    def source(self) -> Source:
        """Its environment."""
        return stacked(source_of(self.env), self.parts()[0].frame_stack)

    def memory(self) -> int:
        config = self.parts()[0]
        return PROCESS + min(config.buffer_size, self.steps) * resident_bytes(self.source(), config)

    def run(self, out: Path, resources: Resources, *, force: bool) -> dict[str, Any]:
        folder = out / self.name
        if not (folder / layout.SUMMARY).exists():
            run = self.opened(folder, resources.device, force)
            try:
                run.train(self.steps, progress=False, signals=False)  # a signal ends the worker, and Ray starts another
            finally:
                run.agent.close()
        if not self.keep_replay:
            remove_unused(folder / layout.REPLAY, [])
        found = read_run(folder)
        scores = {name: (found.evaluation or {}).get(name) for name in ("mean", "std", "episodes")}
        return scores | {"steps": self.steps, "seconds": round(found.seconds, 3), "resumed": found.resumed}

    def opened(self, folder: Path, device: str, force: bool) -> Run:
        """The run from its last regular checkpoint, so that it ends as if it had never been stopped; or a new one."""
        config, method = self.parts()
        regular = [path for path in layout.checkpoints(folder) if _is_regular(path)]
        if (folder / layout.CONFIG).exists() and (regular or not layout.checkpoints(folder)):
            own = method if ":" in self.method else None
            on_disk = config.replay_on_disk
            return Run.resume(
                folder, method=own, exact=True, device=device, keep=self.keep, replay_on_disk=on_disk, force=force
            )
        return Run(
            folder,
            method,
            self.env,
            seed=self.seed,
            config=config,
            risk=self.risk,
            device=device,
            checkpoint_every=self.checkpoint_every,
            keep=self.keep,
            evaluate=self.evaluate,
            evaluate_every=self.evaluate_every,
            overwrite=True,
            force=force,
        )


@cache
def _space(env: str, frame_stack: int) -> gymnasium.Space[Any]:
    """What is observed there."""
    return stacked(source_of(env), frame_stack).observation_space


@dataclass(frozen=True)
class TruthTrial(Trial):
    """A cell of `nfdrl compare`: laws learned from sampled transitions, and their distance to the exact ones."""

    updates: int
    batch_size: int
    discount: float | None

    @property
    def work(self) -> int:
        return self.updates

    def settings(self) -> dict[str, Any]:
        mdp = finite_mdp(self.env)
        method = method_config(contender(self.method).method)
        budget = {"updates": self.updates, "batch_size": self.batch_size, "discount": discount_for(mdp, self.discount)}
        return {"method": method, "env": self.env, "seed": self.seed, **budget}

    def begun(self, out: Path) -> dict[str, Any] | None:
        path = out / self.name / RESULT
        with describing("a trial", path):
            return dict(read_json(path)["settings"]) if path.exists() else None

    def memory(self) -> int:
        return PROCESS

    def run(self, out: Path, resources: Resources, *, force: bool) -> dict[str, Any]:  # noqa: ARG002
        mdp = finite_mdp(self.env)
        with claimed(out / self.name, force=force):
            started = time.perf_counter()
            problem = Problem.of(self.env, mdp, discount_for(mdp, self.discount))
            fitted = contender(self.method).for_returns(*problem.returns())
            budget = Budget(self.updates, self.batch_size)
            found = stored_cell(Store(out / CELLS), problem, fitted, self.seed, budget, lambda steps, _: steps)
        means = {name: float(np.mean(found["distances"][name])) for name in DISTANCES}
        return means | {"updates": self.updates, "seconds": round(time.perf_counter() - started, 3)}


def attempt(trial: Trial, out: Path, resources: Resources) -> dict[str, Any]:
    """What a worker does: run the trial on its share of the machine, and write how it ended."""
    torch.set_num_threads(resources.threads)
    torch.set_flush_denormal(True)  # as `nfdrl train` does
    folder = out / trial.name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        result = trial.run(out, resources, force=waited(folder))
    except Exception as error:  # whatever a method or an environment raises
        return write_failure(trial, out, error)
    ended = {"trial": trial.name, "result": result, "settings": trial.settings(), "host": socket.gethostname()}
    write_json(folder / RESULT, ended)
    (folder / FAILED).unlink(missing_ok=True)
    return ended


def failure(error: BaseException) -> str:
    """An error in one line."""
    line = " ".join(str(error).split())[:500] or type(error).__name__
    return line if isinstance(error, NfdrlError) else f"{type(error).__name__}: {line}"


def write_failure(trial: Trial, out: Path, error: BaseException) -> dict[str, Any]:
    """Write why a trial failed: one line, and where in the code."""
    ended = {"trial": trial.name, "error": failure(error), "traceback": "".join(traceback.format_exception(error))}
    with suppress(OSError):  # on a full disk: the trial then counts as unfinished
        (out / trial.name).mkdir(parents=True, exist_ok=True)
        write_json(out / trial.name / FAILED, ended)
    return ended


def ended(trial: Trial, out: Path) -> dict[str, Any] | None:
    """The result of a finished trial, the error of a failed one; None for others."""
    for name in (RESULT, FAILED):
        path = out / trial.name / name
        if path.exists():
            found = read_json(path)
            if not (isinstance(found.get("error"), str) if name == FAILED else _is_result(found.get("result"))):
                raise NfdrlError(f"{path} does not say how a trial ended: remove it, and the trial runs again")
            return found
    return None


def _is_result(found: Any) -> bool:
    """Whether these are the numbers of a result: all of them finite, and the time among them."""
    numbers = {name: found[name] for name in found if name != "resumed"} if isinstance(found, Mapping) else {}
    known = (value for name, value in numbers.items() if value is not None or name == "seconds")
    return "seconds" in numbers and all(type(value) in (int, float) and abs(value) < 1e300 for value in known)


def check_begun(trials: Iterable[Trial], out: Path) -> None:
    """Refuse a trial whose folder was begun with other settings."""
    for trial in trials:
        found = trial.begun(out)
        if found is None:
            continue
        was, now = _flat(found), _flat(trial.settings())
        for name in now:
            if name in was and was[name] != now[name]:
                raise NfdrlError(
                    f"{name} of {trial.name} is {now[name]!r} in the spec, but its folder in {str(out)!r} was begun "
                    f"with {was[name]!r}: change it back, name another --out, or remove that folder"
                )


def _flat(settings: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Inner settings by their path."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{start}{name}.") if isinstance(value, Mapping) else {f"{start}{name}": value}
    return flat


def _is_regular(checkpoint: Path) -> bool:
    """Whether an undisturbed run would have made a checkpoint; of a damaged one, the run itself will say so."""
    try:
        return bool(read_json(checkpoint / layout.STATE).get("run", {}).get("regular"))
    except NfdrlError:
        return False


def waited(folder: Path) -> bool:
    """Wait for an earlier attempt whose process is still ending; whether the folder must be taken by force.

    A sweep has one driver, so whoever has locked the folder is a worker that Ray has given up: dying, or on a machine
    that is lost. A worker that was only cut off notices at its next checkpoint, and writes no more.
    """
    given_up = time.monotonic() + PATIENCE
    while _is_in_use(folder):
        if time.monotonic() > given_up:
            return True
        time.sleep(0.2)
    return False


def _is_in_use(folder: Path) -> bool:
    try:
        with claimed(folder):
            return False
    except InUseError:
        return True
