"""All that a report says, for its tables, its figures and its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nfdrl.evaluation.bands import Band, efficiency, profiles, training
from nfdrl.evaluation.lines import ABSENT, Line, Setup, columns_of, setups_of
from nfdrl.evaluation.seed_report import Target, aggregate_row, improvement_rows, line_row, missing, run_row
from nfdrl.reports import Row


@dataclass(frozen=True)
class Numbers:
    """Rows of tables and curves; setups are in the order of `aggregate`."""

    setups: list[Setup]
    targets: Mapping[str, Target]
    columns: list[str]  # the settings in which lines differ
    runs: list[Row]
    lines: list[Row]
    aggregate: list[Row]
    improvement: list[Row]
    notes: list[str]
    curves: dict[tuple[str, str], Band]  # by environment and label
    profiles: dict[str, Band]  # by label
    efficiency: dict[str, Band]

    @classmethod
    def of(
        cls, lines: Sequence[Line], targets: Mapping[str, Target], notes: Sequence[str], also: Callable[[Setup], Row]
    ) -> Numbers:
        """The numbers of these lines; `also` gives more cells for the aggregate of a setup."""
        setups, columns = setups_of(lines), [name for name in columns_of(lines) if name != "steps"]
        told = [{name: line.settings.get(name, ABSENT) for name in columns} for line in lines]
        labels = {id(line): setup.label for setup in setups for line in setup.lines.values()}
        pairs = list(zip(lines, told, strict=True))
        curves = {(line.env, labels[id(line)]): training(line) for line in lines}
        speeds = {setup.label: efficiency(setup, targets) for setup in setups}
        return cls(
            setups=setups,
            targets=targets,
            columns=columns,
            runs=[run_row(run, row) for line, row in pairs for run in line.runs],
            lines=[line_row(line, labels[id(line)], row, targets.get(line.env)) for line, row in pairs],
            aggregate=[aggregate_row(setup, targets) | also(setup) for setup in setups],
            improvement=improvement_rows(setups),
            notes=[*notes, *missing(setups, sorted({line.env for line in lines}), targets)],
            curves={key: band for key, band in curves.items() if band is not None},
            profiles=profiles(setups, targets),
            efficiency={label: band for label, band in speeds.items() if band is not None},
        )
