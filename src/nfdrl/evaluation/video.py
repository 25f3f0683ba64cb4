"""An episode as a video: the environment's picture next to the return law of every action."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nfdrl.envs.solo import Solo
from nfdrl.envs.watching import Limits
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.episode import End, Env, Player, action_names, learned_returns, play
from nfdrl.evaluation.scene import Scene, fitted
from nfdrl.risk import Risk
from nfdrl.style import color_of, label_of
from nfdrl.threads import threads

DPI = {".gif": 100, ".mp4": 200}  # 640×360 and 1280×720


@dataclass(frozen=True)
class Recording:
    """What a file shows."""

    frames: int
    episode_return: float
    end: End


def check_video(path: Path) -> None:
    """Refuse a file that cannot be written before anything is played."""
    if path.suffix.lower() not in DPI:
        raise NfdrlError(f"a video must be a .mp4 or a .gif file, got {path.name!r}")
    if path.exists():
        raise NfdrlError(f"{str(path)!r} exists: name another file")
    if path.suffix.lower() == ".mp4" and find_spec("imageio_ffmpeg") is None:
        raise NfdrlError('MP4 files need an extra: pip install "nfdrl[video]"; a .gif file needs none')


def record(
    agent: Player,
    env: Env,
    path: Path,
    *,
    seed: int = 10_000,
    max_steps: int = 1_000,
    fps: float | None = None,
    discount: float | None = None,
    limits: Limits | None = None,
) -> Recording:
    """Play one greedy episode and write it to a .mp4 or .gif file.

    If the episode ends and `discount` is the one that the laws were learned with, the return that followed is marked.
    """
    check_video(path)
    if max_steps < 1 or (fps is not None and fps <= 0):
        raise NfdrlError(f"a video needs at least one step and a positive fps, got {max_steps} and {fps}")
    dpi = DPI[path.suffix.lower()]
    # The laws of one observation are too small to share: two threads take eight times as long.
    with threads(1):
        moments, end = play(agent, Solo(env, limits), seed, max_steps, partial(fitted, dpi=dpi))
        followed = learned_returns(moments, env, discount) if end == "terminated" and discount is not None else None
        color = color_of(agent.method)
        scene = Scene(moments, _titles(agent, env, followed), action_names(env), color, dpi, followed)
        write_video(scene, path, float(env.metadata.get("render_fps") or 30) if fps is None else fps)
    return Recording(len(moments), sum(moment.reward for moment in moments), end)


def write_video(scene: Scene, path: Path, fps: float) -> None:
    """Write all frames to a file, which appears once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _complete(path) as unfinished:
        if path.suffix.lower() == ".gif":
            _write_gif(scene, unfinished, fps)
        else:
            _write_mp4(scene, unfinished, fps)


@contextmanager
def _complete(path: Path) -> Iterator[Path]:
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise NfdrlError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _write_gif(scene: Scene, path: Path, fps: float) -> None:
    """One palette for all frames, made from a few of them, so that still parts do not flicker."""
    few = [scene.frame(k) for k in np.unique(np.linspace(0, len(scene) - 1, 6).astype(int))]
    palette = Image.fromarray(np.concatenate(few)).quantize(256, Image.Quantize.MEDIANCUT)
    colors = np.array(palette.getpalette()).reshape(-1, 3)
    colors[colors.min(-1) > 243] = 255  # Pillow's coarse lookup would turn the white page grey
    palette = Image.new("P", (1, 1))
    palette.putpalette(colors.ravel().tolist())
    images = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in scene.frames())
    first = next(images)
    first.save(path, "GIF", save_all=True, append_images=images, duration=round(1000 / fps), loop=0)


def _write_mp4(scene: Scene, path: Path, fps: float) -> None:
    import imageio_ffmpeg  # type: ignore[import-untyped, unused-ignore]

    writer = imageio_ffmpeg.write_frames(
        str(path), scene.size, fps=fps, codec="libx264", quality=8, macro_block_size=2, ffmpeg_log_level="quiet"
    )
    writer.send(None)
    try:
        for frame in scene.frames():
            writer.send(np.ascontiguousarray(frame))
    except OSError:  # with ffmpeg's command, in many lines
        raise OSError(errno.EPIPE, "ffmpeg has stopped: is there room on the disk?") from None
    finally:
        writer.close()


def _titles(agent: Player, env: Env, followed: NDArray[np.float64] | None) -> tuple[str, str]:
    """What is shown, and what the marks mean."""
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    value = str(agent.risk) if isinstance(agent.risk, Risk) else "value"
    marks = f"● {value}" + ("" if followed is None else "     ┆ the return that followed")
    return f"{label_of(agent.method)} · {name}", marks
