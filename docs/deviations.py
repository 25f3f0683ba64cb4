"""Write the table of docs/deviations.md from the results of `nfdrl paper literal`: `python docs/deviations.py`.

A test keeps the page up to date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("deviations.md")
RESULTS = Path(__file__).parents[1] / "results" / "paper"
TABLE = re.compile(r"(?<=<!-- literal -->\n).*?(?=<!-- end of literal -->)", re.DOTALL)
COLUMNS = {
    "mdp2_below": ("MDP2, p = 0.7: P(Z < 0.55), true 0.30", "{:.2f}"),
    "mdp2_cramer": ("MDP2: Cramér distance", "{:.3f}"),
    "frozenlake_cramer": ("FrozenLake: Cramér distance, mean of 44 laws", "{:.3f}"),
    "frozenlake_mean_error": ("FrozenLake: mean error of the means", "{:.3f}"),
    "cartpole_return": ("CartPole: return of 20 greedy episodes, at most 500", "{:.0f}"),
}


def found() -> list[dict[str, Any]]:
    """What `nfdrl paper literal` wrote, a seed each."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("seed-*/literal/metrics.json"))]


def table() -> str:
    """A line per step, the seeds beside each other; what was not run is a dash."""
    runs = found()
    first = runs[0]["rows"][0]
    seeds = ", ".join(str(run["seed"]) for run in runs)
    told = (
        f"MDP2: {first['mdp2_updates']:,} updates of {first['batch_size']} transitions; FrozenLake: "
        f"{first['frozenlake_updates']:,} of {first['batch_size']}; CartPole: {first['cartpole_steps']:,} steps. "
        f"Seeds {seeds} ({runs[0]['date'][:10]}, one thread, [results/paper](../results/README.md)):"
    )
    titles = ["from the paper to ours", *(title for title, _ in COLUMNS.values())]
    lines = [told, "", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for rows in zip(*(run["rows"] for run in runs), strict=True):
        label = rows[0]["step"]
        cells = [f"*{label}*" if label.startswith("(") else label]
        for name, (_, form) in COLUMNS.items():
            texts = ["–" if row[name] is None else form.format(row[name]) for row in rows]
            cells.append("–" if set(texts) == {"–"} else ", ".join(texts))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    return TABLE.sub(lambda _: table(), PAGE.read_text("utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
