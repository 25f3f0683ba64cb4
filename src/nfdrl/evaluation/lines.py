"""Runs as lines of a report: those that share all settings but the seed belong together."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import numpy as np

from nfdrl.colours import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW
from nfdrl.evaluation.statistics import Floats
from nfdrl.files import describing
from nfdrl.runs.layout import CONFIG
from nfdrl.runs.reading import RunRecord
from nfdrl.style import color_of, label_of, line_of

FEW = 3  # seeds below which an interval says little
# Settings that do not change what is learned: names, files, and how often something is written.
BOOKKEEPING = frozenset({
    "method", "env", "seed", "train", "preset", "resumed", "keep", "checkpoint_every", "evaluate", "evaluate_every",
    "tensorboard", "report_every", "replay_on_disk", "frame_replay",
})  # fmt: skip
Settings = dict[str, Any]
ABSENT = "—"
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE, BLACK, GREY, YELLOW)
STYLES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Line:
    """The runs of one method in one environment with the same settings, ordered by seed."""

    env: str
    method: str
    training: Settings  # settings that every method has
    own: Settings  # settings of the method
    runs: tuple[RunRecord, ...]

    @property
    def settings(self) -> Settings:
        """All settings by name; those of the method carry its name where training has one of the same name."""
        clash = {f"{self.method}.{name}" if name in self.training else name: self.own[name] for name in self.own}
        return self.training | clash

    @property
    def evaluated(self) -> list[RunRecord]:
        return [run for run in self.runs if run.evaluation is not None]

    @property
    def scores(self) -> Floats:
        """The mean return of each evaluated seed."""
        return np.array([run.evaluation["mean"] for run in self.runs if run.evaluation is not None], dtype=np.float64)


@dataclass(frozen=True)
class Setup:
    """A method with its settings in all environments where it ran: one entry of a legend."""

    label: str
    method: str
    colour: str
    style: str
    lines: dict[str, Line]  # by environment


def lines_of(runs: Iterable[RunRecord]) -> tuple[list[Line], list[str]]:
    """The lines of these runs by environment, method and settings, and notes on runs that were left out or united."""
    found, notes = _united(runs)
    lines = []
    for line in found:
        kept, doubled = _one_per_seed(line.runs)
        lines.append(replace(line, runs=kept))
        notes += doubled
    return sorted(lines, key=lambda line: (line.env, line.method, json.dumps(line.settings))), notes


def differences(runs: Sequence[RunRecord]) -> list[Settings]:
    """For each run, the settings in which the lines of its method and environment differ."""
    lines, _ = _united(runs)
    variants = _variants(lines)
    told: dict[Path, Settings] = {}
    for line in lines:
        own = {name: line.settings[name] for name in line.settings if line.method in variants.get(name, ())}
        told |= {run.folder: own for run in line.runs}
    return [told[run.folder] for run in runs]


def _united(runs: Iterable[RunRecord]) -> tuple[list[Line], list[str]]:
    """Lines with all of their runs, and notes on settings that older runs do not record."""
    alike: dict[tuple[str, str], list[tuple[RunRecord, Settings, Settings]]] = defaultdict(list)
    for run in runs:
        with describing("a run", run.folder / CONFIG):
            alike[run.env, run.method].append((run, *settings_of(run.config, run.evaluation)))
    lines, notes = [], []
    for (env, method), found in alike.items():
        unknown = _unrecorded([training | own for _, training, own in found])
        if unknown:
            notes.append(f"older runs of {method} in {env} do not record {', '.join(unknown)}: taken to be the same")
        united: dict[str, list[tuple[RunRecord, Settings, Settings]]] = defaultdict(list)
        for run, *parts in found:
            training, own = ({name: part[name] for name in part if name not in unknown} for part in parts)
            united[json.dumps([training, own], sort_keys=True)].append((run, training, own))
        lines += [Line(env, method, *same[0][1:], tuple(run for run, *_ in same)) for same in united.values()]
    return lines, notes


def _unrecorded(settings: Sequence[Settings]) -> list[str]:
    """Settings that some of these runs do not know, and in which the others agree."""
    values: dict[str, list[str]] = defaultdict(list)
    for one in settings:
        for name, value in one.items():
            values[name].append(json.dumps(value, sort_keys=True))
    return [name for name, found in values.items() if len(found) < len(settings) and len(set(found)) == 1]


def _one_per_seed(runs: Sequence[RunRecord]) -> tuple[tuple[RunRecord, ...], list[str]]:
    """The first run of each seed, by folder; the same seed twice would count as independent."""
    kept, notes = [], []
    for _, same in groupby(sorted(runs, key=lambda run: (run.seed, run.folder)), key=lambda run: run.seed):
        first, *others = same
        kept.append(first)
        notes += [f"left out: {run.folder} has the settings and the seed of {first.folder}" for run in others]
    return tuple(kept), notes


def settings_of(config: Mapping[str, Any], evaluation: Mapping[str, Any] | None = None) -> tuple[Settings, Settings]:
    """What training and the method were told, and by which risk a later evaluation judged, if by another."""
    judged = (evaluation or {}).get("risk", config.get("risk"))
    training = _flat({**config, **config.get("train", {})})
    training["evaluation.risk"] = "that of training" if judged == config.get("risk") else judged
    return training, _flat(config["method"].get("settings", {}))


def _flat(settings: Mapping[str, Any]) -> Settings:
    """Inner settings by their path, without those that change nothing.

    >>> _flat({"risk": "mean", "seed": 1, "torso": {"mlp": [64]}})
    {'risk': 'mean', 'torso.mlp': [64]}
    """
    flat: Settings = {}
    for name, value in settings.items():
        if name in BOOKKEEPING:
            continue
        if isinstance(value, Mapping):
            flat |= {f"{name}.{part}": inner for part, inner in _flat(value).items()}
        else:
            flat[name] = value
    return flat


def columns_of(lines: Sequence[Line]) -> list[str]:
    """The settings in which lines of one environment differ; a method's own count only within the method."""
    names: dict[str, None] = {}
    for one, other in combinations(lines, 2):
        if one.env == other.env:
            names |= dict.fromkeys(_differing(one.training, other.training))
    return [*names, *(name for name in _variants(lines) if name not in names)]


