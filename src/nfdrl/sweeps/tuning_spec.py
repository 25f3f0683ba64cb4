"""The spec of a tuning: a TOML file that names what is trained, which settings are searched, and what for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nfdrl.envs.make import source_of
from nfdrl.errors import NfdrlError, check_at_least, check_at_most, check_seed
from nfdrl.files import read_toml
from nfdrl.laws import find_method
from nfdrl.risk import parse_risk
from nfdrl.runs.session import CHECKPOINT_EVERY, Upkeep
from nfdrl.settings import apply_settings, read_word, words_of
from nfdrl.sweeps.spec import MOST_TRIALS, Seeds, flattened, listed, naming, read_table
from nfdrl.sweeps.trial import Resources, TrainTrial
from nfdrl.sweeps.tuning_objectives import Objective, ObjectiveName, check_objective
from nfdrl.training.presets import FILE, PresetFile, find_preset, read_preset

Settings = dict[str, Any]  # by the paths that --set takes

REPORTS = 10  # evaluations of a run where the spec does not say
RISK = "risk"  # may stand among the settings


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included: whole ones if both are."""

    low: int | float
    high: int | float
    log: bool = False  # whether their logarithms are drawn evenly

    def __post_init__(self) -> None:
        if not -float("inf") < self.low < self.high < float("inf"):
            raise NfdrlError(f"low must be less than high, got {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise NfdrlError(f"with log, low must be positive, got {self.low}")

    @property
    def ends(self) -> list[Any]:
        """The values that must be possible."""
        return [self.low, self.high]

    def has(self, value: Any) -> bool:
        """Whether the search can find this value."""
        return type(value) in (int, float) and self.low <= value <= self.high

    def word(self, value: Any) -> Any:
        """A value as it is searched."""
        return value

    def value(self, word: Any) -> Any:
        """The value of what was found."""
        return word


@dataclass(frozen=True)
class Choice:
    """One of several values, by the words that `--set` takes."""

    values: Mapping[str, Any]

    @property
    def ends(self) -> list[Any]:
        """The values that must be possible."""
        return list(self.values.values())

    def has(self, value: Any) -> bool:
        """Whether the search can find this value."""
        return value in self.ends

    def word(self, value: Any) -> str:
        """The word of a value."""
        return next(word for word, known in self.values.items() if known == value)

    def value(self, word: str) -> Any:
        """The value of a word."""
        return self.values[word]


@dataclass(frozen=True)
class Asha:
    """When trials are stopped: at `grace` steps, and at each multiple by `reduction`, all but the best part of them."""

    grace: int | None = None  # steps, over all seeds; none for one evaluation
    reduction: float = 3.0  # one in so many goes on

    def __post_init__(self) -> None:
        check_at_least(1, grace=1 if self.grace is None else self.grace)
        if not 1 < self.reduction < 1e6:
            raise NfdrlError(f"reduction must be greater than 1, got {self.reduction}")


@dataclass(frozen=True)
class TuneSpec:
    """All that a spec says."""

    env: str = ""  # as for `nfdrl train --env`
    method: str | None = None  # as for `nfdrl train --method`; none for the preset's
    preset: str = "default"
    steps: int = 0  # of each seed
    set: Any = field(default_factory=dict)  # settings of all trials, as for `nfdrl train --set`; and `risk`
    search: Any = field(default_factory=dict)  # settings that are searched
    objective: ObjectiveName = "return"
    seeds: Seeds = 1  # on which settings are chosen; each trial runs them one after the other
    trials: int = 20
    evaluate: int = 20  # episodes of an evaluation
    evaluate_every: int = 0  # steps; 0 for a tenth of the run
    checkpoint_every: int = CHECKPOINT_EVERY
    search_seed: int = 0  # of the search itself
    asha: Asha = field(default_factory=Asha)
    resources: Resources = field(default_factory=Resources)

    def __post_init__(self) -> None:
        check_at_least(1, trials=self.trials, checkpoint_every=self.checkpoint_every)
        check_at_least(0, steps=self.steps, evaluate_every=self.evaluate_every)
        check_at_most(MOST_TRIALS, trials=self.trials)
        check_seed(self.search_seed)
        listed(self.seeds)
        Objective(self.objective, self.evaluate)

    @property
    def every(self) -> int:
        """Steps between two evaluations."""
        return self.evaluate_every or max(1, self.steps // REPORTS)

    @property
    def work(self) -> int:
        """The steps of a trial that is not stopped."""
        return self.steps * len(listed(self.seeds))

    @property
    def aim(self) -> Objective:
        return Objective(self.objective, self.evaluate)

    def space(self) -> dict[str, Range | Choice]:
        """What is searched, by path."""
        return _space(self.search)

    @property
    def risk(self) -> str:
        """What actions are chosen by."""
        return str(flattened(self.set, "set").get(RISK, "mean"))

    def settled(self) -> TuneSpec:
        """The same with all that trials share in `set`: the settings of a preset file, then those of brackets."""
        file = read_preset(Path(self.preset)) if self.preset.endswith(FILE) else PresetFile(preset=self.preset)
        name, given = read_word(file.method if self.method is None else self.method)
        brackets = {key: "none" if value is None else value for key, value in given.items()}
        merged = {**flattened(file.set, "set"), **brackets, **flattened(self.set, "set")}
        return replace(self, preset=file.preset, method=name, set=merged)

    def base(self) -> PresetFile:
        """What all trials share, as a preset."""
        shared = self.settled()
        fixed = {name: value for name, value in shared.set.items() if name != RISK}
        return PresetFile(fixed, shared.preset, str(shared.method), self.steps)

    def trial(self, name: str, seed: int, searched: Settings) -> TrainTrial:
        """The run of one seed with these settings."""
        base = self.base()
        return TrainTrial(
            name,
            base.method,
            self.env,
            seed,
            (),
            preset=base.preset,
            words=tuple(words_of({**base.set, **searched})),
            risk=self.risk,
            steps=self.steps,
            evaluate=self.evaluate,
            evaluate_every=self.every,
            checkpoint_every=self.checkpoint_every,
            keep=1,
            keep_replay=False,
        )

    def smaller(self) -> TuneSpec:
        """The same in seconds: 4 trials of a few hundred steps."""
        small = {**flattened(self.set, "set"), "learning_starts": 100, "report_every": 100}
        space = {name: value for name, value in self.search.items() if name not in small}
        return replace(
            self, steps=400, seeds=1, trials=4, evaluate=2, evaluate_every=200, checkpoint_every=200,
            asha=replace(self.asha, grace=None), set=small, search=space,
        )  # fmt: skip

    def check(self) -> None:
        """Refuse what no trial could run with, before any is started."""
        if not self.env:
            raise NfdrlError('env is missing: name one, env = "CartPole-v1"')
        if not self.steps:
            raise NfdrlError("steps are missing: how long each run trains")
        space = self.space()
        if not space:
            raise NfdrlError("search is empty: name at least one setting, learning_rate = { low = 1e-4, high = 1e-2 }")
        if self.asha.grace is not None and self.asha.grace > self.work:
            raise NfdrlError(
                f"grace of asha must be at most the {self.work:,} steps of a trial, got {self.asha.grace:,}"
            )
        if self.every > self.steps:
            raise NfdrlError(f"evaluate_every must be at most steps, got {self.every:,} and {self.steps:,}")
        Upkeep(self.checkpoint_every, 1, self.evaluate, evaluate_every=self.every)
        source_of(self.env)
        base, named = self.base(), find_preset(self.base().preset)
        parse_risk(self.risk)
        twice = [name for name in space if name in flattened(self.set, "set")]
        if twice:
            raise NfdrlError(f"{twice[0]} is both set and searched: leave it out of one")
        method = find_method(base.method, named.adapt)
        config, method = apply_settings(words_of(base.set), named.config, method)
        for name, values in space.items():
            for value in values.ends:
                apply_settings(words_of({name: value}), config, method)
        check_objective(self.aim, self.env, list(space))

    def fresh_seed(self) -> int:
        """A seed that has no part in the choice."""
        return max(listed(self.seeds)) + 1

    def plain(self) -> dict[str, Any]:
        """All that its trials depend on, as JSON: what may not change when it is continued."""
        said = asdict(replace(self, seeds=tuple(listed(self.seeds)), evaluate_every=self.every))
        return {name: value for name, value in said.items() if name not in ("trials", "resources", "search_seed")}


def read_tune_spec(path: Path) -> TuneSpec:
    """The spec in a file, every key of it checked."""
    table = read_toml(path)
    asha = read_table(Asha, table.pop("asha", {}), f"asha of {path.name}")
    resources = read_table(Resources, table.pop("resources", {}), f"resources of {path.name}")
    spec = replace(read_table(TuneSpec, table, path.name), asha=asha, resources=resources)
    with naming(path.name):
        spec.check()
        return spec.settled()


def _space(table: Any, path: str = "") -> dict[str, Range | Choice]:
    if not isinstance(table, Mapping):
        raise NfdrlError(f"search must be a table of settings, got {table!r:.80}")
    found: dict[str, Range | Choice] = {}
    for key, value in table.items():
        name = f"{path}{key}"
        if isinstance(value, list):
            found[name] = _choice(name, value)
        elif isinstance(value, Mapping) and value.keys() & {"low", "high", "log"}:
            found[name] = _range(name, value)
        elif isinstance(value, Mapping) and value:
            found |= _space(value, f"{name}.")
        else:
            raise NfdrlError(
                f"search.{name} must be a list of values, or {{ low = …, high = …, log = true }}, got {value!r:.80}"
            )
    return found


def _range(name: str, value: Mapping[str, Any]) -> Range:
    missing = [end for end in ("low", "high") if end not in value]
    if missing:
        raise NfdrlError(f"search.{name} has no {missing[0]}: write {{ low = …, high = … }}")
    return read_table(Range, value, f"search.{name}")


def _choice(name: str, values: list[Any]) -> Choice:
    if any(isinstance(value, Mapping) for value in values):
        raise NfdrlError(f"search.{name} must be a list of values, got {values!r:.80}")
    found = {words_of({"": value})[0].removeprefix("="): value for value in values}
    if len(found) < 2:
        raise NfdrlError(f"search.{name} must have at least two values, got {values!r:.80}")
    return Choice(found)
