"""An episode as a video: the environment's picture next to the return law of every action."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import gymnasium
import matplotlib
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from nfdrl.bellman import Valuation
from nfdrl.colours import GREY, INK, LIGHT
from nfdrl.envs.make import Source
from nfdrl.errors import NfdrlError
from nfdrl.laws import Law, Method
from nfdrl.risk import Risk
from nfdrl.style import STYLE, color_of, label_of, to_numpy
from nfdrl.threads import threads

Array = NDArray[Any]
Pixels = NDArray[np.uint8]
Env = gymnasium.Env[Any, Any]
End = Literal["terminated", "truncated", "cut off"]  # by the environment, by its time limit, by the recording's

INCHES = (6.4, 3.6)
DPI = {".gif": 100, ".mp4": 200}  # 640×360 and 1280×720
BINS = 200  # of the axis of returns
TAIL = 0.01  # of each law that may lie outside the axis
FADE = 0.9  # factor per frame by which the scale of the densities may fall
PALE, EDGE = "#e4e7ea", "#b3bac0"  # laws of actions that are not taken

# What the actions do in those of Gymnasium's own environments that do not say it themselves.
ACTIONS = {
    "CartPole": ("← push", "push →"),
    "MountainCar": ("←", "·", "→"),
    "Acrobot": ("−", "0", "+"),
    "FrozenLake": ("←", "↓", "→", "↑"),
    "CliffWalking": ("↑", "→", "↓", "←"),
    "Taxi": ("↓", "↑", "→", "←", "pick up", "drop off"),
    "LunarLander": ("coast", "left", "main", "right"),
    "Blackjack": ("stick", "hit"),
}


class Player(Protocol):
    """What a video needs of an agent."""

    risk: Valuation

    @property
    def method(self) -> Method:
        """How it learns."""

    def predict(self, observation: ArrayLike) -> tuple[Array, None]:
        """The action for an observation."""

    def returns(self, observation: ArrayLike) -> Law:
        """The return law of every action."""


@dataclass(frozen=True)
class Moment:
    """One step of an episode: the picture, each action's law and value, the action taken, and its reward."""

    picture: Pixels
    law: Law
    value: NDArray[np.float64]
    action: int
    reward: float
    life_lost: bool


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


def rendering_env(source: Source) -> Env:
    """A new environment that draws itself."""
    plain = source.fresh()
    modes, spec = plain.metadata.get("render_modes") or (), copy.deepcopy(plain.spec)
    plain.close()
    assert spec is not None
    if "rgb_array" not in modes:
        raise NfdrlError(f"environment {source.name!r} draws no pictures: it has no render mode rgb_array")
    env = gymnasium.make(spec, render_mode="rgb_array", disable_env_checker=True)
    try:
        env.reset(seed=0)
        env.render()
    except gymnasium.error.DependencyNotInstalled:
        raise NfdrlError(f'pictures of {source.name!r} need an extra: pip install "nfdrl[video]"') from None
    return env


