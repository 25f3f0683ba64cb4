"""The monotone network of UMDQN on the CPU, compiled.

Its first layer is a straight line in the return for each unit, cut off at zero. So the input of the second layer is a
broken line, which bends once per unit of the first: between two bends a step along the grid costs one product per unit
of the second layer, instead of one per pair of units. The gradients are sums over the points at which a unit is on,
which is one end of the grid: all of them come from one running sum.
"""

from __future__ import annotations

import math

import numpy as np

from nfdrl.engines.compiled.jit import HALF, ONE, ZERO, Array, F, compiled_sums, inlined

Weights = tuple[Array, Array, Array, Array, Array]  # slopes in the return, hidden (transposed), output; two biases


@inlined
def _bends(first: Array, slopes: Array, position: Array, bend: Array, on: Array) -> Array:
    """For each unit whether it is on at the first point, and the point from which it is not as it was there.

    The units that bend at a point are chained: `bend[p]` is one of them and `after[j]` the next, −1 for none. Those
    that do not bend are chained at the end.
    """
    last = len(position) - 1
    after = np.empty(len(first), np.int64)
    bend[:] = -1
    for j in range(len(first)):
        on[j] = first[j] + slopes[j] * position[0] > ZERO
        low, high = 0, last + 1  # as at the first point; not as there, or the end
        if (first[j] + slopes[j] * position[last] > ZERO) != on[j]:
            high = last
            while high - low > 1:
                middle = (low + high) // 2
                if (first[j] + slopes[j] * position[middle] > ZERO) == on[j]:
                    low = middle
                else:
                    high = middle
        after[j] = bend[high]
        bend[high] = j
    return after


@inlined
def _second_layer(
    first: Array,
    slopes: Array,
    hidden: Array,
    hidden_bias: Array,
    position: Array,
    bend: Array,
    after: Array,
    on: Array,
    units: Array,
) -> None:
    """The second layer's units at all points; shape (P, H). Sums are kept in float64, and moved at each bend."""
    width, points = len(hidden), len(position)
    level, rise = hidden_bias.astype(np.float64), np.zeros(width)  # input = level + rise · position
    for j in range(width):
        if on[j]:
            for k in range(width):
                level[k] += np.float64(first[j]) * hidden[j, k]
            for k in range(width):
                rise[k] += np.float64(slopes[j]) * hidden[j, k]
    for p in range(points):
        j = bend[p]
        while j >= 0:
            sign = np.float64(-1.0) if on[j] else np.float64(1.0)
            base, lean = sign * first[j], sign * slopes[j]
            for k in range(width):
                level[k] += base * hidden[j, k]
            for k in range(width):
                rise[k] += lean * hidden[j, k]
            j = after[j]
        for k in range(width):
            value = F(level[k] + rise[k] * position[p])
            units[p, k] = value if value > ZERO else ZERO


