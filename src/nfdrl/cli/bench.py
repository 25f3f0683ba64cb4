"""`nfdrl bench`: how long things take."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import tyro

from nfdrl.errors import check_seed, unknown_name
from nfdrl.files import check_writable
from nfdrl.reports import check_own, command_of, provenance

BENCHMARKS = ("losses", "train", "replay", "checkpoint", "atari", "minatar")


@dataclass(frozen=True)
class Bench:
    """Measure speed on this machine; write the numbers and a report.

    Example: `nfdrl bench losses --out out/bench --smoke`.
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """What to measure: `losses`, `replay`, `checkpoint`, or training next to peers: `train` (CartPole), `atari` (Pong),
    `minatar` (Breakout)."""

    out: Path = Path("out/bench")
    """Folder for the files."""

    seed: int = 0
    """Seed of the laws that are compared."""

    smoke: bool = False
    """Run the same code in its smallest form, in seconds."""

    def run(self) -> int:
        if self.name not in BENCHMARKS:
            raise unknown_name("benchmark", self.name, BENCHMARKS)
        check_seed(self.seed)
        check_own(self.out)
        check_writable(self.out)
        from nfdrl.bench.report import hand_over  # takes seconds to import: not for `--help`

        begun = time.perf_counter()
        measured = import_module(f"nfdrl.bench.{self.name}").main(self.out, self.smoke, self.seed)
        made_by = provenance(command_of("bench", self), time.perf_counter() - begun)
        hand_over(self.out, self.name, self.seed, measured, made_by)
        return 0
