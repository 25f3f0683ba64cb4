"""The driver of a tuning: Optuna suggests settings, Ray Tune runs them, ASHA stops those that fall behind.

What is known of a trial is in its folder, and nowhere else: Optuna and ASHA learn it from there whenever the driver
starts. A driver that was killed has lost nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from nfdrl.errors import NfdrlError
from nfdrl.files import read_json, write_json
from nfdrl.reports import plain
from nfdrl.runs.claim import claimed
from nfdrl.sweeps.driver import RETRIES, Place, check_room, demands, imported_ray
from nfdrl.sweeps.trial import Trial
from nfdrl.sweeps.tuning_board import BEST
from nfdrl.sweeps.tuning_spec import TuneSpec
from nfdrl.sweeps.tuning_trial import RECORD, Record, attempt, folder_of, read_records

SPEC = "tune.json"  # what a folder is for
SCRATCH = ".nfdrl-ray-tune"  # what Ray Tune writes while it runs, and nobody reads
OBJECTIVE, STEPS = "objective", "steps"  # what trials report
ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # runs have metrics of their own
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C stops at once: there is nothing left to save
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a trial that fails at once reports nothing
    "RAY_AIR_NEW_OUTPUT": "0",  # silent with verbose=0
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


class Listener(Protocol):
    """Something that is told how each trial stands."""

    def update(self, record: Record) -> None:
        """A trial has begun, has a new reading, or has ended."""


def run_tuning(spec: TuneSpec, out: Path, place: Place, listener: Listener, *, force: bool = False) -> list[Record]:
    """Run the trials that are missing, and continue those that were cut off; returns the records of all."""
    if (place.address or "").startswith("ray://"):
        raise NfdrlError("tuning runs inside the cluster: start it on one of its machines, with --address auto")
    check_imports()
    with claimed(out, force=force):
        check_same(spec, out)
        known = read_records(out)
        check_known(spec, known, out)
        for record in known:
            listener.update(record)
        missing = spec.trials - sum(record.ended for record in known)
        if missing > 0:
            with place.open() as ray:
                check_room(ray, largest(spec), spec.resources, place)
                _tune(spec, out.absolute(), known, missing, listener)
        return read_records(out)


def check_imports() -> None:
    """Refuse to start without Ray Tune and Optuna; set Ray Tune up."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    imported_ray()
    try:
        import optuna
        import ray.tune  # noqa: F401
    except ImportError as error:
        raise NfdrlError(f"tuning needs Ray Tune and Optuna ({error}): pip install nfdrl[sweep]") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def check_same(spec: TuneSpec, out: Path) -> None:
    """Write what the folder is for, or refuse a spec for which it is not."""
    path, said = out / SPEC, plain(spec.plain())
    if not path.exists():
        if os.path.lexists(out / BEST):
            raise NfdrlError(f"{str(out)!r} holds a {BEST!r} that no tuning wrote: move it, or name another folder")
        write_json(path, said)
        return
    was = read_json(path)
    for name, value in said.items():
        if was.get(name) != value:
            raise NfdrlError(
                f"{name} is {value!r:.80} in the spec, but {str(out)!r} was begun with {was.get(name)!r:.80}: "
                "change it back, or name another --out"
            )


def check_known(spec: TuneSpec, known: Sequence[Record], out: Path) -> None:
    """Refuse records with other settings than those that are searched."""
    space = spec.space()
    for record in known:
        found = record.settings
        if found.keys() != space.keys() or not all(values.has(found[name]) for name, values in space.items()):
            raise NfdrlError(
                f"{folder_of(out, record.number) / RECORD} has settings that are not searched: {found!r:.80}"
            )


def largest(spec: TuneSpec) -> list[tuple[Trial, int]]:
    """The run that takes most memory among those at the ends of the search, with what it asks for."""
    ends = [{name: value} for name, values in spec.space().items() for value in values.ends]
    found = [demands([spec.trial("a trial", 0, searched)], spec.resources)[0] for searched in ends]
    return [max(found, key=lambda need: need[1])]


def _tune(spec: TuneSpec, out: Path, known: Sequence[Record], missing: int, listener: Listener) -> None:
    from ray import tune

    from nfdrl.sweeps.tuning_search import Suggestions, asha

    (_, memory), scratch = largest(spec)[0], out / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)  # of a driver that was killed
    asked = {"cpu": spec.resources.cpus, "gpu": spec.resources.gpus, "memory": memory}
    tuner = tune.Tuner(
        tune.with_resources(partial(work, spec=spec, out=out), asked),
        tune_config=tune.TuneConfig(
            search_alg=Suggestions(spec, out, known, listener),
            scheduler=asha(spec, known),
            num_samples=missing,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            "tune", str(scratch), failure_config=tune.FailureConfig(max_failures=RETRIES), verbose=0
        ),
    )
    try:
        tuner.fit()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def work(config: dict[str, Any], spec: TuneSpec, out: Path) -> None:
    """What Ray Tune runs in a worker."""
    from ray import tune

    def tell(record: Record) -> None:
        steps, value = record.progress(spec.steps)[-1]
        tune.report({OBJECTIVE: value, STEPS: steps})

    attempt(spec, out, config["number"], tell)
