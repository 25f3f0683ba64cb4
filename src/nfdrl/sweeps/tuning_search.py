"""Optuna's suggestions and ASHA's decisions, in Ray Tune's classes and with the memory of earlier drivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from nfdrl.sweeps.tuning import OBJECTIVE, STEPS, Listener
from nfdrl.sweeps.tuning_spec import Choice, Range, Settings, TuneSpec
from nfdrl.sweeps.tuning_trial import Record, drop_replays, read_record, write_record


class Suggestions(Searcher):
    """Optuna's suggestions, each with a folder that has its number.

    Trials that were cut off come first; those that have ended are known to Optuna.
    """

    def __init__(self, spec: TuneSpec, out: Path, known: Sequence[Record], listener: Listener) -> None:
        super().__init__(metric=OBJECTIVE, mode=spec.aim.mode)
        self._spec, self._out, self._listener = spec, out, listener
        self._space = spec.space()
        self._cut_off = [record for record in known if not record.ended]
        self._next = 1 + max((record.number for record in known), default=-1)
        self._numbers: dict[str, int] = {}  # by the names that Ray Tune gives trials
        seed = np.random.SeedSequence([spec.search_seed, self._next]).generate_state(1)[0]
        self._inner = OptunaSearch(
            {name: distribution(values) for name, values in self._space.items()},
            metric=OBJECTIVE,
            mode=spec.aim.mode,
            points_to_evaluate=[self._words(record.settings) for record in self._cut_off],
            sampler=TPESampler(seed=int(seed), constant_liar=True),  # running trials count as bad ones
        )
        for record in known:
            if record.status in ("finished", "stopped"):
                value = record.progress(spec.steps)[-1][1]
                self._inner.add_evaluated_point(self._words(record.settings), value)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The number of a trial that was cut off, or of a new one, which then has a record."""
        words = self._inner.suggest(trial_id)
        if words is None:
            return None
        if self._cut_off:
            record = self._cut_off.pop(0)
        else:
            record, self._next = Record(self._next, self._settings(words)), self._next + 1
            write_record(self._out, record)
        self._numbers[trial_id] = record.number
        self._listener.update(record)
        return {"number": record.number}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:  # noqa: ARG002
        """Show it; Optuna needs only the last."""
        self._listener.update(read_record(self._out, self._numbers[trial_id]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Take note of how a trial ended: by itself, or else by ASHA or because its workers died too often."""
        record = read_record(self._out, self._numbers[trial_id])
        if not record.ended:
            why = "its worker died too often" if error else "" if record.readings else "it ended without a reading"
            record = replace(record, status="failed" if why else "stopped", error=why)
            write_record(self._out, record)
            drop_replays(self._out, record.number)
        failed = record.status == "failed"
        self._inner.on_trial_complete(trial_id, None if failed else result, failed)
        self._listener.update(record)

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Ray Tune saves itself with all its parts, but records are what a new driver starts from."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Likewise."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """Never asked for."""
        raise NotImplementedError(checkpoint_path)

    def _words(self, settings: Settings) -> dict[str, Any]:
        """Settings as Optuna has them: choices by their words."""
        return {name: self._space[name].word(value) for name, value in settings.items()}

    def _settings(self, words: dict[str, Any]) -> Settings:
        return {name: self._space[name].value(word) for name, word in words.items()}


def distribution(values: Range | Choice) -> BaseDistribution:
    """Values as Optuna has them."""
    if isinstance(values, Choice):
        return CategoricalDistribution(list(values.values))
    if isinstance(values.low, int) and isinstance(values.high, int):
        return IntDistribution(values.low, values.high, log=values.log)
    return FloatDistribution(float(values.low), float(values.high), log=values.log)


def asha(spec: TuneSpec, known: Sequence[Record]) -> Any:
    """ASHA as it stands after the trials that have ended; those that were cut off report again themselves."""
    scheduler: Any = ASHAScheduler(
        time_attr=STEPS,
        metric=OBJECTIVE,
        mode=spec.aim.mode,
        max_t=spec.work,
        grace_period=spec.every if spec.asha.grace is None else spec.asha.grace,
        reduction_factor=spec.asha.reduction,
    )
    for record in known:
        if record.ended:
            trial = SimpleNamespace(trial_id=f"ended-{record.number}")
            scheduler.on_trial_add(None, trial)
            for steps, value in record.progress(spec.steps):
                scheduler.on_trial_result(None, trial, {STEPS: steps, OBJECTIVE: value})
            scheduler.on_trial_remove(None, trial)
    return scheduler
