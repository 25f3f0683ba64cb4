"""The `nfdrl` command: one small dataclass per verb, each with a `run` that does it and returns the exit code."""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from importlib.metadata import version
from itertools import groupby
from typing import Annotated, TextIO, get_args, get_origin, get_type_hints

import torch
import tyro

from nfdrl.cli.bench import Bench
from nfdrl.cli.compare import Compare
from nfdrl.cli.evaluate import Evaluate
from nfdrl.cli.export import Export
from nfdrl.cli.page import Page
from nfdrl.cli.paper import Paper
from nfdrl.cli.report import Report
from nfdrl.cli.settings import Settings
from nfdrl.cli.sweep import Sweep
from nfdrl.cli.train import Train
from nfdrl.cli.tune import Tune
from nfdrl.cli.watch import Watch
from nfdrl.envs.watching import EnvironmentFailure
from nfdrl.errors import NfdrlError
from nfdrl.memory import is_out_of_memory
from nfdrl.progress import say

__all__ = ["main"]

ABOUT = """Distributional reinforcement learning with normalizing-flow return laws.

verbs and an example of each:
  nfdrl train --method nfdrl-s --env CartPole-v1 --steps 100000 --out out/cartpole
  nfdrl evaluate out/cartpole --episodes 100
  nfdrl export out/cartpole --onnx cartpole.onnx
  nfdrl paper list               the experiments
  nfdrl paper theory             one figure of the paper, into out/paper/theory
  nfdrl paper all --smoke        all of them, in small
  nfdrl compare --envs mdp3,FrozenLake-v1 --methods nfdrl-s,c51 --out out/compare
  nfdrl sweep smoke --out out/smoke          many runs, on all cores or on a cluster
  nfdrl tune tune-cartpole       search for settings; the best is a preset for `nfdrl train`
  nfdrl report out --out out/report      a table and learning curves of all runs in a folder
  nfdrl settings nfdrl-s         every setting of a method; without a name, those of training
  nfdrl page out/cartpole --out law.html     episodes and their laws, in one file for any browser
  nfdrl watch out                            the same page, live, for all runs in a folder
  nfdrl bench losses --out out/bench

`nfdrl VERB --help` explains a verb; `nfdrl --version` prints the version."""

INTERRUPTED = 130  # 128 + SIGINT, as in shells

Verbs = Train | Evaluate | Export | Paper | Compare | Sweep | Tune | Report | Page | Watch | Settings | Bench
Verb = (
    Annotated[Train, tyro.conf.subcommand("train", description=inspect.getdoc(Train))]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate", description=inspect.getdoc(Evaluate))]
    | Annotated[Export, tyro.conf.subcommand("export", description=inspect.getdoc(Export))]
    | Annotated[Paper, tyro.conf.subcommand("paper", description=inspect.getdoc(Paper))]
    | Annotated[Compare, tyro.conf.subcommand("compare", description=inspect.getdoc(Compare))]
    | Annotated[Sweep, tyro.conf.subcommand("sweep", description=inspect.getdoc(Sweep))]
    | Annotated[Tune, tyro.conf.subcommand("tune", description=inspect.getdoc(Tune))]
    | Annotated[Report, tyro.conf.subcommand("report", description=inspect.getdoc(Report))]
    | Annotated[Settings, tyro.conf.subcommand("settings", description=inspect.getdoc(Settings))]
    | Annotated[Page, tyro.conf.subcommand("page", description=inspect.getdoc(Page))]
    | Annotated[Watch, tyro.conf.subcommand("watch", description=inspect.getdoc(Watch))]
    | Annotated[Bench, tyro.conf.subcommand("bench", description=inspect.getdoc(Bench))]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns 0, 2 for a user's mistake, 1 if the machine or the environment gave out, 130 if interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        print(f"nfdrl {version('nfdrl')}")
        return 0
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show ± must not end a run
    for word in words:
        if not word.isascii() and word.encode("utf-8", "replace").decode() != word:
            say(f"error: {word!r:.200} is not text in UTF-8: give it another name")
            return 2
    try:
        verb = parsed(words or ["--help"])
        prepare_torch()
        code = verb.run()
        flush_output()
        return code
    except NfdrlError as error:
        say(f"error: {error}")
        return 1 if isinstance(error, EnvironmentFailure) else 2
    except OSError as error:
        where = "" if error.filename is None else f": {str(error.filename)!r}"
        say(f"error: {error.strerror or error}{where}")
        drop_output()
        return 1
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        say("error: out of memory: make the replay (buffer_size), batches (batch_size) or the network smaller")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED


def flush_output() -> None:
    """Print what is waiting, if there is anywhere to print it: `nfdrl … >&-` has closed it."""
    stream: TextIO | None = sys.stdout
    if stream is not None:
        stream.flush()


def drop_output() -> None:
    """Discard what cannot be printed, on a full disk or to a reader that has gone, so that it does not fail again."""
    try:
        flush_output()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parsed(words: Sequence[str]) -> Verbs:
    """The verb of a command line; a malformed one exits with 2, after one line that says why."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            verb: Verbs = tyro.cli(Verb, prog="nfdrl", description=ABOUT, args=gathered(words))
    except SystemExit as stop:
        if stop.code:
            say(f"error: {in_one_line(said.getvalue())}")
        flush_output()  # of --help
        raise
    return verb


def gathered(words: Sequence[str]) -> list[str]:
    """The words, with all values of an option after its first mention: of several mentions tyro reads only the last.

    >>> gathered(["train", "--set", "discount=0.9", "--seed", "3", "--set=double_q=true"])
    ['train', '--set', 'discount=0.9', 'double_q=true', '--seed', '3']
    """
    several = {
        f"--{name.replace('_', '-')}"
        for verb in get_args(Verbs)
        for name, kind in get_type_hints(verb).items()
        if get_origin(kind) is tuple
    }
    parts: dict[str | int, list[str]] = {}
    part: str | int = 0
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        option = name.replace("_", "-")
        if option in several:
            part = option
            parts.setdefault(part, [option]).extend([value] if equals else [])
        else:
            part = place if word.startswith("--") else part
            parts.setdefault(part, []).append(word)
    return [word for some in parts.values() for word in some]


def in_one_line(box: str) -> str:
    """What tyro says in a box: its first part, the nearest option, and where to read on.

    >>> in_one_line("│ Unrecognized options: --sed │\\n│ ──── │\\n│ Perhaps you meant: │\\n│ --seed INT │")
    'unrecognized options: --sed: did you mean --seed? (nfdrl --help)'
    >>> in_one_line("│ Unrecognized options: --fat │\\n│ ──── │\\n│ Perhaps you meant: │\\n│ --fast, --no-fast │")
    'unrecognized options: --fat: did you mean --fast? (nfdrl --help)'
    """
    lines = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    parts = [
        [line for line in group if line]
        for rule, group in groupby(lines, lambda line: line.startswith("──"))
        if not rule
    ]
    first = " ".join(parts[0] if parts else ["malformed command"])[:400].rstrip(".:")
    near = [part[1].split()[0].rstrip(",") for part in parts if part[:1] == ["Perhaps you meant:"] and len(part) > 1]
    hint = f": did you mean {near[0]}?" if near else ""
    return f"{first[:1].lower()}{first[1:]}{hint} (nfdrl --help)"


def prepare_torch() -> None:
    """At most two threads unless OMP_NUM_THREADS is set, and no denormal numbers: faster for small networks."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(2, os.cpu_count() or 1))
    torch.set_flush_denormal(True)