def _variants(lines: Sequence[Line]) -> dict[str, set[str]]:
    """The settings in which lines of one environment and one method differ, and the methods that they tell apart."""
    names: dict[str, set[str]] = defaultdict(set)
    for one, other in combinations(lines, 2):
        if (one.env, one.method) == (other.env, other.method):
            for name in _differing(one.settings, other.settings):
                names[name].add(one.method)
    return names


def _differing(one: Settings, other: Settings) -> list[str]:
    """The settings that both know and have otherwise."""
    return [name for name in one if name in other and repr(one[name]) != repr(other[name])]


def setups_of(lines: Sequence[Line]) -> list[Setup]:
    """Lines that belong together across environments, each with a label and a look of its own.

    A label names the method, and the settings in which its lines differ within an environment.
    """
    variants = _variants(lines)
    found: dict[tuple[str, str], dict[str, Line]] = {}
    for line in lines:
        names = [name for name, methods in variants.items() if line.method in methods]
        words = [f"{name}={written(line.settings.get(name, ABSENT))}" for name in names]
        found.setdefault((line.method, ", ".join([label_of(line.method), *words])), {})[line.env] = line
    found = dict(sorted(found.items()))
    looks = _looks([method for method, _ in found])
    return [
        Setup(label, method, *look, by_env)
        for ((method, label), by_env), look in zip(found.items(), looks, strict=True)
    ]


def _looks(methods: Sequence[str]) -> list[tuple[str, str]]:
    """A colour and a style for each: the method's at its first occurrence, then new colours, then new styles.

    >>> _looks(["dqn", "dqn", "c51"])
    [('#000000', '-'), ('#0072B2', '-'), ('#E69F00', '-')]
    """
    looks: dict[int, tuple[str, str]] = {}
    for k in sorted(range(len(methods)), key=lambda k: methods[k] in methods[:k]):
        taken, used = set(looks.values()), {colour for colour, _ in looks.values()}
        own = color_of(methods[k]), line_of(methods[k])
        fresh = [(colour, "-") for colour in COLOURS if colour not in used]
        rest = [(colour, style) for style in STYLES for colour in COLOURS]
        looks[k] = next((look for look in (own, *fresh, *rest) if look not in taken), own)
    return [looks[k] for k in range(len(methods))]


def written(value: Any) -> str:
    """A setting as a table shows it.

    >>> written(0.0005), written([64, 64]), written(None), written(True), written(100000)
    ('0.0005', '64 64', 'none', 'true', '100,000')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return " ".join(map(written, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
