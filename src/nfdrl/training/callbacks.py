"""What `learn(callbacks=[…])` takes: functions that are told of every event and may stop training.

A callback is called with the agent and an event, those that `agent.events` yields. It may return False, which stops
training, or an `Evaluation`, which is an event for all others. If it has a `begin(agent)` or a `close()`, these are
called before the first event and after the last, even after an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

from nfdrl.errors import NfdrlError, check_at_least, unknown_name
from nfdrl.settings import to_plain
from nfdrl.training.events import Evaluation, Event, Report
from nfdrl.training.loop import RECENT
from nfdrl.training.schedules import following
from nfdrl.training.trackers import TensorBoardTracker, scalars

Callback = Callable[[Any, Event], object]


def called(agent: Any, events: Iterator[Event], callbacks: Iterable[Callback]) -> Iterator[Event]:
    """The same events, each after all callbacks, and with it the evaluations that they made, which come first."""
    listening = list(callbacks)
    with ExitStack() as stack:
        for callback in listening:
            getattr(callback, "begin", lambda _: None)(agent)
            stack.callback(getattr(callback, "close", lambda: None))
        stack.enter_context(closing(events))  # type: ignore[type-var]
        for event in events:
            waiting, stop = [event], False
            for told in waiting:
                answers = [callback(agent, told) for callback in listening]
                stop = stop or any(answer is False for answer in answers)
                waiting += [answer for answer in answers if isinstance(answer, Evaluation)]
            yield from reversed(waiting)
            if stop:
                return


class Evaluate:
    """Evaluate the agent every `every` steps, or at the first event after, in environments of its own.

    Training is as it would be without. `env`, `episodes`, `seed` and `max_steps` are those of `Agent.evaluate`. If
    `best` names a folder, the agent is saved there whenever its mean return is the highest so far.
    """

    def __init__(
        self,
        every: int,
        episodes: int = 10,
        *,
        env: Any = None,
        best: str | Path | None = None,
        seed: int = 10_000,
        max_steps: int | None = None,
    ) -> None:
        check_at_least(1, every=every, episodes=episodes)
        self.every, self.episodes, self.env, self.best = every, episodes, env, None if best is None else Path(best)
        self.seed, self.max_steps = seed, max_steps
        self.highest: float | None = None
        self._due = 0.0

    def begin(self, agent: Any) -> None:
        """Count from where the agent is."""
        self._due = following(agent.step, self.every)

    def __call__(self, agent: Any, event: Event) -> Evaluation | None:
        if isinstance(event, Evaluation) or event.step < self._due:
            return None
        self._due = following(event.step, self.every)
        found = agent.evaluate(self.episodes, self.seed, env=self.env, max_steps=self.max_steps, progress=False)
        best = self.highest is None or found.mean > self.highest
        if best:
            self.highest = found.mean
            if self.best is not None:
                self._save(agent, self.best)
        extremes = float(found.returns.min()), float(found.returns.max())
        return Evaluation(
            event.step, self.episodes, found.mean, found.std, *extremes, float(found.lengths.mean()), best
        )

    def _save(self, agent: Any, folder: Path) -> None:
        """Save the agent; a full disk is no reason to stop."""
        try:
            agent.save(folder)
        except OSError as error:
            warnings.warn(f"the best agent could not be saved in {folder} ({error.strerror or error})", stacklevel=2)


class StopAt:
    """Stop once the mean return of an `Evaluate`, or of the last 100 training episodes, is at least `mean_return`."""

    def __init__(self, mean_return: float, of: Literal["evaluation", "training"] = "evaluation") -> None:
        if of not in ("evaluation", "training"):
            raise unknown_name("return to stop at", of, ("evaluation", "training"))
        self.mean_return, self.of = float(mean_return), of

    def __call__(self, agent: Any, event: Event) -> bool:  # noqa: ARG002
        if self.of == "evaluation":
            return not (isinstance(event, Evaluation) and event.mean >= self.mean_return)
        known = isinstance(event, Report) and event.episodes >= RECENT and event.episode_return is not None
        return not (known and event.episode_return >= self.mean_return)  # type: ignore[union-attr, operator]


class TensorBoard:
    """Write reports and evaluations for TensorBoard, into `folder`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def begin(self, agent: Any) -> None:
        """Open the file; what an earlier run wrote after this step is hidden."""
        self._tracker = TensorBoardTracker(self.folder, agent.step)

    def __call__(self, agent: Any, event: Event) -> None:  # noqa: ARG002
        self._tracker.track(event)

    def close(self) -> None:
        """Close the file."""
        self._tracker.close()


class WeightsAndBiases:
    """Log reports and evaluations to Weights & Biases, with all settings of the run."""

    def __init__(self, project: str, name: str | None = None) -> None:
        try:
            import wandb
        except ModuleNotFoundError:
            raise NfdrlError('Weights & Biases is not installed: pip install "nfdrl[wandb]"') from None
        self._wandb, self.project, self.name = wandb, project, name

    def begin(self, agent: Any) -> None:
        """Start a run there."""
        about = {"method": agent.method.name, "env": agent.source.name, "seed": agent.seed, "risk": str(agent.risk)}
        settings = about | {"train": to_plain(agent.config), "settings": to_plain(agent.method)}
        self._run = self._wandb.init(project=self.project, name=self.name, config=settings)

    def __call__(self, agent: Any, event: Event) -> None:  # noqa: ARG002
        numbers = scalars(event)
        if numbers:
            self._run.log(numbers, step=event.step)

    def close(self) -> None:
        """Finish the run there."""
        self._run.finish()
