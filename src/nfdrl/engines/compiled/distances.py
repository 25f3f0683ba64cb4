"""Distances between sorted returns on the CPU, compiled: value and slope in one pass over memory.

The float32 counterpart of `losses.exact`, `losses.continuous` and `losses.grid`, which are the definition; the tests
hold these functions to them. Numbers that are not finite stay so: a row that has one gets a loss of NaN.

Shapes throughout: returns (B, N), targets (B, M), levels (N,).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdrl.engines.compiled.jit import HALF, ONE, TWO, ZERO, Array, F, compiled, inlined

Grid = tuple[F, F, F, int]
EPS = F(np.finfo(np.float32).eps)


@compiled
def merge(y: Array, v: Array, gain: F) -> tuple[Array, Array]:
    """The squared Cramér distance of sorted samples, and its slope in the first (see `losses.exact`), each × `gain`."""
    rows, n, m = len(y), y.shape[1], v.shape[1]
    values, slopes = np.empty(rows, np.float32), np.empty((rows, n), np.float32)
    up, down = ONE / F(n), ONE / F(m)
    for b in range(rows):
        total, before, last = ZERO, ZERO, ZERO
        i, j = 0, 0
        while i < n or j < m:
            own = j >= m or (i < n and y[b, i] <= v[b, j])
            here = y[b, i] if own else v[b, j]
            if i + j:
                total += before * before * (here - last)
            # Counted rather than accumulated, so that F − G is exactly zero at the end.
            after = F(i + 1) * up - F(j) * down if own else F(i) * up - F(j + 1) * down
            if own:
                slopes[b, i] = (before * before - after * after) * gain
                i += 1
            else:
                j += 1
            before, last = after, here
        values[b] = total * gain
    return values, slopes


@compiled
def lines(y: Array, v: Array, levels: Array, gain: F) -> tuple[Array, Array]:
    """The squared distance to a CDF of straight lines, and its slope, each × `gain` (see `losses.continuous`)."""
    rows, n, last = len(y), y.shape[1], y.shape[1] + 1
    values, slopes = np.empty(rows, np.float32), np.empty((rows, n), np.float32)
    knots, areas, rises = np.empty(n + 2, np.float32), np.empty(n + 2, np.float32), np.empty(n + 1, np.float32)
    heights, share = np.zeros(n + 2, np.float32), TWO / F(n)
    for k in range(n):
        heights[k + 1] = levels[k]
    heights[last] = ONE
    below, above = ZERO, ZERO  # the outermost lines, in those beside them
    if n > 1:
        below = heights[1] / (heights[2] - heights[1])
        above = (ONE - heights[n]) / (heights[n] - heights[n - 1])
    for b in range(rows):
        # Returns are counted from the lowest knot, so that small distances keep their digits.
        low = v[b, 0]
        before, after = below * (v[b, min(1, n - 1)] - low), above * (v[b, n - 1] - v[b, max(n - 2, 0)])
        knots[0] = ZERO
        for k in range(n):
            knots[k + 1] = (v[b, k] - low) + before
        knots[last] = knots[n] + after
        areas[0] = ZERO
        for k in range(n + 1):
            width = knots[k + 1] - knots[k]
            rises[k] = (heights[k + 1] - heights[k]) / width
            areas[k + 1] = areas[k] + HALF * (heights[k] + heights[k + 1]) * width
        total, j = ZERO, 0
        for i in range(n):
            x = (y[b, i] - low) + before
            while j <= last and knots[j] < x:
                j += 1
            height, area = ZERO, ZERO
            if j > last:
                height, area = ONE, areas[last] + (x - knots[last])
            elif j > 0:
                inside = x - knots[j - 1]
                height = heights[j - 1] + inside * rises[j - 1]
                area = areas[j - 1] + HALF * (heights[j - 1] + height) * inside
            if j <= last and knots[j] == x:  # the middle of a jump, where returns coincide
                k = j
                while k < last and knots[k + 1] == x:
                    k += 1
                height = HALF * (heights[j] + heights[k])
            level = heights[i + 1]
            total += (area - areas[i + 1]) - level * (x - knots[i + 1])
            slopes[b, i] = share * (height - level) * gain
        values[b] = share * total * gain
    return values, slopes


@inlined
def share_out(samples: Any, mass: Any, low: Any, step: Any, offset: Any, masses: Any, lefts: Any) -> None:
    """Share the mass of each sample between its two neighbours on the grid."""
    for k in range(len(samples)):
        position = (samples[k] - low) / step + offset
        left = min(max(int(position), 0), len(masses) - 2)
        lefts[k] = left
        right = (position - F(left)) * mass
        masses[left] += mass - right
        masses[left + 1] += right


@compiled
def spread_masses(y: Array, v: Array, grid: Grid) -> tuple[Array, NDArray[np.int32], Array]:
    """Signed masses (B, inner) of both laws on the grid of each row, the grid points left of `y`, and the steps.

    The grid is the number of its steps, their sum in joint ranges, the position of the smallest sample and the number
    of points that can hold mass.
    """
    intervals, margins, offset, inner = grid
    rows, n, m = len(y), y.shape[1], v.shape[1]
    masses, steps = np.zeros((rows, inner), np.float32), np.empty(rows, np.float32)
    lefts = np.zeros((rows, n), np.int32)
    for b in range(rows):
        low, high = min(y[b, 0], v[b, 0]), max(y[b, n - 1], v[b, m - 1])
        least = max(high, -low) * (TWO * EPS) + EPS
        step = max(high - low, least) * margins / intervals
        # A parameter that is not finite spoils all returns of its row.
        steps[b] = step + ZERO * (y[b, 0] + y[b, n - 1] + v[b, 0] + v[b, m - 1])
        if not math.isfinite(steps[b]):
            steps[b] = F(np.nan)
            continue
        share_out(y[b], ONE / F(n), low, step, offset, masses[b], lefts[b])
        share_out(v[b], -ONE / F(m), low, step, offset, masses[b], np.empty(m, np.int32))
    return masses, lefts, steps


@compiled
def read_pull(
    masses: Array, pull: Array, lefts: NDArray[np.int32], steps: Array, surrogate: bool, gain: F
) -> tuple[Array, Array]:
    """Values (B,) and slopes in the samples (B, N) of the quadratic form whose product with the masses is `pull`."""
    rows, n = lefts.shape
    values, slopes = np.empty(rows, np.float32), np.empty((rows, n), np.float32)
    for b in range(rows):
        step = steps[b]
        total = ZERO
        for g in range(masses.shape[1]):
            total += masses[b, g] * pull[b, g]
        values[b] = gain * (total * step if surrogate else total / step)
        factor = gain * TWO / F(n) * (ONE if surrogate else ONE / (step * step))
        for k in range(n):
            left = lefts[b, k]
            slopes[b, k] = (pull[b, left + 1] - pull[b, left]) * factor
    return values, slopes
