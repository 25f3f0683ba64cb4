"""The checkpoints of one run: the last few and the best are kept, and a resume starts from the newest whole one."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nfdrl.agent import Agent, state_of
from nfdrl.envs.make import EnvLike
from nfdrl.errors import NfdrlError
from nfdrl.files import sync_folder
from nfdrl.laws import Method
from nfdrl.runs import checkpoint, layout
from nfdrl.runs.checkpoint import Saved
from nfdrl.runs.journal import Journal, Snapshot, check, remove_unused
from nfdrl.runs.layout import CHECKPOINTS, METRICS, REPLAY

KEEP = 3


class Checkpoints:
    """Writes the checkpoints of a run into `RUN/checkpoints` and the rows of its replay into `RUN/replay`."""

    def __init__(self, run: Path, *, keep: int = KEEP, resumed: Saved | None = None) -> None:
        self.run, self.keep, self.failures = run, keep, 0
        state = {} if resumed is None else resumed.state
        self.best: dict[str, Any] | None = state.get("run", {}).get("best")
        self._journal = Journal(run / REPLAY, None if resumed is None else resumed.replay)
        self._snapshots: dict[str, Snapshot] = {}

    def save(self, agent: Agent, *, regular: bool) -> bool:
        """Write a checkpoint; if that fails, warn and leave the earlier ones as they are."""
        try:
            self._write(agent, regular)
        except OSError as error:
            self.failures += 1
            say(
                f"warning: no checkpoint at step {agent.step:,} ({error.strerror or error}); earlier ones are intact "
                f"and training continues ({self.failures} failed so far)"
            )
            return False
        try:
            self._prune()
        except OSError as error:
            say(f"warning: old checkpoints could not be removed ({error.strerror or error})")
        return True

    def _write(self, agent: Agent, regular: bool) -> None:
        folder, name = self.run / CHECKPOINTS, layout.checkpoint_name(agent.step)
        fresh, final = folder / f".{name}.{os.getpid()}.tmp", folder / name
        folder.mkdir(parents=True, exist_ok=True)
        snapshot = self._journal.append(agent.trainer.replay)
        best = self._best(agent)
        saved = state_of(agent, snapshot)
        run = {"regular": regular, "metrics_bytes": synced_size(self.run / METRICS), "best": best}
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            checkpoint.write(fresh, replace(saved, state=saved.state | {"run": run}))
            if final.exists():
                final.rename(folder / f".{name}.{os.getpid()}.old")
            fresh.rename(final)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        sync_folder(folder)
        self.best, self._snapshots[name] = best, snapshot

    def _best(self, agent: Agent) -> dict[str, Any] | None:
        """The step of the best checkpoint so far, and the mean return of the last episodes there."""
        found = agent.trainer.mean_return
        if found is None or (self.best is not None and found <= self.best["mean_return"]):
            return self.best
        return {"step": agent.step, "mean_return": found}

    def _prune(self) -> None:
        """Remove all checkpoints but the last few and the best, and the replay's rows that nothing uses any more."""
        folder = self.run / CHECKPOINTS
        last = layout.checkpoints(self.run)[: self.keep]
        snapshots = [self._snapshot(path) for path in last]
        kept = {path.name for path in last} | ({layout.checkpoint_name(self.best["step"])} if self.best else set())
        for path in folder.iterdir():
            if path.name not in kept:
                shutil.rmtree(path)
        remove_unused(self.run / REPLAY, [snapshot for snapshot in snapshots if snapshot is not None])

    def _snapshot(self, path: Path) -> Snapshot | None:
        if path.name not in self._snapshots:
            try:
                snapshot = checkpoint.read(path).replay
            except NfdrlError:  # damaged since: nothing can be resumed from it
                snapshot = None
            if snapshot is None:
                return None
            self._snapshots[path.name] = snapshot
        return self._snapshots[path.name]


def newest(
    run: Path,
    env: EnvLike | None = None,
    *,
    method: Method | None = None,
    exact: bool = False,
    device: str | torch.device = "auto",
) -> tuple[Agent, Saved] | None:
    """The agent of a run's newest whole checkpoint, with its replay; None if the run has no checkpoint yet.

    With `exact`, checkpoints made by an interruption are skipped. Skipped checkpoints are set aside.
    """
    candidates, skipped = layout.checkpoints(run), []
    for path in candidates:
        try:
            saved = checkpoint.read(path)
            if exact and not saved.state.get("run", {}).get("regular"):
                say(f"{path.name} was made by an interruption: trying the one before it")
            else:
                if saved.replay is not None:
                    check(run / REPLAY, saved.replay, sizes_only=True)
                agent = Agent.load(path, env, method=method, device=device)
                break
        except (NfdrlError, OSError) as error:
            say(f"{path.name} cannot be used: {error}")
        skipped.append(path)
    else:
        if candidates:
            raise NfdrlError(f"no checkpoint in {str(run / CHECKPOINTS)!r} can be used")
        return None
    for passed in skipped:
        passed.rename(passed.with_name(f".{passed.name}.aside"))
    if skipped:
        say(f"resuming from {path.name}")
    return agent, saved


def synced_size(path: Path) -> int | None:
    """The size of a file after syncing it; None if there is no file."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def say(message: str) -> None:
    """Print a line for the user, on standard error."""
    print(f"nfdrl: {message}", file=sys.stderr, flush=True)