def record(
    agent: Player,
    env: Env,
    path: Path,
    *,
    seed: int = 10_000,
    max_steps: int = 1_000,
    fps: float | None = None,
    discount: float | None = None,
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
        moments, end = play(agent, env, seed, max_steps, dpi)
        followed = learned_returns(moments, env, discount) if end == "terminated" and discount is not None else None
        color = color_of(agent.method)
        scene = Scene(moments, _titles(agent, env, followed), action_names(env), color, dpi, followed)
        write_video(scene, path, float(env.metadata.get("render_fps") or 30) if fps is None else fps)
    return Recording(len(moments), sum(moment.reward for moment in moments), end)


def play(agent: Player, env: Env, seed: int, max_steps: int, dpi: int) -> tuple[list[Moment], End]:
    """The moments of an episode, and how it ended."""
    start = getattr(env.action_space, "start", 0)
    observation, info = env.reset(seed=seed)
    moments: list[Moment] = []
    for _ in range(max_steps):
        picture, law = fitted(np.asarray(env.render()), dpi), agent.returns(observation)
        action = int(agent.predict(observation)[0])
        lives = info.get("lives", 0)
        observation, reward, terminated, truncated, info = env.step(action)
        life_lost = info.get("lives", 0) < lives
        value = to_numpy(agent.risk(law))
        moments.append(Moment(picture, law, value, action - int(start), float(reward), life_lost))
        if terminated or truncated:
            return moments, "terminated" if terminated else "truncated"
    return moments, "cut off"


def learned_returns(moments: Sequence[Moment], env: Env, discount: float) -> NDArray[np.float64]:
    """The return that followed each moment as learning sees it: Atari's protocols clip rewards and end at lives."""
    rewards, lives = (np.array([getattr(moment, name) for moment in moments]) for name in ("reward", "life_lost"))
    return discounted(*as_learned(env, rewards, lives), discount)


def as_learned(
    env: Env, rewards: NDArray[np.float64], life_lost: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rewards, and the steps at which returns end, as learning counts them."""
    protocol = env.spec.kwargs.get("protocol") if env.spec is not None else None
    ends = life_lost & getattr(protocol, "life_loss", False)
    return np.sign(rewards) if getattr(protocol, "clip", False) else rewards, ends


def discounted(rewards: NDArray[np.float64], ends: NDArray[np.bool_], discount: float) -> NDArray[np.float64]:
    """Σ γᵏ r from each step up to the next end.

    >>> discounted(np.array([1.0, 0.0, 4.0]), np.array([False, False, True]), 0.5)
    array([2., 2., 4.])
    """
    following = np.zeros(len(rewards) + 1)
    for t in reversed(range(len(rewards))):
        following[t] = rewards[t] + (0.0 if ends[t] else discount * following[t + 1])
    return following[:-1]


# The layout, in fractions of the video's frame: the picture is on the left and ends at WIDEST at most.
LEFT, BOTTOM, TOP, WIDEST = 0.025, 0.13, 0.86, 0.56


def fitted(picture: Array, dpi: int) -> Pixels:
    """A rendered picture at its size in the video; large pixels stay sharp squares."""
    height, width = picture.shape[:2]
    room = (WIDEST - LEFT) * INCHES[0] * dpi, (TOP - BOTTOM) * INCHES[1] * dpi
    scale = min(room[0] / width, room[1] / height)
    how = Image.Resampling.NEAREST if scale >= 2 else Image.Resampling.BICUBIC
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(Image.fromarray(np.asarray(picture, np.uint8)).convert("RGB").resize(size, how))


class Scene:
    """Draws frames of the video: the still parts once, and per frame only what moves."""

    def __init__(
        self,
        moments: Sequence[Moment],
        titles: tuple[str, str],
        names: Sequence[str],
        color: str,
        dpi: int,
        followed: NDArray[np.float64] | None,
    ) -> None:
        self.moments, self.color, self.followed = moments, color, followed
        self.scores = np.concatenate([[0.0], np.cumsum([moment.reward for moment in moments])])
        self.edges = axis_of([moment.law for moment in moments], followed)
        self.names = names if names else tuple(f"action {k}" for k in range(len(moments[0].law.mean())))
        with matplotlib.rc_context(STYLE):
            self._build(titles, dpi)
        self._scale = 0.0

    def _build(self, titles: tuple[str, str], dpi: int) -> None:
        made = Figure(figsize=INCHES, dpi=dpi)
        agg: Any = FigureCanvasAgg  # whose methods are untyped
        self.canvas = agg(made)
        height, width = self.moments[0].picture.shape[:2]
        self.corner = round(LEFT * INCHES[0] * dpi), round((1 - TOP) * INCHES[1] * dpi)
        self.corner = self.corner[0], self.corner[1] + round(((TOP - BOTTOM) * INCHES[1] * dpi - height) / 2)
        self._frame(made, width, height)
        longest = max(len(name) for name in self.names)
        rows = len(self.names)
        small = min(9.0, 100 / rows)  # the size of the actions' names
        left = LEFT + width / (INCHES[0] * dpi) + 0.035 + 0.0014 * small * longest
        made.text(LEFT, 0.925, titles[0], fontsize=11, fontweight="bold", va="center")
        made.text(LEFT, 0.055, titles[1], fontsize=8, color=GREY, va="center")
        ax = made.add_axes((left, BOTTOM + 0.03, 0.975 - left, TOP - BOTTOM - 0.03))
        ax.set(xlim=(self.edges[0], self.edges[-1]), ylim=(-0.12, rows), yticks=())
        ax.spines["left"].set_visible(False)
        ax.tick_params(labelsize=8, length=3)
        ax.locator_params(axis="x", nbins=5)
        ax.set_xlabel("discounted return from here on", fontsize=8.5, labelpad=2)
        self.fills: list[Polygon] = []
        self.labels = []
        for k, name in enumerate(self.names):
            floor = rows - 1 - k
            ax.axhline(floor, color=PALE, linewidth=0.8, zorder=0)
            self.fills.append(Polygon(np.zeros((3, 2)), closed=True, linewidth=1.1, animated=True))
            ax.add_patch(self.fills[-1])
            label = ax.text(-0.025, floor + 0.3, name, transform=ax.get_yaxis_transform(), ha="right", va="center",
                            fontsize=small, animated=True)  # fmt: skip
            self.labels.append(label)
        dot = {"marker": "o", "linestyle": "", "markersize": min(5.0, 60 / rows), "animated": True, "clip_on": False}
        (self.values,) = ax.plot([], [], color=EDGE, **dot)  # type: ignore[arg-type]
        (self.value,) = ax.plot([], [], color=INK, **dot)  # type: ignore[arg-type]
        (self.truth,) = ax.plot([], [], linestyle=(0, (3, 2)), color=INK, linewidth=1.1, animated=True)
        self.score = made.text(0.975, 0.925, "", fontsize=10, ha="right", va="center", animated=True)
        self.canvas.draw()
        self.background = self.canvas.copy_from_bbox(made.bbox)

    def _frame(self, made: Figure, width: int, height: int) -> None:
        """A thin line around the picture, which may be as white as the page."""
        (x, y), (wide, high) = self.corner, self.size
        box = Rectangle((x / wide, 1 - (y + height) / high), width / wide, height / high, transform=made.transFigure)
        box.set(facecolor="none", edgecolor=LIGHT, linewidth=1.5)
        made.add_artist(box)

    def __len__(self) -> int:
        return len(self.moments)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        width, height = self.canvas.get_width_height()
        return width, height

    def frames(self) -> Iterator[Pixels]:
        """Every frame, in order; each is a copy of shape (height, width, 3)."""
        self._scale = 0.0
        for k in range(len(self)):
            yield self.frame(k)

    def frame(self, k: int) -> Pixels:
        """The k-th frame."""
        moment = self.moments[k]
        self._update(k, moment)
        self.canvas.restore_region(self.background)
        renderer = self.canvas.get_renderer()
        for artist in (*self.fills, *self.labels, self.truth, self.values, self.value, self.score):
            artist.draw(renderer)
        pixels = np.array(self.canvas.buffer_rgba())[..., :3]
        (x, y), (height, width) = self.corner, moment.picture.shape[:2]
        pixels[y : y + height, x : x + width] = moment.picture
        return pixels

    def _update(self, k: int, moment: Moment) -> None:
        heights = densities(moment.law, self.edges)
        self._scale = max(float(heights.max()), FADE * self._scale, 1e-12)
        centres = (self.edges[1:] + self.edges[:-1]) / 2
        x = np.concatenate([self.edges[:1], centres, self.edges[-1:]])
        rows = len(self.names)
        for a, (fill, label) in enumerate(zip(self.fills, self.labels, strict=True)):
            floor, taken = rows - 1 - a, a == moment.action
            curve = floor + 0.9 * heights[a] / self._scale
            fill.set_xy(np.column_stack([x, np.concatenate([[floor], curve, [floor]])]))
            fill.set(facecolor=self.color if taken else PALE, edgecolor=self.color if taken else EDGE)
            fill.set_alpha(0.85 if taken else 1.0)
            label.set(color=self.color if taken else GREY, fontweight="bold" if taken else "normal")
        floors = np.arange(rows - 1, -1, -1.0)
        values = np.clip(moment.value, self.edges[0], self.edges[-1])
        others = np.arange(rows) != moment.action
        self.values.set_data(values[others], floors[others])
        self.value.set_data(values[[moment.action]], floors[[moment.action]])
        if self.followed is not None:
            self.truth.set_data([self.followed[k]] * 2, [0, rows])
        self.score.set_text(f"step {k + 1}   return {self.scores[k]:.4g}")


def axis_of(laws: Sequence[Law], followed: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Edges of BINS bins that hold nearly all of nearly all laws, and the returns that followed."""
    levels = torch.tensor([TAIL, 1 - TAIL], dtype=laws[0].reference.dtype, device=laws[0].reference.device)
    ends = np.stack([to_numpy(law.quantile(levels)) for law in laws])  # (T, A, 2)
    low, high = float(np.quantile(ends[..., 0], TAIL)), float(np.quantile(ends[..., 1], 1 - TAIL))
    if followed is not None:
        low, high = min(low, float(followed.min())), max(high, float(followed.max()))
    margin = 0.06 * (high - low) or 0.5
    return np.linspace(low - margin, high + margin, BINS + 1)


def densities(law: Law, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mass per width of each bin, from the CDF, so that no peak is missed; shape (A, BINS)."""
    at = torch.as_tensor(edges, dtype=law.reference.dtype, device=law.reference.device)
    below = to_numpy(law.cdf(at))
    return np.asarray(np.diff(below, axis=-1).clip(min=0) / np.diff(edges))


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
        str(path), scene.size, fps=fps, codec="libx264", quality=8, macro_block_size=2, ffmpeg_log_level="error"
    )
    writer.send(None)
    try:
        for frame in scene.frames():
            writer.send(np.ascontiguousarray(frame))
    finally:
        writer.close()


def _titles(agent: Player, env: Env, followed: NDArray[np.float64] | None) -> tuple[str, str]:
    """What is shown, and what the marks mean."""
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    value = str(agent.risk) if isinstance(agent.risk, Risk) else "value"
    marks = f"● {value}" + ("" if followed is None else "     ┆ the return that followed")
    return f"{label_of(agent.method)} · {name}", marks


def action_names(env: Env) -> tuple[str, ...]:
    """What the actions do, where that is known; otherwise nothing."""
    meanings = getattr(env.unwrapped, "get_action_meanings", None)
    if meanings is not None:
        return tuple(str(name).lower() for name in meanings())
    return ACTIONS.get(env.spec.name, ()) if env.spec is not None else ()
