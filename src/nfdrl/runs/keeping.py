"""The checkpoints of one run: the last few and the best are kept, and a resume starts from the newest whole one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nfdrl.agent import Agent, state_of
from nfdrl.envs.make import EnvLike
from nfdrl.errors import NfdrlError
from nfdrl.files import describing, sync_folder
from nfdrl.laws import Method
from nfdrl.progress import say
from nfdrl.runs import checkpoint, layout
from nfdrl.runs.checkpoint import Saved
from nfdrl.runs.journal import Journal, Snapshot, check_sizes, remove_unused, restore
from nfdrl.runs.layout import CHECKPOINTS, METRICS, REPLAY

KEEP = 3


class Checkpoints:
    """Writes the checkpoints of a run into `RUN/checkpoints` and the rows of its replay into `RUN/replay`."""

    def __init__(self, run: Path, *, keep: int = KEEP, resumed: Saved | None = None) -> None:
        self.run, self.keep, self.failures = run, keep, 0
        self.best: dict[str, Any] | None = None if resumed is None else resumed.run.get("best")
        self._journal = Journal(run / REPLAY, None if resumed is None else resumed.replay)
        self._snapshots: dict[str, Snapshot] = {}

    def save(self, agent: Agent, *, regular: bool, after: Callable[[], object] | None = None) -> bool:
        """Write a checkpoint; if that fails, warn and leave the earlier ones as they are.

        A checkpoint says how far metrics.csv goes: `after` writes the rows that are waiting.
        """
        try:
            if after is not None:
                after()
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
        layout.remove_checkpoint(fresh)
        try:
            checkpoint.write(fresh, replace(saved, state=saved.state | {"run": run}))
            if final.exists():
                final.rename(folder / f".{name}.{os.getpid()}.old")
            fresh.rename(final)
        except BaseException:
            layout.remove_checkpoint(fresh)
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
        found = layout.checkpoints(self.run)
        last = found[: self.keep]
        snapshots = [self._snapshot(path) for path in last]
        best = layout.checkpoint_name(self.best["step"]) if self.best else None
        if not (self.run / CHECKPOINTS).is_symlink():
            for path in [path for path in found[self.keep :] if path.name != best] + layout.unfinished(self.run):
                layout.remove_checkpoint(path)
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
    replay_on_disk: str = "",
) -> tuple[Agent, Saved] | None:
    """The agent of a run's newest whole checkpoint, with its replay; None if the run has no checkpoint yet.

    If no checkpoint has all of its replay, the newest one resumes with what is left of it. With `exact`, such
    checkpoints and those made by an interruption are refused. Skipped checkpoints are set aside.
    """
    candidates = layout.checkpoints(run)
    for path in candidates:
        loaded = _loaded(path, env, method, exact, device, replay_on_disk)
        if loaded is not None:
            break
    else:
        if not candidates:
            return None
        path, loaded = _salvaged(run, candidates, exact, env, method, device, replay_on_disk)
    skipped = candidates[: candidates.index(path)]
    for passed in skipped:
        _set_aside(passed)
    if skipped:
        say(f"resuming from {path.name}")
    return loaded


def _loaded(
    path: Path, env: EnvLike | None, method: Method | None, exact: bool, device: str | torch.device, on_disk: str
) -> tuple[Agent, Saved] | None:
    """The agent of a checkpoint that is whole, replay included; None, and a line that says why, if it is not."""
    try:
        saved = checkpoint.read(path)
        regular = saved.run.get("regular")
        if exact and not regular:
            say(f"{path.name} was made by an interruption: trying the one before it")
            return None
        if saved.replay is not None:
            check_sizes(layout.replay_of(path), saved.replay)
        return Agent.load(path, env, method=method, device=device, replay_on_disk=on_disk), saved
    except (NfdrlError, OSError) as error:
        say(f"{path.name} cannot be used: {error}")
        return None


def _salvaged(
    run: Path,
    candidates: list[Path],
    exact: bool,
    env: EnvLike | None,
    method: Method | None,
    device: str | torch.device,
    on_disk: str,
) -> tuple[Path, tuple[Agent, Saved]]:
    """The newest checkpoint that is whole but for its replay."""
    for path in [] if exact else candidates:
        try:
            saved = checkpoint.read(path)
            agent = Agent.load(path, env, method=method, device=device, replay=False, replay_on_disk=on_disk)
            lost = 0
            if saved.replay is not None:
                with describing("a replay", path):
                    lost = restore(agent.trainer.replay, layout.replay_of(path), saved.replay, partly=True)
        except (NfdrlError, OSError):
            continue
        left = len(agent.trainer.replay)
        say(f"{path.name} continues with {left:,} transitions of its replay: {lost:,} were lost")
        # All that is left is written anew, so that no later checkpoint names a damaged segment.
        return path, (agent, replace(saved, state=saved.state | {"replay": None}))
    hint = ": without --exact, a damaged replay would do" if exact else ""
    raise NfdrlError(f"no checkpoint in {str(run / CHECKPOINTS)!r} can be used{hint}")


def _set_aside(path: Path) -> None:
    aside = path.with_name(f".{path.name}.aside")
    layout.remove_checkpoint(aside)
    path.rename(aside)


def synced_size(path: Path) -> int | None:
    """The size of a file after syncing it; None if there is no file."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size
