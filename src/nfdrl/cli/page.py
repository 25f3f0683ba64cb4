"""`nfdrl page`: recorded episodes of agents, with their laws, in one file that any browser opens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nfdrl.errors import NfdrlError, check_at_least, check_at_most, check_seed
from nfdrl.files import check_file_name

MOST_EPISODES = 10_000  # a page holds them all


@dataclass(frozen=True)
class Page:
    """Record episodes and write a self-contained page: scrub through them and watch the laws move.

    The file loads nothing from anywhere: mail it, or put it on a site. Several runs of one environment are compared.

    Examples: `nfdrl page out/lake --out law.html`, `nfdrl page out/lake-s out/lake-c51 --episodes 20`.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Folders that `nfdrl train` or `Agent.save` wrote."""

    out: Path = Path("law.html")
    """The file, which must not exist."""

    episodes: int = 5
    """Number of episodes of each agent; the k-th is seeded with seed + k."""

    seed: int = 10_000
    """Seed of the first episode."""

    risk: str | None = None
    """What actions are chosen by: mean, cvar:0.1, …; by default as in training."""

    max_steps: int = 2_000
    """Episodes are cut off after this many steps."""

    frames: int = 150
    """At most this many pictures of an episode, evenly spread; 0 for none. A state on a map needs none."""

    figures: Path | None = None
    """Folder of figures, such as those of `nfdrl paper`, which then go into the page with their commands."""

    env: str | None = None
    """Another environment with the same observations and actions."""

    method: str | None = None
    """package.module:METHOD if a run's method is your own: loading by itself imports nothing."""

    overwrite: bool = False
    """Replace the file if it exists."""

    def run(self) -> int:
        if not self.runs:
            raise NfdrlError("name at least one RUN: a folder that `nfdrl train` or `Agent.save` wrote")
        check_at_least(1, episodes=self.episodes, max_steps=self.max_steps)
        check_at_most(MOST_EPISODES, episodes=self.episodes)
        check_at_least(0, frames=self.frames)
        check_seed(self.seed)
        if self.figures is not None and not self.figures.is_dir():
            raise NfdrlError(f"there is no folder {str(self.figures)!r:.80} of figures")
        if self.out.exists() and not self.overwrite:
            raise NfdrlError(f"{str(self.out)!r} exists: name another file, or pass --overwrite")
        check_file_name(self.out)
        from nfdrl.agent import Agent
        from nfdrl.laws import find_method
        from nfdrl.progress import Progress
        from nfdrl.reports import command_of
        from nfdrl.viewer.document import Options, record, write
        from nfdrl.viewer.folders import find_run

        method = None if self.method is None else find_method(self.method)
        found = [find_run(path) for path in self.runs]
        options = Options(self.episodes, self.seed, self.max_steps, self.frames, self.figures)
        with Progress() as bars:
            document = record(
                found,
                lambda path: Agent.load(path, self.env, method=method, risk=self.risk, replay=False),
                options,
                command_of("page", self),
                lambda steps: bars.track(steps, "playing"),
            )
        made = write(document, self.out)
        pictures = f", of which {made.frames / 1e6:.1f} MB are pictures" if made.frames else ""
        print(f"{made.episodes} episodes, {made.steps:,} steps: {self.out} ({made.total / 1e6:.1f} MB{pictures})")
        return 0
