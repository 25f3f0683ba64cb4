"""`nfdrl settings`: every setting with its default, its meaning and where the default comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nfdrl.settings import notes_of

WIDTH = 160  # of tables that are not printed to a terminal


@dataclass(frozen=True)
class Settings:
    """List the settings of training, or of a method: default, meaning, and the source of the default.

    Examples: `nfdrl settings`, `nfdrl settings nfdrl-s`, `nfdrl settings --preset atari`.
    """

    method: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[METHOD]")] = None
    """A method, maybe with settings in brackets; by default the settings of training, which all methods share."""

    preset: str = "default"
    """Show the values of this preset, or of a preset file."""

    def run(self) -> int:
        from nfdrl.laws import METHODS, find_method
        from nfdrl.training.presets import find_preset

        preset = find_preset(self.preset)
        shown: Any = preset.config if self.method is None else find_method(self.method, preset.adapt)
        console = Console()
        if not console.is_terminal:
            console = Console(width=WIDTH)
        console.print(table_of(shown, "training" if self.method is None else self.method))
        where = "nfdrl train --set NAME=VALUE …"
        if self.method is None:
            console.print(escape(f"change them with {where}, or TrainConfig(NAME=VALUE)"), highlight=False)
            console.print(escape(f"nfdrl settings METHOD: {', '.join(METHODS)}"), highlight=False)
        else:
            console.print(escape(f"change them with {where}, or METHOD[NAME=VALUE]"), highlight=False)
        return 0


def table_of(settings: Any, title: str) -> Table:
    """A row per setting."""
    table = Table(title=escape(f"settings of {title}"))
    for name in ("setting", "value", "meaning", "source of the default"):
        table.add_column(name, no_wrap=name == "setting")
    for row in rows_of(settings):
        table.add_row(*map(escape, row))
    return table


def rows_of(settings: Any, path: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Name, value, meaning and source of every setting, those of inner dataclasses included."""
    notes = notes_of(type(settings))
    for field in fields(settings):
        value, note = getattr(settings, field.name), notes[field.name]
        inner = is_dataclass(value)
        shown = (
            getattr(value, "kind", "") if inner else str(value).lower() if value in (True, False, None) else str(value)
        )
        if shown or not inner:
            yield path + field.name, shown, note.meaning, note.source
        if inner:
            yield from rows_of(value, f"{path}{field.name}.")
