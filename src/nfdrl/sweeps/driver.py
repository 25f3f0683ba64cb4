"""The driver of a sweep: hands its trials to Ray, which runs them where there is room and again where a worker dies."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import urlsplit

from nfdrl.errors import NfdrlError, check_at_least
from nfdrl.memory import gigabytes
from nfdrl.progress import say
from nfdrl.runs.claim import claimed
from nfdrl.sweeps.trial import Resources, Trial, attempt, check_begun, ended, write_failure

OBJECTS = 100 << 20  # bytes of Ray's object store: trials pass settings and results, nothing larger
STARTS = 5  # of Ray on this machine: it gives up after 30 s, which a busy machine may need several times
MEMORY_UNIT = 256 << 20  # memory is asked for in multiples, so that like trials can share a worker
RETRIES = 10  # of a trial whose worker or machine died
POLL = 1.0  # seconds
ANSWER = 10.0  # seconds that a machine has to answer: Ray itself would try for minutes
FOUND_BY_RAY = ("auto", "local")  # addresses without a machine
SETTINGS = {  # what to change where there is too little of something
    "CPU": "resources.cpus",
    "GPU": "resources.gpus",
    "memory": "buffer_size, or resources.memory_gb",
}

Outcome = dict[str, Any]


class Listener(AbstractContextManager["Listener"], Protocol):
    """Something that is told how each trial ended, and when it may look around, as long as the folder is locked."""

    def end(self, trial: Trial, outcome: Outcome, *, earlier: bool = False) -> None:
        """A trial has ended, now or in an earlier session."""

    def tick(self) -> None:
        """Time has passed."""


def imported_ray() -> ModuleType:
    """Ray, without its statistics of use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming default, without a warning
    try:
        import ray
    except ImportError:
        raise NfdrlError("sweeps run on Ray, which is not installed: pip install nfdrl[sweep]") from None
    return ray


@dataclass(frozen=True)
class Place:
    """Where trials run: on this machine, or on the Ray cluster at an address."""

    address: str | None = None
    cpus: int | None = None  # of this machine; none for all that this process may use

    def __post_init__(self) -> None:
        if self.address is not None and self.cpus is not None:
            raise NfdrlError("cpus are those of this machine: with an address, the cluster says how many it has")
        if self.cpus is not None:
            check_at_least(1, cpus=self.cpus)
        if self.address is not None and self.address not in FOUND_BY_RAY:
            machine_at(self.address)

    @property
    def cores(self) -> int:
        """Those of this machine that may be used."""
        return self.cpus or len(os.sched_getaffinity(0))

    @contextmanager
    def open(self) -> Iterator[ModuleType]:
        """Ray, connected; a Ray that was started here ends here."""
        ray = imported_ray()
        common = {"log_to_driver": False, "logging_level": "ERROR"}
        local = {"address": "local", "num_cpus": self.cores, "include_dashboard": False, "object_store_memory": OBJECTS}
        if self.address is not None and self.address not in FOUND_BY_RAY:
            check_answer(self.address)
        if self.address is None:
            started(lambda: ray.init(**common, **local), "on this machine", STARTS)
        else:
            started(lambda: ray.init(**common, address=self.address), f"at {self.address!r}", 1)
        try:
            with interrupted_by_signals():  # from here on: Ray has handlers of its own, which end the process
                yield ray
        finally:
            ray.shutdown()


def started(start: Callable[[], object], where: str, attempts: int) -> None:
    """Start Ray or connect to it; a Ray of our own may take longer than it gives itself on a busy machine."""
    try:
        start()
    except Exception as error:  # what Ray raises has no common class
        said = " ".join(str(error).split())[:300]
        if attempts <= 1:
            raise NfdrlError(f"Ray cannot be reached {where}: {said}") from None
        say(f"Ray has not started yet, trying again: {said}")
        started(start, where, attempts - 1)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does, unless they are ignored, as under nohup."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def machine_at(address: str) -> tuple[str, int]:
    """The host and the port of an address.

    >>> machine_at("ray://head:10001"), machine_at("10.0.0.1:6379")
    (('head', 10001), ('10.0.0.1', 6379))
    """
    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        if parts.scheme in ("", "ray") and parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:  # a port that is no number
        pass
    raise NfdrlError(f"address must be auto, HOST:PORT or ray://HOST:PORT, got {address!r}")


