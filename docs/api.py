"""Write docs/api.md from `nfdrl.__all__` and the docstrings: `python docs/api.py`. A test keeps the page up to date."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import nfdrl
from nfdrl.settings import notes_of

PAGE = Path(__file__).with_name("api.md")
HEADER = """# Public interface

What `import nfdrl` offers. These names keep their meaning between minor versions; everything else is internal and may
change without notice. `python docs/api.py` writes this page from the docstrings.
"""
SECTIONS = {
    "Learning": ("Agent", "Run"),
    "Callbacks": ("Evaluate", "StopAt", "TensorBoard", "WeightsAndBiases"),
    "Settings": ("TrainConfig", "TorsoSizes", "PRESETS", "find_preset"),
    "Return laws": ("Law", "DensityLaw", "FlowLaw"),
    "Methods": ("METHODS", "Method"),
    "Risk": ("Risk", "parse_risk"),
    "Exact laws": ("FiniteMDP", "exact_returns"),
    "Errors": ("NfdrlError",),
}
TABLES = {
    "METHODS": "Every method with its default settings, by the name that commands and `Agent` take",
    "PRESETS": "Settings for a kind of environment, by the name that `nfdrl train --preset` takes. Each has a "
    "`config`, a number of `steps`, and `adapt`, which gives a method the preset's settings",
}


def prose(thing: Any) -> str:
    """A docstring up to its examples, each paragraph on one line."""
    text = (inspect.getdoc(thing) or "").partition(">>>")[0]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def signature(thing: Any) -> str:
    """The parameters, without annotations."""
    parameters = inspect.signature(thing).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters if p.name not in ("self", "cls")]
    return str(inspect.Signature(plain))


def members(kind: type) -> Iterator[str]:
    """A line for each public method and property that no class higher up on this page has."""
    inherited = [base for base in kind.__mro__[1:] if base.__name__ in nfdrl.__all__]
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    ours = [base for base in kind.__mro__ if base.__module__.startswith("nfdrl") and base not in inherited]
    for name in dict.fromkeys(name for base in ours for name in vars(base)):
        private = name.startswith("_") and name != "__call__"
        if private or name in fields or any(name in vars(base) for base in inherited):
            continue
        member = getattr(kind, name)
        if callable(member) or isinstance(member, property | cached_property):
            arguments = signature(member) if callable(member) else ""
            yield f"* `{name}{arguments}`: {' '.join(prose(member).split())}"


def settings(kind: Any) -> str:
    """A table of a dataclass's fields, their defaults, and the comments next to each."""
    notes = notes_of(kind)
    rows = ["| field | default | meaning | source of the default |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        made = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if made else field.default
        shown = (
            "" if default is dataclasses.MISSING else f"`{type(default).__name__ + '()' if made else repr(default)}`"
        )
        note = notes[field.name]
        rows.append(f"| `{field.name}` | {shown} | {note.meaning} | {note.source} |")
    return "\n".join(rows)


def entry(name: str) -> str:
    """One name of the interface."""
    thing = getattr(nfdrl, name)
    if name in TABLES:
        return f"### {name}\n\n{TABLES[name]}: {', '.join(f'`{key}`' for key in thing)}.\n"
    parts = [f"### {name}", prose(thing)]
    if dataclasses.is_dataclass(thing):
        parts.append(settings(thing))
    elif inspect.isfunction(thing) or "__init__" in vars(thing):
        parts.insert(1, f"```\n{name}{signature(thing)}\n```")
    if inspect.isclass(thing):
        bases = [f"`{base.__name__}`" for base in thing.__mro__[1:] if base.__name__ in nfdrl.__all__]
        listed = "\n".join(members(thing))
        parts += [f"It has everything that {bases[0]} has, and:"] if bases and listed else []
        parts += [listed] if listed else []
    return "\n\n".join(parts) + "\n"


def page() -> str:
    """The whole page."""
    sections = (f"## {title}\n\n" + "\n".join(map(entry, names)) for title, names in SECTIONS.items())
    return "\n".join([HEADER, *sections])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
