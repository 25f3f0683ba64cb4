"""`nfdrl tune`: search for settings, on this machine's cores or on a Ray cluster."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from nfdrl.files import check_writable
from nfdrl.progress import print_table, say
from nfdrl.reports import check_own, command_of, provenance

INTERRUPTED = 130  # 128 + SIGINT, as in shells


@dataclass(frozen=True)
class Tune:
    """Search for good settings with Ray Tune: Optuna suggests them, ASHA stops those that fall behind.

    Each trial trains one setting with every seed of the spec, as ordinary runs in its own folder of --out. The best is
    written to best.toml, which `nfdrl train --preset` reads; trials.csv, trials.json, figure.png and figure.svg show
    all of them. After a crash, a kill or Ctrl-C, the same command continues. More trials in the spec extend it.

    Example: `nfdrl tune tune-smoke --out out/tune`.
    """

    spec: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SPEC.toml")]
    """A TOML file (docs/tuning.md), or the name of one that nfdrl has: tune-cartpole, tune-smoke."""

    out: Path | None = None
    """Folder of the tuning, on storage that all machines share; by default out/tune/SPEC."""

    address: str | None = None
    """`auto` for the Ray cluster of this machine, or HOST:PORT; by default this machine alone."""

    cpus: int | None = None
    """How many of this machine's cores to use; by default all."""

    smoke: bool = False
    """Search the same settings in seconds: 4 trials of a few hundred steps."""

    force: bool = False
    """Take the folder from a driver on another machine that is no longer there."""

    def run(self) -> int:
        from nfdrl.sweeps.driver import Place
        from nfdrl.sweeps.spec import find_spec
        from nfdrl.sweeps.tuning import check_imports, run_tuning
        from nfdrl.sweeps.tuning_board import BEST, TuneBoard, best_of, table_of, write_tables
        from nfdrl.sweeps.tuning_spec import read_tune_spec

        path = find_spec(self.spec)
        spec, out = read_tune_spec(path), self.out or Path("out/tune") / path.stem
        if self.smoke:
            spec = spec.smaller()
        place = Place(self.address, self.cpus)
        check_imports()
        check_own(out, "trials")
        check_writable(out)
        board = TuneBoard(spec, out, Console(stderr=True))
        try:
            with board:
                records = run_tuning(spec, out, place, board, force=self.force)
        except KeyboardInterrupt:
            ended = sum(record.ended for record in board.records.values())
            say(f"stopped with {ended} of {spec.trials} trials over; the same command continues")
            return INTERRUPTED
        names = write_tables(spec, out, records, provenance(command_of("tune", self)))
        print_table(table_of(spec, records))
        best = best_of(spec, records)
        if best is None:
            say(f"no trial trained to the end: see {out / 'trials.csv'}")
            return 1
        board.write_best(best)
        print(f"best: trial {best.number}; written to {out}: {', '.join([BEST, *names])}")
        words = ["nfdrl", "train", "--preset", str(out / BEST), "--env", spec.env, "--seed", str(spec.fresh_seed())]
        words += [] if spec.risk == "mean" else ["--risk", spec.risk]
        print(f"train it with a seed that did not choose it: {shlex.join(words)}")
        return 0
