"""`nfdrl sweep`: a grid of trials on this machine's cores or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nfdrl.files import check_writable
from nfdrl.memory import gigabytes
from nfdrl.progress import Progress, print_table, say
from nfdrl.provenance import hardware
from nfdrl.reports import check_own, command_of, provenance

if TYPE_CHECKING:
    from nfdrl.sweeps.driver import Place
    from nfdrl.sweeps.estimate import Cost
    from nfdrl.sweeps.trial import Resources, Trial

INTERRUPTED = 130  # 128 + SIGINT, as in shells


@dataclass(frozen=True)
class Sweep:
    """Run methods × environments × seeds × settings, as a spec says, on all cores or on a Ray cluster.

    Each trial is a run in its own folder of --out. After a crash, a kill or Ctrl-C, the same command continues:
    finished trials are not run again, others resume from their checkpoints, and failed ones are tried once more.
    Writes sweep.csv and sweep.json; `nfdrl report OUT` makes tables and figures of the runs.

    Example: `nfdrl sweep smoke --out out/smoke`.
    """

    spec: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SPEC.toml")]
    """A TOML file (docs/sweeps.md), or the name of one that nfdrl has: control, minatar, minatar-short, paper-atari5,
    smoke, truth."""

    out: Path | None = None
    """Folder of the sweep, on storage that all machines share; by default out/sweep/SPEC."""

    address: str | None = None
    """A Ray cluster, `auto` for the one of this machine or `ray://HOST:10001`; by default this machine alone."""

    only: tuple[str, ...] = ()
    """Run a part of it: trials whose folders fit a pattern, such as 'CartPole-v1/*' or '*/dqn/*'."""

    cpus: int | None = None
    """How many of this machine's cores to use; by default all."""

    estimate: bool = False
    """Say what it will cost, from a short run of each cell on this machine, and run nothing."""

    force: bool = False
    """Take the folder from a driver on another machine that is no longer there."""

    def run(self) -> int:
        from nfdrl.sweeps.board import Board
        from nfdrl.sweeps.driver import Place, imported_ray, run_sweep
        from nfdrl.sweeps.spec import check_trials, find_spec, read_spec, select
        from nfdrl.sweeps.trial import ended

        path = find_spec(self.spec)
        spec, out = read_spec(path), self.out or Path("out/sweep") / path.stem
        every, place = spec.trials(), Place(self.address, self.cpus)
        trials = select(every, self.only) if self.only else every
        check_trials(trials)  # a part needs only the packages of its own environments
        if self.estimate:
            print_estimate(trials, spec.resources, place)
            return 0
        imported_ray()
        check_own(out, "sweep", files=())
        check_writable(out)
        chosen = set(trials)
        trials = [one for one in every if one in chosen or "result" in (ended(one, out) or {})]  # done ones stay listed
        console = Console(stderr=True)
        board = Board(trials, out, provenance(command_of("sweep", self)), console)
        try:
            run_sweep(trials, out, spec.resources, place, board, force=self.force)
        except KeyboardInterrupt:
            done = sum("result" in (ended(one, out) or {}) for one in trials)  # the last may not have been heard of
            say(f"stopped with {done} of {len(trials)} trials done; the same command continues")
            return INTERRUPTED
        print_table(board.summary())
        for trial in board.failed:
            say(f"failed: {trial.name}: {board.outcomes[trial.name]['error']}")
        print(f"{board.done} of {len(trials)} trials done; written: {out}")
        return 1 if board.failed else 0


def print_estimate(trials: Sequence[Trial], resources: Resources, place: Place) -> None:
    """Measure every cell, and print what it and the whole will cost."""
    from nfdrl.sweeps.board import duration
    from nfdrl.sweeps.estimate import estimate

    with Progress() as bars:
        costs = list(estimate(trials, resources, lambda cells: bars.track(cells, "measuring cells")))
    names = ("trials", "time each", "CPU hours", *(("GPU hours",) if resources.gpus else ()), "memory", "disk")
    table = Table("environment", "method", "settings")
    for name in names:
        table.add_column(name, justify="right")
    for cost in costs:
        one, words = cost.trial, ", ".join(f"{name}={text}" for name, text in cost.trial.varied)
        hours = [cost.cpu_hours]
        hours += [resources.gpus * cost.trials * cost.seconds / 3600] if resources.gpus else []
        cell, sizes = map(escape, (one.env, one.method, words)), (cost.memory, cost.trials * cost.rest)
        spent = duration(cost.seconds), *(f"{number:,.3g}" for number in hours)
        table.add_row(*cell, str(cost.trials), *spent, *map(gigabytes, sizes))
    print_table(table)
    print(in_total(costs, resources, place))


def in_total(costs: Sequence[Cost], resources: Resources, place: Place) -> str:
    """The cost of all trials, in a line."""
    from nfdrl.sweeps.board import duration

    spent = sum(cost.trials * cost.seconds for cost in costs)
    on_gpu = f", {resources.gpus * spent / 3600:,.4g} GPU hours" if resources.gpus else ""
    slots = max(1, int(place.cores / resources.cpus))
    device = f"{resources.threads} thread(s) of {hardware()['cpu']}" + (" and a GPU" if resources.gpus else "")
    return (
        f"{sum(cost.trials for cost in costs)} trials: {sum(cost.cpu_hours for cost in costs):,.4g} CPU hours{on_gpu}, "
        f"{duration(spent / slots)} with {slots} at once; up to {gigabytes(max(cost.memory for cost in costs))} of "
        f"memory and {gigabytes(max(cost.replay for cost in costs))} of disk per running trial, "
        f"{gigabytes(sum(cost.trials * cost.rest for cost in costs))} of disk in the end. "
        f"Measured on {device}; final evaluations come on top"
    )
