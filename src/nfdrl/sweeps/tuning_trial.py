"""A trial of a tuning: one setting, trained with each seed in turn; and the record that it leaves in its folder."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import torch

from nfdrl.agent import Agent
from nfdrl.errors import NfdrlError
from nfdrl.files import describing, read_json, write_json
from nfdrl.laws import find_method
from nfdrl.runs.claim import Claim, claimed
from nfdrl.runs.journal import remove_unused
from nfdrl.runs.layout import REPLAY, SUMMARY
from nfdrl.sweeps.spec import listed
from nfdrl.sweeps.trial import TrainTrial, failure, waited
from nfdrl.sweeps.tuning_objectives import Measure
from nfdrl.sweeps.tuning_spec import Settings, TuneSpec
from nfdrl.training.events import Evaluation, Event

TRIALS = "trials"  # the folder of all trials
RECORD = "trial.json"  # in the folder of each
NAME = re.compile(r"trial-(\d{3,})")

Status = Literal["running", "finished", "stopped", "failed"]
Tell = Callable[["Record"], None]


@dataclass(frozen=True)
class Reading:
    """The objective of one seed at a step."""

    seed: int
    step: int
    value: float


@dataclass(frozen=True)
class Record:
    """All that is known of a trial, in a file that is replaced as a whole: it survives whatever kills whom."""

    number: int
    settings: Settings  # that were searched
    status: Status = "running"
    readings: tuple[Reading, ...] = ()
    error: str = ""

    @property
    def ended(self) -> bool:
        return self.status != "running"

    def progress(self, each: int) -> list[tuple[int, float]]:
        """The steps of all seeds, at `each` steps per seed, and the mean of their values, after each reading.

        Seeds run one after the other, so trials with equally many steps compare like with like: seeds that are done
        count with their last value, the one that runs with its value so far.

        >>> readings = Reading(0, 5, 1.0), Reading(0, 10, 2.0), Reading(7, 5, 4.0)
        >>> Record(0, {}, readings=readings).progress(10)
        [(5, 1.0), (10, 2.0), (15, 3.0)]
        """
        latest: dict[int, float] = {}
        found = []
        for reading in self.readings:
            latest[reading.seed] = reading.value
            found.append(((len(latest) - 1) * each + reading.step, sum(latest.values()) / len(latest)))
        return found


def folder_of(out: Path, number: int) -> Path:
    """The folder of a trial."""
    return out / TRIALS / f"trial-{number:03d}"


def write_record(out: Path, record: Record) -> None:
    """Replace the record of a trial."""
    folder = folder_of(out, record.number)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECORD, asdict(record))


def read_record(out: Path, number: int) -> Record:
    """The record of a trial."""
    path = folder_of(out, number) / RECORD
    content = read_json(path)
    with describing("a trial", path):
        readings = tuple(Reading(int(r["seed"]), int(r["step"]), float(r["value"])) for r in content["readings"])
        record = Record(
            content["number"], dict(content["settings"]), content["status"], readings, str(content["error"])
        )
        if record.number != number or record.status not in get_args(Status):
            raise ValueError(f"trial {record.number!r:.20} is {record.status!r:.20}")
        if not all(math.isfinite(reading.value) for reading in readings):
            raise ValueError("the objective must be finite")
        if record.status in ("finished", "stopped") and not readings:
            raise ValueError(f"it is {record.status} without a reading")
    return record


def read_records(out: Path) -> list[Record]:
    """The records of all trials, in order."""
    named = [(path, NAME.fullmatch(path.name)) for path in (out / TRIALS).glob("*")]
    return [read_record(out, n) for n in sorted(int(m[1]) for path, m in named if m and (path / RECORD).is_file())]


def drop_replays(out: Path, number: int) -> None:
    """Remove the replays of a trial that has ended: they are most of what its runs take on disk."""
    for folder in folder_of(out, number).glob(f"*/{REPLAY}"):
        remove_unused(folder, [])


def attempt(spec: TuneSpec, out: Path, number: int, tell: Tell) -> None:
    """What a worker does: run the trial, or what is left of it, and keep its record; `tell` is told each reading.

    What an earlier attempt has measured is told again, and not measured again.
    """
    torch.set_num_threads(spec.resources.threads)
    torch.set_flush_denormal(True)  # as `nfdrl train` does
    folder = folder_of(out, number)
    with claimed(folder, force=waited(folder)) as claim:
        record = read_record(out, number)
        for count in range(1, len(record.readings) + 1):
            tell(replace(record, readings=record.readings[:count]))
        try:
            measure = spec.aim.measure(spec.env)
            for seed in listed(spec.seeds):
                record = _SeedRun(spec, out, seed, measure, tell, claim).completed(record)
        except Exception as error:  # whatever a method or an environment raises
            claim.check()
            write_record(out, replace(read_record(out, number), status="failed", error=failure(error)))


class _SeedRun:
    """The run of one seed, and the readings that come of it."""

    def __init__(self, spec: TuneSpec, out: Path, seed: int, measure: Measure, tell: Tell, claim: Claim) -> None:
        self.spec, self.out, self.seed, self.measure = spec, out, seed, measure
        self.tell, self.claim = tell, claim

    def completed(self, record: Record) -> Record:
        """The record with all readings of this seed."""
        self.record, spec = record, self.spec
        if self._known(spec.steps):
            return record
        folder = folder_of(self.out, record.number) / f"seed-{self.seed}"
        trial = spec.trial(str(folder.relative_to(self.out)), self.seed, record.settings)
        value = self._final(trial, folder)
        self._add(spec.steps, value, "finished" if self.seed == listed(spec.seeds)[-1] else "running")
        return self.record

    def _final(self, trial: TrainTrial, folder: Path) -> float:
        """Train to the end, if that is not done; the objective of the agent that was reached."""
        device = self.spec.resources.device
        if not (folder / SUMMARY).exists():
            folder.mkdir(parents=True, exist_ok=True)
            run = trial.opened(folder, device, waited(folder))
            with run.agent:
                run.train(self.spec.steps, progress=False, callbacks=[self._listen], signals=False)
        if self.spec.objective == "return":
            return float(read_json(folder / SUMMARY)["evaluation"]["mean"])
        own = find_method(trial.method) if ":" in trial.method else None
        with Agent.load(folder, method=own, device=device, replay=False) as agent:
            return self.measure(agent)

    def _listen(self, agent: Agent, event: Event) -> None:
        """Measure the agent at each evaluation but the last, which comes when the run is complete."""
        if isinstance(event, Evaluation) and event.step < self.spec.steps and not self._known(event.step):
            returns = self.spec.objective == "return"
            self._add(event.step, event.mean if returns else self.measure(agent), "running")

    def _known(self, step: int) -> bool:
        return any((reading.seed, reading.step) == (self.seed, step) for reading in self.record.readings)

    def _add(self, step: int, value: float, status: Status) -> None:
        if not math.isfinite(value):
            raise NfdrlError(f"{self.spec.objective} is {value} at step {step:,}")
        readings = (*self.record.readings, Reading(self.seed, step, value))
        self.record = replace(self.record, readings=readings, status=status)
        self.claim.check()
        write_record(self.out, self.record)
        if self.record.ended:
            drop_replays(self.out, self.record.number)
        self.tell(self.record)