@inlined
def _cumulative(out: Array, affine: Array, width: F, found: Array, integral: Array) -> F:
    """F = σ(offset + slope ∫ g), g = elu + 1, from the middle of the grid; 0 and 1 at its ends. Returns the slope."""
    points, offset, slope = len(out), affine[0], F(math.exp(affine[1]))
    total, before = ZERO, ZERO
    for p in range(points):
        value = out[p] + ONE if out[p] > ZERO else F(math.exp(out[p]))
        total += HALF * width * (value + before) if p else ZERO
        integral[p], before = total, value
    middle = HALF * (integral[(points - 1) // 2] + integral[points // 2])
    for p in range(points):
        integral[p] -= middle
        found[p] = ONE / (ONE + F(math.exp(-(offset + slope * integral[p]))))
    found[0], found[points - 1] = ZERO, ONE
    return slope


@compiled_sums
def cumulatives(first: Array, affine: Array, chosen: Array, weights: Weights, grid: tuple[Array, F]) -> Array:
    """CDFs on the grid of the chosen actions (see `laws.monotone.MonotoneHead`); `first` is the layer without returns.

    Shapes: (B, H), (B, 2A), (B, R) → (B, R, P)
    """
    slopes, hidden, hidden_bias, output, output_bias = weights
    position, cell = grid
    rows, width, points, actions = len(first), len(hidden), len(position), len(output)
    found = np.empty((rows, chosen.shape[1], points), np.float32)
    units, integral = np.empty((points, width), np.float32), np.empty(points, np.float32)
    bend, on = np.empty(points + 1, np.int64), np.empty(width, np.bool_)
    for b in range(rows):
        after = _bends(first[b], slopes, position, bend, on)
        _second_layer(first[b], slopes, hidden, hidden_bias, position, bend, after, on, units)
        for r in range(chosen.shape[1]):
            act = chosen[b, r]
            out = np.dot(units, output[act]) + output_bias[act]
            own = np.array([affine[b, act], affine[b, actions + act]])
            _cumulative(out, own, cell, found[b, r], integral)
    return found


@compiled_sums
def moved(cumulative: Array, low: F, step: F, reward: Array, discount: Array) -> Array:
    """The CDF of r + γZ on the grid on which that of Z is given; a step at r for γ = 0. Shape (B, P) → (B, P)."""
    rows, points = cumulative.shape
    found = np.empty((rows, points), np.float32)
    for b in range(rows):
        for p in range(points):
            y = low + F(p) * step
            if discount[b] > ZERO:
                position = ((y - reward[b]) / discount[b] - low) / step
                if not position < F(points - 1):  # beyond the grid, or nowhere
                    found[b, p] = ONE if position >= F(points - 1) else F(np.nan)
                elif position > ZERO:
                    cell = int(position)
                    part = position - F(cell)
                    found[b, p] = cumulative[b, cell] + part * (cumulative[b, cell + 1] - cumulative[b, cell])
                else:
                    found[b, p] = ZERO
            else:
                found[b, p] = (ONE if y >= reward[b] else ZERO) + ZERO * reward[b]
    return found


@compiled_sums
def descend(
    first: Array,
    affine: Array,
    action: Array,
    targets: Array,
    step: F,
    share: Array,
    weights: Weights,
    grid: tuple[Array, F],
) -> tuple[Array, Array, Array, Weights]:
    """∫(F − G)² dy per row, and its gradients in `first`, in `affine` and in the weights, weighted by `share`.

    Shapes: (B, H), (B, 2A), (B,), (B, P), (), (B,) → (B,), (B, H), (B, 2A), those of the weights
    """
    slopes, hidden, hidden_bias, output, output_bias = weights
    position, cell = grid
    rows, width, points, actions = len(first), len(hidden), len(position), len(output)
    into_slopes, into_hidden, into_hidden_bias = (
        np.zeros_like(slopes),
        np.zeros_like(hidden),
        np.zeros_like(hidden_bias),
    )
    into_output, into_output_bias = np.zeros_like(output), np.zeros_like(output_bias)
    losses, into_first, into_affine = np.zeros(rows, np.float32), np.zeros_like(first), np.zeros_like(affine)
    units, integral = np.empty((points, width), np.float32), np.empty(points, np.float32)
    bend, on = np.empty(points + 1, np.int64), np.empty(width, np.bool_)
    found, pull = np.empty(points, np.float32), np.empty(points, np.float32)
    sums, turned = np.empty((points + 1, width), np.float32), np.empty((points + 1, width), np.float32)
    for b in range(rows):
        act = action[b]
        after = _bends(first[b], slopes, position, bend, on)
        _second_layer(first[b], slopes, hidden, hidden_bias, position, bend, after, on, units)
        out = np.dot(units, output[act]) + output_bias[act]
        own = np.array([affine[b, act], affine[b, actions + act]])
        scale = _cumulative(out, own, cell, found, integral)
        # Back to the values of the integrand: `pull` is the slope in the integral up to each point.
        of_offset, of_scale, of_middle = ZERO, ZERO, ZERO
        for p in range(points):
            gap = found[p] - targets[b, p]
            losses[b] += gap * gap * step
            moving = share[b] * F(2) * gap * step * found[p] * (ONE - found[p])
            of_offset += moving
            of_scale += moving * scale * integral[p]
            of_middle += moving * scale
            pull[p] = moving * scale
        into_affine[b, act], into_affine[b, actions + act] = of_offset, of_scale
        pull[(points - 1) // 2] -= HALF * of_middle
        pull[points // 2] -= HALF * of_middle
        beyond = ZERO
        for p in range(points - 1, -1, -1):
            here = beyond + pull[p] if p else ZERO  # of the cell before the point, and `beyond` of the one after it
            pull[p] = HALF * cell * (here + beyond) * (ONE if out[p] > ZERO else F(math.exp(out[p])))
            beyond = here
        into_output[act] += np.dot(pull, units)
        into_output_bias[act] += pull.sum()
        # Slopes in the second layer's inputs, summed over the points so far, alone and times the position.
        sums[0], turned[0] = ZERO, ZERO
        for p in range(points):
            for k in range(width):
                units[p, k] = pull[p] * output[act, k] if units[p, k] > ZERO else ZERO
            for k in range(width):  # one array is written per loop, so that it vectorises
                sums[p + 1, k] = sums[p, k] + units[p, k]
            for k in range(width):
                turned[p + 1, k] = turned[p, k] + units[p, k] * position[p]
        into_hidden_bias += sums[points]
        for p in range(points + 1):
            j = bend[p]
            while j >= 0:
                if on[j] or p < points:  # on at the points before this one, or from this one on
                    of_first, of_slope, base, lean = ZERO, ZERO, first[b, j], slopes[j]
                    start, end = (0, p) if on[j] else (p, points)
                    for k in range(width):
                        of_first += (sums[end, k] - sums[start, k]) * hidden[j, k]
                        of_slope += (turned[end, k] - turned[start, k]) * hidden[j, k]
                    for k in range(width):
                        level, rise = sums[end, k] - sums[start, k], turned[end, k] - turned[start, k]
                        into_hidden[j, k] += base * level + lean * rise
                    into_first[b, j] = of_first
                    into_slopes[j] += of_slope
                j = after[j]
    return losses, into_first, into_affine, (into_slopes, into_hidden, into_hidden_bias, into_output, into_output_bias)
