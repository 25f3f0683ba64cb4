"""Scores of a random agent and of a human on 57 Atari games, by which others are human-normalised."""

from __future__ import annotations

import csv
from importlib.resources import files


def random_and_human() -> dict[str, tuple[float, float]]:
    """Both scores by the name of the game; the source of the table is described beside it in data/README.md.

    >>> random_and_human()["Pong"]
    (-20.7, 14.6)
    """
    text = (files("nfdrl.paper") / "data" / "human_scores.csv").read_text("utf-8")
    return {row["game"]: (float(row["random"]), float(row["human"])) for row in csv.DictReader(text.splitlines())}
