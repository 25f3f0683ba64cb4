"""Tables of a report as text: the same cells for the terminal, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nfdrl.evaluation.lines import written
from nfdrl.evaluation.seed_report import ALL, HUMAN, Target
from nfdrl.reports import Row
from nfdrl.style import label_of

TEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}"}
TEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "—": "---", "γ": r"$\gamma$", "<": "$<$", ">": "$>$"}
MINUS = re.compile(r"(?<![\w-])-(?=\d)")
SHOWN = {"mean": "mean", "median": "median", "iqm": "IQM", "gap": "optimality gap", "atari5": "Atari-5, %"}


@dataclass(frozen=True)
class Sheet:
    """A table of texts; the first `words` columns are left-aligned."""

    title: str
    head: list[str]
    rows: list[list[str]]
    words: int = 1


def lines_sheet(rows: Sequence[Row], columns: Sequence[str], targets: Mapping[str, Target]) -> Sheet:
    """One row per line."""
    names = {"median": "median", "iqm": "IQM"}
    names |= {"normalised": kind_of(targets), "gap": "gap"} if targets else {}
    names |= {"dormant": "dormant"} if any(row["dormant"] is not None for row in rows) else {}
    names["seconds"] = "seconds"
    cells = []
    for row in rows:
        told = [row["env"], label_of(row["method"]), *(written(row[name]) for name in columns)]
        counts = [_seeds(row), written(row["steps"])]
        cells.append([*told, *counts, ranged(row, "mean"), *(number(row[name]) for name in names)])
    head = ["environment", "method", *columns, "seeds", "steps", "mean return [95 %]", *names.values()]
    return Sheet("greedy episodes after training: mean over seeds", head, cells, 2 + len(columns))


def kind_of(targets: Mapping[str, Target]) -> str:
    """What normalised scores are called."""
    return "human-normalised" if all(found.source == HUMAN for found in targets.values()) else "normalised"


def _seeds(row: Row) -> str:
    return str(row["seeds"]) if row["seeds"] == row["runs"] else f"{row['seeds']} of {row['runs']}"


def aggregate_sheet(rows: Sequence[Row], targets: Mapping[str, Target]) -> Sheet:
    """One row per setup: normalised scores over all environments that have a target."""
    names = [name for name in SHOWN if any(row.get(name) is not None for row in rows)]
    cells = [
        [row["label"], f"{row['environments']} of {row['of']}", *(ranged(row, name) for name in names)] for row in rows
    ]
    head = ["method", "environments", *(SHOWN[name] for name in names)]
    return Sheet(f"{kind_of(targets)} scores over environments [95 %]", head, cells)


def improvement_sheet(rows: Sequence[Row]) -> Sheet:
    """One row per pair of setups, over all environments that both have."""
    cells = [
        [row["label"], row["other"], str(row["environments"]), ranged(row, "probability")]
        for row in rows
        if row["env"] == ALL
    ]
    head = ["method", "against", "environments", "P(better) [95 %]"]
    return Sheet("probability of improvement, ties counted one half", head, cells, 2)


def targets_sheet(targets: Mapping[str, Target]) -> Sheet:
    """What counts as 0 and as 1."""
    cells = [[env, found.source, number(found.low), number(found.high)] for env, found in targets.items()]
    return Sheet("normalisation", ["environment", "source", "0 is", "1 is"], cells, 2)


def ranged(row: Row, name: str) -> str:
    """A number with its interval, where it has one."""
    value, low, high = (row.get(key) for key in (name, f"{name}_low", f"{name}_high"))
    return number(value) if low is None else f"{number(value)} [{number(low)}, {number(high)}]"


def number(value: float | None) -> str:
    """About four digits.

    >>> number(12345.6), number(491.13), number(-0.5), number(0.0), number(None)
    ('12,346', '491.1', '-0.500', '0', '—')
    """
    if value is None:
        return "—"
    size = abs(value)
    digits = 0 if size >= 1000 or value == 0 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:,.{digits}f}"


def markdown(sheets: Sequence[Sheet], notes: Sequence[str], command: str) -> str:
    """The report as Markdown."""
    parts = [f"# Report\n\n`{command}`\n"]
    for sheet in sheets:
        rule = [":--" if k < sheet.words else "--:" for k in range(len(sheet.head))]
        body = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (sheet.head, rule, *sheet.rows)]
        parts.append(f"## {_sentence(sheet.title)}\n\n" + "".join(f"| {line} |\n" for line in body))
    if notes:
        parts.append("## To bear in mind\n\n" + "".join(f"* {note}\n" for note in notes))
    return "\n".join(parts)


def latex(sheets: Sequence[Sheet], notes: Sequence[str], command: str) -> str:
    """The report as LaTeX tables; they need the package booktabs."""
    parts = [f"% {command}\n% needs \\usepackage{{booktabs}}\n"]
    for sheet in sheets:
        kinds = "l" * sheet.words + "r" * (len(sheet.head) - sheet.words)
        head, *rows = (" & ".join(map(_tex, row)) + r" \\" for row in (sheet.head, *sheet.rows))
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{_tex(_sentence(sheet.title))}}}"]
        lines += [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        parts.append("\n".join([*lines, r"\end{tabular}", r"\end{table}", ""]))
    return "\n".join([*parts, *(f"% {note}" for note in notes), ""])


def _sentence(title: str) -> str:
    return title[:1].upper() + title[1:]


def _tex(text: str) -> str:
    return MINUS.sub("$-$", "".join(TEX.get(letter, letter) for letter in text))
