"""Write the tables of settings.md from the settings themselves: `python docs/settings.py`."""

from __future__ import annotations

import re
from pathlib import Path

from nfdrl.cli.settings import rows_of
from nfdrl.laws import METHODS
from nfdrl.training.config import TrainConfig

PAGE = Path(__file__).with_name("settings.md")
BLOCK = re.compile(r"(<!-- settings of (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
TABLES = {"training": TrainConfig(), **METHODS}


def table(name: str) -> str:
    """A row per setting; nothing to set is said in words."""
    rows = [
        f"| `{setting}` | {f'`{value}`' if value else 'empty'} | {meaning} | {source} |"
        for setting, value, meaning, source in rows_of(TABLES[name])
    ]
    head = ["| setting | default | meaning | source of the default |", "|---|---|---|---|"]
    return "\n".join([*head, *rows] if rows else ["No settings of its own."])


def page(text: str) -> str:
    """The text with its tables up to date."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
