"""Write docs/api.md from `nfdrl.__all__` and the docstrings: `python docs/api.py`. A test keeps the page up to date."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import nfdrl

PAGE = Path(__file__).with_name("api.md")
HEADER = """# Public interface

What `import nfdrl` offers, and all that keeps its meaning between minor versions. Everything else, however plain its
name, is internal and may change without notice. `python docs/api.py` writes this page from the docstrings.
"""


def sentence(thing: Any) -> str:
    """The first sentence of a docstring, on one line."""
    first = (inspect.getdoc(thing) or "").split("\n\n")[0]
    return " ".join(first.split())


def signature(thing: Any) -> str:
    """The parameters, without annotations."""
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except ValueError:
        return ""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters if p.name not in ("self", "cls")]
    return str(inspect.Signature(plain))


def members(kind: type) -> list[str]:
    """A line for each public method and property that a class documents."""
    lines = []
    for name, member in inspect.getmembers(kind):
        raw = inspect.getattr_static(kind, name)
        ours = any(name in base.__dict__ and base.__module__.startswith("nfdrl") for base in kind.__mro__)
        if name.startswith("_") or not ours or not (callable(member) or isinstance(raw, property)):
            continue
        shown = f"`{name}`" if isinstance(raw, property) else f"`{name}{signature(member)}`"
        text = sentence(raw if isinstance(raw, property) else member)
        lines.append(f"* {shown}: {text}" if text else f"* {shown}")
    return lines


def entry(name: str) -> str:
    """One name of the interface."""
    thing = getattr(nfdrl, name)
    if not callable(thing):
        listed = f": {', '.join(f'`{key}`' for key in thing)}" if isinstance(thing, dict) else ""
        return f"## `{name}`\n\nA {type(thing).__name__}{listed}.\n"
    parts = [f"## `{name}{'' if dataclasses.is_dataclass(thing) else signature(thing)}`", sentence(thing)]
    if dataclasses.is_dataclass(thing):
        fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(thing))
        parts.append(f"Fields: {fields}.")
    if inspect.isclass(thing) and (found := members(thing)):
        parts.append("\n".join(found))
    return "\n\n".join(parts) + "\n"


def page() -> str:
    """The whole page."""
    return "\n".join([HEADER, *(entry(name) for name in nfdrl.__all__ if name != "__version__")])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
