"""The numbers of `nfdrl report` as a message for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from nfdrl.evaluation.bands import Band
from nfdrl.evaluation.lines import FEW, written
from nfdrl.evaluation.numbers import Numbers
from nfdrl.evaluation.seed_report import ALL
from nfdrl.evaluation.sheets import kind_of
from nfdrl.reports import Row
from nfdrl.viewer.messages import pack
from nfdrl.viewer.report_schema import (
    Aggregate,
    BandCurve,
    Estimate,
    Improvement,
    Report,
    ReportEnvironment,
    ReportLine,
    ReportTarget,
    SetupCard,
)


def report_of(numbers: Numbers, made_by: str, date: str) -> Report:
    """All that a report says."""
    places = {setup.label: k for k, setup in enumerate(numbers.setups)}
    envs = sorted({row["env"] for row in numbers.lines})
    return Report(
        title=f"Report: {_count(len(numbers.runs), 'run')} in {_count(len(envs), 'environment')}",
        made_by=made_by,
        date=date,
        normalised=kind_of(numbers.targets),
        few=FEW,
        columns=numbers.columns,
        setups=[SetupCard(setup.label, setup.method, setup.colour, setup.style) for setup in numbers.setups],
        environments=[_environment(numbers, env, places) for env in envs],
        aggregate=[_aggregate(row, places) for row in numbers.aggregate if row["environments"]],
        profiles=_curves(numbers.profiles, places),
        efficiency=_curves(numbers.efficiency, places),
        improvement=[_improvement(row, places) for row in numbers.improvement],
        notes=numbers.notes,
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _environment(numbers: Numbers, env: str, places: Mapping[str, int]) -> ReportEnvironment:
    rows = [row for row in numbers.lines if row["env"] == env]
    scores = {setup.label: setup.lines[env].scores.tolist() for setup in numbers.setups if env in setup.lines}
    target = numbers.targets.get(env)
    return ReportEnvironment(
        env=env,
        target=None if target is None else ReportTarget(**asdict(target)),
        lines=[_line(row, numbers.columns, scores[row["label"]], places) for row in rows],
        curves=_curves({label: band for (at, label), band in numbers.curves.items() if at == env}, places),
        absent=[place for label, place in places.items() if label not in scores],
    )


def _line(row: Row, columns: list[str], scores: list[float], places: Mapping[str, int]) -> ReportLine:
    return ReportLine(
        setup=places[row["label"]],
        settings=[written(row[name]) for name in columns],
        steps=row["steps"],
        seeds=int(row["seeds"]),
        runs=row["runs"],
        scores=[score for score in scores if math.isfinite(score)],
        mean=_estimate(row, "mean"),
        median=_estimate(row, "median"),
        iqm=_estimate(row, "iqm"),
        normalised=_estimate(row, "normalised"),
        gap=_estimate(row, "gap"),
        seconds=row["seconds"],
    )


def _aggregate(row: Row, places: Mapping[str, int]) -> Aggregate:
    return Aggregate(
        setup=places[row["label"]],
        environments=row["environments"],
        of=row["of"],
        fewest_seeds=int(row["fewest_seeds"]),
        mean=_estimate(row, "mean"),
        median=_estimate(row, "median"),
        iqm=_estimate(row, "iqm"),
        gap=_estimate(row, "gap"),
        atari5=_estimate(row, "atari5"),
    )


def _improvement(row: Row, places: Mapping[str, int]) -> Improvement:
    env = None if row["env"] == ALL else row["env"]
    one, other = places[row["label"]], places[row["other"]]
    return Improvement(env, one, other, row["environments"], _estimate(row, "probability"))


def _estimate(row: Row, name: str) -> Estimate:
    return Estimate(*(_finite(row.get(key)) for key in (name, f"{name}_low", f"{name}_high")))


def _finite(value: Any) -> float | None:
    """JSON has no infinity."""
    return float(value) if value is not None and math.isfinite(value) else None


def _curves(bands: Mapping[str, Band], places: Mapping[str, int]) -> list[BandCurve]:
    return [_curve(places[label], band) for label, band in bands.items()]


def _curve(setup: int, band: Band) -> BandCurve:
    ends = [None if end is None else pack(end) for end in (band.low, band.high)]
    return BandCurve(setup, pack(band.x), pack(band.values), *ends)
