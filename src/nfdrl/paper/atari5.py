"""Both Atari-5 tables of the paper, recomputed, beside references and our own runs (tab:human_normalized_scores)."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nfdrl.colours import GREY, INK, LIGHT, SKY, VERMILLION
from nfdrl.paper.base import Experiment, NoRunsError, Result
from nfdrl.progress import Progress
from nfdrl.reports import Row
from nfdrl.runs.reading import RunRecord, find_runs
from nfdrl.style import color_of, label_of

# Aitchison et al. 2023: weights of a regression of the median over 57 games on log-scores of five of them.
WEIGHTS = {
    "BattleZone": 0.3819751237831753,
    "DoubleDunk": 0.0679099488887574,
    "NameThisGame": 0.310804148620847,
    "Phoenix": 0.12412619402774641,
    "Qbert": 0.08048518286466755,
}
GAMES = tuple(WEIGHTS)
PAPER_METHODS = ("dqn", "c51", "iqn", "nfdrl-e", "nfdrl-s")
# tab:human_normalized_scores as printed, in the order of GAMES, and its row of means.
PRINTED = {
    "dqn": (79, 545, 103, 119, 97),
    "c51": (76, 959, 178, 258, 178),
    "iqn": (115, 1100, 354, 862, 193),
    "nfdrl-e": (87, 1200, 232, 280, 169),
    "nfdrl-s": (95, 1243, 259, 301, 193),
}
PRINTED_MEANS = {"dqn": 189, "c51": 330, "iqn": 525, "nfdrl-e": 394, "nfdrl-s": 418}
TEXT_MEANS = {"dqn": 189, "c51": 320, "iqn": 525, "nfdrl-e": 394, "nfdrl-s": 407}  # section Benchmarking, Results
# The best agent of each game, printed in blue: in tab:raw_scores and in tab:human_normalized_scores.
BLUE_RAW = ("iqn", "nfdrl-e", "iqn", "iqn", "nfdrl-s")
BLUE_NORMALISED = ("iqn", "nfdrl-s", "iqn", "iqn", "nfdrl-s")
HALF = 0.5 + 1e-9  # a printed integer is within one half of what it rounds


@dataclass(frozen=True)
class Line:
    """The raw scores of one method from one source; None where nothing was run."""

    source: str
    method: str
    frames: float | None  # millions
    protocol: str
    raw: tuple[float | None, ...]

    @property
    def title(self) -> str:
        """The method and where its scores come from."""
        return f"{label_of(self.method).partition(' (')[0]}, {self.source}"


@dataclass(frozen=True)
class References:
    """The scores between which others are normalised."""

    random: tuple[float, ...]
    human: tuple[float, ...]

    def normalise(self, raw: tuple[float | None, ...]) -> tuple[float | None, ...]:
        """100 (score − random)/(human − random) for each game."""
        return tuple(
            None if score is None else 100 * (score - low) / (high - low)
            for score, low, high in zip(raw, self.random, self.human, strict=True)
        )


def atari5_score(normalised: tuple[float | None, ...]) -> float | None:
    """10^(Σ c log₁₀(1 + n)) − 1 over normalised scores n, at least 0: an estimate of the median over 57 games.

    Aitchison et al. 2023, with the weights they published; None unless all five games are there.

    >>> round(atari5_score((100.0,) * 5), 1)
    85.1
    """
    if any(score is None for score in normalised):
        return None
    logs = (math.log10(1 + max(score or 0.0, 0.0)) for score in normalised)
    return float(10 ** sum(c * log for c, log in zip(WEIGHTS.values(), logs, strict=True)) - 1)


def mean(normalised: tuple[float | None, ...]) -> float | None:
    """The mean over all five games, or None."""
    known = [score for score in normalised if score is not None]
    return fmean(known) if len(known) == len(GAMES) else None


def read_references() -> tuple[list[Line], References]:
    """The packaged table; its sources are described beside it in data/README.md."""
    text = (files("nfdrl.paper") / "data" / "reference_scores.csv").read_text("utf-8")
    lines, ends = [], {}
    for row in csv.DictReader(text.splitlines()):
        raw = tuple(float(row[game]) for game in GAMES)
        if row["method"] in ("random", "human"):
            ends[row["method"]] = raw
            continue
        source = row["source"].partition(" (")[0].replace("NFDRL paper", "paper").replace(" JAX", "")
        lines.append(Line(source, row["method"], float(row["frames_millions"]), row["protocol"], raw))
    return lines, References(ends["random"], ends["human"])


def own_lines(runs: list[RunRecord]) -> list[Line]:
    """Means over the seeds of each method and number of frames; games that nobody ran or evaluated stay empty."""
    scores: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        game = run.game.removeprefix("ALE/").partition("-")[0]
        if game in GAMES and run.evaluation is not None:
            scores[run.method, run.frames][game].append(float(run.evaluation["mean"]))
    lines = []
    for (method, frames), found in sorted(scores.items()):
        raw = tuple(fmean(found[game]) if game in found else None for game in GAMES)
        seeds = "/".join(str(len(found.get(game, ()))) for game in GAMES)
        lines.append(Line("ours", method, frames / 1e6, f"nfdrl evaluate; runs of each game: {seeds}", raw))
    return lines


def contradictions(paper: dict[str, Line], references: References) -> list[Row]:
    """Everything the tables and the text beside them claim, against what the raw scores give."""
    normalised = {method: references.normalise(line.raw) for method, line in paper.items()}
    rows = []
    for method in PAPER_METHODS:
        for game, printed, value in zip(GAMES, PRINTED[method], normalised[method], strict=True):
            rows.append(_number("tab:human_normalized_scores", f"{method}, {game}", printed, value))
        rows.append(_number("tab:human_normalized_scores", f"{method}, mean", PRINTED_MEANS[method],
                            mean(normalised[method])))  # fmt: skip
        rows.append(_number("sec. Benchmarking, text", f"{method}, mean", TEXT_MEANS[method], mean(normalised[method])))
    for game, raw, blue in zip(GAMES, BLUE_RAW, BLUE_NORMALISED, strict=True):
        at = GAMES.index(game)
        best = max(PAPER_METHODS, key=lambda method: paper[method].raw[at] or 0.0)
        rows.append(_claim("tab:raw_scores", f"best in {game}", raw, best, raw == best))
        rows.append(_claim("tab:human_normalized_scores", f"best in {game}", blue, best, blue == best))
    rows += [_beats(paper, method, other) for method in ("nfdrl-e", "nfdrl-s") for other in ("dqn", "c51")]
    return [*rows, _same_training(paper)]


def _same_training(paper: dict[str, Line]) -> Row:
    """The text: all baselines and NFDRL share network and training loop."""
    frames = {method: line.frames for method, line in paper.items()}
    found = "; ".join(f"{method} {count:.0f}M" for method, count in frames.items())
    claim = "the baselines were trained as NFDRL was"
    return _claim("app. H, Architecture", claim, "yes", f"frames: {found}", len(set(frames.values())) == 1)


def _number(where: str, claim: str, printed: float, value: float | None) -> Row:
    assert value is not None
    return _claim(where, claim, printed, round(value, 1), abs(printed - value) <= HALF)


def _claim(where: str, claim: str, printed: object, recomputed: object, holds: bool) -> Row:
    return {"where": where, "claim": claim, "printed": printed, "recomputed": recomputed, "holds": holds}


def _beats(paper: dict[str, Line], method: str, other: str) -> Row:
    """The text: both variants outperform DQN and C51 on all games."""
    pairs = zip(GAMES, paper[method].raw, paper[other].raw, strict=True)
    lost = [game for game, ours, theirs in pairs if (ours or 0.0) <= (theirs or 0.0)]
    claim = f"{method} outperforms {other} on all games"
    return _claim("sec. Benchmarking, text", claim, "yes", f"not on {', '.join(lost)}" if lost else "yes", not lost)


def compute(seed: int, smoke: bool, progress: Progress, runs: Path | None = None) -> Result:  # noqa: ARG001
    """Normalise every line, check every claim; nothing here is random."""
    lines, references = read_references()
    if runs is not None:
        own = own_lines(find_runs(runs))
        if not own:
            raise NoRunsError(f"no evaluated run on {', '.join(GAMES)} in {str(runs)!r}")
        lines += own
    paper = {line.method: line for line in lines if line.source == "paper"}
    claims = contradictions(paper, references)
    ordered = sorted(lines, key=lambda line: (-(line.frames or 0), line.source != "paper", line.source != "ours"))
    rows = [row for line in ordered for row in _rows(line, references)]
    tables = {
        "raw": _raw_table(ordered, references),
        "normalised": [row for line in ordered for row in _normalised_rows(line, references)],
        "contradictions": [row for row in claims if not row["holds"]],
    }
    return Result([*rows, *claims], (ordered, references, claims), tables)


def _rows(line: Line, references: References) -> list[Row]:
    printed: tuple[float | None, ...] = (None,) * len(GAMES)
    if line.source == "paper":
        printed = PRINTED[line.method]
    cells = zip(GAMES, line.raw, references.normalise(line.raw), printed, strict=True)
    head = {"method": line.method, "source": line.source, "frames_millions": line.frames, "protocol": line.protocol}
    return [
        {**head, "game": game, "raw": raw, "normalised": value, "printed": shown} for game, raw, value, shown in cells
    ]


def _raw_table(lines: list[Line], references: References) -> list[Row]:
    ends = [Line("reference", name, None, "", raw) for name, raw in vars(references).items()]
    return [_wide(line, line.raw) for line in (*ends, *lines)]


def _normalised_rows(line: Line, references: References) -> list[Row]:
    """The recomputed scores, and behind those of the paper what it prints."""
    values = references.normalise(line.raw)
    last = {"mean": mean(values), "atari5": atari5_score(values)}
    rows = [_wide(line, values) | {name: value and round(value, 1) for name, value in last.items()}]
    if line.source == "paper":
        printed = PRINTED[line.method]
        means = {"mean": PRINTED_MEANS[line.method], "atari5": None}
        rows.append(_wide(replace(line, source="printed"), printed) | means)
    return rows


def _wide(line: Line, cells: tuple[float | None, ...]) -> Row:
    head = {"source": line.source, "method": line.method, "frames_millions": line.frames}
    return head | {game: None if cell is None else round(cell, 1) for game, cell in zip(GAMES, cells, strict=True)}


def draw(result: Result) -> Figure:
    """A row for each line, under the number of frames it had; what the paper prints otherwise stands in red."""
    lines, references, claims = result.data
    wrong = {row["claim"] for row in claims if not row["holds"] and row["where"] == "tab:human_normalized_scores"}
    counts = sorted({line.frames for line in lines}, reverse=True)
    height = len(lines) + len(counts) + 3.8
    made = Figure(figsize=(13.0, 0.27 * height + 1.0), layout="constrained")
    ax = made.subplots()
    ax.set(xlim=(0, RIGHT), ylim=(height, 0))
    ax.set_axis_off()
    _draw_heads(ax, references)
    top = max(atari5_score(references.normalise(line.raw)) or 0.0 for line in lines)
    at = 3.8
    for frames in counts:
        group = [line for line in lines if line.frames == frames]
        ax.text(0, at + 0.5, f"{frames:.3g}M frames", fontweight="bold", va="center")
        ax.axhline(at, color=LIGHT, linewidth=1)
        for k, line in enumerate(group):
            _draw_line(ax, at + 1.5 + k, line, group, references, wrong, top)
        at += len(group) + 1
    made.supxlabel(_footnote(claims), fontsize=9, x=0.01, ha="left")
    return made


# Columns of the figure, in units of its width: the names, five raw scores, five normalised ones, mean, Atari-5.
RAW = tuple(3.6 + 1.25 * k for k in range(5))
NORMALISED = tuple(10.2 + 1.6 * k for k in range(6))
BARS, RIGHT = 19.4, 22.0
TITLES = ("Battle\nZone", "Double\nDunk", "Name This\nGame", "Phoenix", "Q*bert")


def _draw_heads(ax: Axes, references: References) -> None:
    ax.text(RAW[2] - 0.1, 0.3, "raw scores", fontweight="bold", ha="center")
    ax.text(NORMALISED[2], 0.3, "human-normalised, recomputed (printed)", fontweight="bold", ha="center")
    ax.text(BARS, 0.3, "Atari-5 score", fontweight="bold")
    for x, title in [*zip(RAW, TITLES, strict=True), *zip(NORMALISED, (*TITLES, "mean"), strict=True)]:
        ax.text(x, 1.95, title, fontsize=9, ha="center", va="bottom")
    for k, (name, raw) in enumerate(vars(references).items()):
        ax.text(0.3, 2.5 + 0.8 * k, name, color=GREY, fontsize=9, va="center")
        for x, score in zip(RAW, raw, strict=True):
            ax.text(x, 2.5 + 0.8 * k, _score(score), color=GREY, fontsize=9, ha="center", va="center")


def _draw_line(
    ax: Axes, y: float, line: Line, group: list[Line], references: References, wrong: set[str], top: float
) -> None:
    ours = line.source in ("paper", "ours")
    if line.source == "ours":
        ax.add_patch(Rectangle((0, y - 0.5), RIGHT, 1, color=SKY, alpha=0.18, linewidth=0))
    ax.plot([0.15], [y], "o", color=color_of(line.method), markersize=6)
    ax.text(0.4, y, line.title, va="center", fontsize=9.5, color=INK if ours else "#555555")
    columns = list(zip(*(other.raw for other in group), strict=True))
    for x, score, column in zip(RAW, line.raw, columns, strict=True):
        _write(ax, x, y, _score(score), best=score is not None and score == _largest(column))
    values = references.normalise(line.raw)
    rest = [references.normalise(other.raw) for other in group]
    cells = (*values, mean(values))
    columns = list(zip(*((*other, mean(other)) for other in rest), strict=True))
    printed = (*PRINTED[line.method], PRINTED_MEANS[line.method]) if line.source == "paper" else (None,) * 6
    for x, game, value, shown, column in zip(NORMALISED, (*GAMES, "mean"), cells, printed, columns, strict=True):
        best = value is not None and value == _largest(column)
        _write(ax, x, y, _percent(value), best, str(shown) if f"{line.method}, {game}" in wrong else None)
    score = atari5_score(values)
    if score is None:
        ax.text(BARS, y, "—", va="center", fontsize=9.5)
        return
    width = (RIGHT - 0.9 - BARS) * score / top
    alpha = 1.0 if ours else 0.45
    ax.add_patch(Rectangle((BARS, y - 0.33), width, 0.66, color=color_of(line.method), alpha=alpha, linewidth=0))
    ax.text(BARS + width + 0.12, y, f"{score:.0f}", va="center", fontsize=9.5)


def _write(ax: Axes, x: float, y: float, text: str, best: bool, printed: str | None = None) -> None:
    ax.text(x, y, text, ha="center", va="center", fontsize=9.5, fontweight="bold" if best else "normal")
    if printed:
        ax.text(x + 0.46, y, f"({printed})", ha="left", va="center", fontsize=9, color=VERMILLION)


def _largest(column: tuple[float | None, ...]) -> float:
    return max(score for score in column if score is not None)


def _score(score: float | None) -> str:
    if score is None:
        return "—"
    return f"{score:,.0f}" if abs(score) >= 100 else f"{score:.1f}".replace("-", "−")


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{value:.1f}".replace("-", "−")


def _footnote(claims: list[Row]) -> str:
    checked, broken = len(claims), sum(not row["holds"] for row in claims)
    return (
        f"{broken} of {checked} printed claims do not follow from the raw scores (contradictions.csv). Bold: best of "
        "its number of frames.\nThe paper's DQN, C51 and IQN are published results at 200M frames; its NFDRL had 10M "
        "agent steps, 40M frames. Dopamine plays with sticky actions and reports training returns.\n"
        "Rows of your own: nfdrl train --env ALE/BattleZone-v5 --preset atari --out runs/battlezone (and the other "
        "games), then nfdrl paper atari5 --runs runs."
    )


EXPERIMENT = Experiment("atari5", "Atari-5", compute, draw, reads_runs=True)
