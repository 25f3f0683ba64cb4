"""Frames of a video: the environment's picture next to the return law of every action."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from numpy.typing import NDArray
from PIL import Image

from nfdrl.colours import GREY, INK, LIGHT
from nfdrl.evaluation.episode import Array, Moment, Pixels
from nfdrl.laws import Law
from nfdrl.style import STYLE, to_numpy

INCHES = (6.4, 3.6)
BINS = 200  # of the axis of returns
TAIL = 0.01  # of each law that may lie outside the axis
FADE = 0.9  # factor per frame by which the scale of the densities may fall
PALE, EDGE = "#e4e7ea", "#b3bac0"  # laws of actions that are not taken
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