def check_answer(address: str) -> None:
    """Refuse an address at which nobody listens."""
    try:
        socket.create_connection(machine_at(address), ANSWER).close()
    except OSError as error:
        raise NfdrlError(
            f"no Ray answers at {address!r} ({error.strerror or error}): is it running, and is this the port of its "
            "head, 6379, or of its clients, ray://HOST:10001?"
        ) from None


def run_sweep(
    trials: Sequence[Trial], out: Path, resources: Resources, place: Place, listener: Listener, *, force: bool = False
) -> None:
    """Run all trials that are not finished, failed ones again; those of an earlier spec in the folder stay."""
    with claimed(out, force=force):
        check_begun(trials, out)
        outcomes = {trial: ended(trial, out) or {} for trial in trials}
        done = {trial: found for trial, found in outcomes.items() if "result" in found}
        waiting = [trial for trial in trials if trial not in done]
        with listener:
            for trial, found in done.items():
                listener.end(trial, found, earlier=True)
            if waiting:
                needs = demands(waiting, resources)
                with place.open() as ray:
                    check_room(ray, needs, resources, place)
                    say(f"trials to run: {len(waiting)}" + (f"; done before: {len(done)}" if done else ""))
                    _run(ray, needs, out.absolute(), resources, listener)


def demands(trials: Sequence[Trial], resources: Resources) -> list[tuple[Trial, int]]:
    """Each trial with the bytes of memory that it asks for."""
    found: dict[tuple[object, ...], int] = {}
    for trial in trials:
        if trial.cell not in found:
            asked = trial.memory() if resources.memory_gb is None else int(resources.memory_gb * 1e9)
            found[trial.cell] = -(-asked // MEMORY_UNIT) * MEMORY_UNIT
    return [(trial, found[trial.cell]) for trial in trials]


def check_room(ray: ModuleType, needs: Sequence[tuple[Trial, int]], resources: Resources, place: Place) -> None:
    """Refuse what no machine can hold; a cluster may still grow, so there it is only said."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    trial, memory = max(needs, key=lambda need: need[1])
    asked = {"CPU": resources.cpus, "GPU": resources.gpus, "memory": memory}
    if any(all(has.get(kind, 0) >= amount for kind, amount in asked.items()) for has in machines):
        return
    most = {kind: max((has.get(kind, 0) for has in machines), default=0) for kind in asked}
    short = [kind for kind in asked if most[kind] < asked[kind]] or list(asked)  # no machine has all of it together
    line = f"{trial.name} needs {_amounts(asked, short)}, and no machine has more than {_amounts(most, short)}"
    if place.address is None:
        raise NfdrlError(f"{line}: make {' and '.join(SETTINGS[kind] for kind in short)} smaller")
    say(f"{line}: it waits until there is a larger one")


def _amounts(of: Mapping[str, float], kinds: Sequence[str]) -> str:
    words = {"CPU": f"{of['CPU']:g} cores", "GPU": f"{of['GPU']:g} GPUs"}
    words["memory"] = f"{gigabytes(int(of['memory']))} of memory"
    return " and ".join(words[kind] for kind in kinds)


def _run(
    ray: ModuleType, needs: Sequence[tuple[Trial, int]], out: Path, resources: Resources, listener: Listener
) -> None:
    task = ray.remote(max_retries=RETRIES)(attempt)
    running: dict[Any, Trial] = {}
    for trial, memory in needs:
        asked: Mapping[str, Any] = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "memory": memory}
        running[task.options(name=trial.name, **asked).remote(trial, out, resources)] = trial
    try:
        while running:
            ready, _ = ray.wait(list(running), num_returns=len(running), timeout=POLL)
            for ref in ready:
                trial = running.pop(ref)
                listener.end(trial, _outcome(ray, ref, trial, out))
            listener.tick()
    finally:
        for ref in running:  # they continue from their checkpoints when the sweep does
            ray.cancel(ref, force=True)


def _outcome(ray: ModuleType, ref: Any, trial: Trial, out: Path) -> Outcome:
    try:
        return dict(ray.get(ref))
    except ray.exceptions.RayError as error:  # workers or machines died too often
        return write_failure(trial, out, error)
