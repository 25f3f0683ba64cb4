"""One self-contained HTML file: the page, its script and style, and everything it shows."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from nfdrl.agent import Agent
from nfdrl.errors import NfdrlError
from nfdrl.files import ODD, replace_file
from nfdrl.threads import threads
from nfdrl.viewer.folders import IMAGES, FoundRun, find_figures, read_curve
from nfdrl.viewer.messages import to_text
from nfdrl.viewer.recording import Track, grouped, probe_table, record_episode, ridge_of, state_table
from nfdrl.viewer.report_schema import Report
from nfdrl.viewer.schema import Document, Episode, Figure, StateTable
from nfdrl.viewer.stage import Stage


@dataclass(frozen=True)
class Options:
    """What is recorded."""

    episodes: int = 5
    seed: int = 10_000
    max_steps: int = 2_000
    frames: int = 150  # pictures per episode, at most; 0 for none
    figures: Path | None = None


@dataclass(frozen=True)
class Written:
    """What a file holds, in bytes."""

    total: int
    frames: int
    episodes: int
    steps: int


def record(
    runs: Sequence[FoundRun], load: Callable[[Path], Agent], options: Options, made_by: str, track: Track = iter
) -> Document:
    """Record all that a page shows of the given runs."""
    with threads(1):  # the laws of one observation are too small to share
        stages = [Stage(load(run.folder), pictures=options.frames > 0) for run in runs]
        try:
            agents = [stage.card(run.card, run.dormant()) for stage, run in zip(stages, runs, strict=True)]
            episodes = _episodes(stages, runs, options, track)
            tables = [_table(*group, options) for group in grouped(stages, runs)]
        finally:
            for stage in stages:
                stage.close()
        curves = [curve for run in runs if (curve := read_curve(run)) is not None]
        ridges = [ridge for run in runs if (ridge := ridge_of(run, load, options.seed)) is not None]
    where = "" if len({run.card.env for run in runs}) > 1 else f" on {runs[0].card.env}"
    title = f"{runs[0].card.label if len(runs) == 1 else f'{len(runs)} runs'}{where}"
    figures = [] if options.figures is None else _figures(options.figures)
    return Document(title, made_by, [run.card for run in runs], agents, episodes, tables, curves, ridges, figures)


def _episodes(stages: Sequence[Stage], runs: Sequence[FoundRun], options: Options, track: Track) -> list[Episode]:
    return [
        record_episode(
            stage, run.card.id, options.seed + k, max_steps=options.max_steps, frames=options.frames, track=track
        )
        for stage, run in zip(stages, runs, strict=True)
        for k in range(options.episodes)
    ]


def _table(stages: Sequence[Stage], runs: Sequence[FoundRun], options: Options) -> StateTable:
    return state_table(stages, runs) or probe_table(stages, runs, options.seed)


def _figures(folder: Path) -> list[Figure]:
    """Figures with their pictures inside."""
    return [replace(found.card, image=data_uri(found.path)) for found in find_figures(folder).values()]


def data_uri(path: Path) -> str:
    """A picture as a data URI."""
    return f"data:{IMAGES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"


def write(document: Document, path: Path) -> Written:
    """Write the page to one file, whole or not at all."""
    text = html(document).encode(errors=ODD)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
    except OSError as error:
        raise NfdrlError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    pictures = sum(len(image) for episode in document.episodes if episode.frames for image in episode.frames.images)
    steps = sum(len(episode.taken) for episode in document.episodes)
    return Written(len(text), pictures, len(document.episodes), steps)


def html(document: Document | Report) -> str:
    """The page with its parts inside; its policy lets nothing else run, and nothing be loaded from anywhere."""
    script, style = asset("page.js"), asset("page.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    data = to_text(document).replace("<", "\\u003c")  # so that no text of a run can end the element
    parts = {
        "<!--policy-->": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<link rel="stylesheet" href="static/page.css">': f"<style>{style}</style>",
        '<script type="module" src="static/page.js"></script>': (
            f'<script type="application/json" id="document">{data}</script>\n<script type="module">{script}</script>'
        ),
    }
    text = asset("page.html")
    for place, content in parts.items():
        before, found, after = text.partition(place)
        assert found, place
        text = before + content + after
    return text


def asset(name: str) -> str:
    """A part of the page that was built from `web/`."""
    return (files("nfdrl.viewer") / "static" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
