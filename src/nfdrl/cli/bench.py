"""`nfdrl bench`: how long things take."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro

from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.files import check_writable

BENCHMARKS = ("losses", "train", "replay", "checkpoint", "atari", "minatar")


@dataclass(frozen=True)
class Bench:
    """Measure speed on this machine and write the numbers with a report.

    Example: `nfdrl bench losses --out out/bench --smoke`.
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """What to measure: `losses`, `replay`, `checkpoint`, or training beside peers: `train` (CartPole), `atari` (Pong),
    `minatar` (Breakout)."""

    out: Path = Path("out/bench")
    """Folder of the files."""

    seed: int = 0
    """Seed of the laws that are compared."""

    smoke: bool = False
    """The smallest run that goes through the same code, in seconds."""

    def run(self) -> int:
        """Do what was asked; the exit code."""
        if self.name not in BENCHMARKS:
            raise unknown_name("benchmark", self.name, BENCHMARKS)
        module = f"nfdrl.bench.{self.name}"
        if find_spec(module) is None:
            raise NfdrlError(f"benchmark {self.name!r} is planned, not available yet")
        check_writable(self.out)
        import_module(module).main(out=self.out, smoke=self.smoke, seed=self.seed)
        return 0
