"""What the page of `nfdrl report` is given, as frozen dataclasses; part of `schema.MESSAGES`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Packed = str


@dataclass(frozen=True)
class Estimate:
    """A statistic and both ends of its 95 % interval; None where there is nothing to compute it from."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SetupCard:
    """A method with its settings: an entry of a legend. Others name it by its place in the list."""

    label: str
    method: str
    colour: str
    style: str  # as Matplotlib has it: - -- -. :


@dataclass(frozen=True)
class BandCurve:
    """A curve of a setup with its 95 % band, if it has one."""

    setup: int
    x: Packed
    values: Packed
    low: Packed | None
    high: Packed | None


@dataclass(frozen=True)
class ReportLine:
    """The runs of a setup in one environment: what was measured over their seeds."""

    setup: int
    settings: list[str]  # in the order of the report's columns
    steps: int
    seeds: int  # evaluated ones
    runs: int
    scores: list[float]
    mean: Estimate
    median: Estimate
    iqm: Estimate
    normalised: Estimate
    gap: Estimate
    seconds: float


@dataclass(frozen=True)
class ReportTarget:
    """The scores that count as 0 and as 1."""

    low: float
    high: float
    source: str


@dataclass(frozen=True)
class ReportEnvironment:
    """An environment: its lines, its curves, and the setups that were not run in it."""

    env: str
    target: ReportTarget | None
    lines: list[ReportLine]
    curves: list[BandCurve]
    absent: list[int]


@dataclass(frozen=True)
class Aggregate:
    """A setup over all environments that have a target."""

    setup: int
    environments: int
    of: int
    fewest_seeds: int
    mean: Estimate
    median: Estimate
    iqm: Estimate
    gap: Estimate
    atari5: Estimate


@dataclass(frozen=True)
class Improvement:
    """P(a run of one setup beats a run of the other); `env` is None over all environments that both have."""

    env: str | None
    one: int
    other: int
    environments: int
    probability: Estimate


@dataclass(frozen=True)
class Report:
    """A whole report in one file."""

    title: str
    made_by: str
    date: str
    normalised: str  # what normalised scores are called
    few: int  # seeds below which an interval says little
    columns: list[str]
    setups: list[SetupCard]
    environments: list[ReportEnvironment]
    aggregate: list[Aggregate]
    profiles: list[BandCurve]
    efficiency: list[BandCurve]
    improvement: list[Improvement]
    notes: list[str]
    kind: Literal["report"] = "report"
    format: Literal[1] = 1
