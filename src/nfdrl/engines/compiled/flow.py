"""The arithmetic of flow laws on the CPU, compiled: each function is one pass over memory.

The float32 counterpart of `laws.flow`, `losses.exact`, `losses.continuous` and `losses.grid`, which are the definition; the tests hold
these functions to them. A hundred small operations become five calls, which saves most of the time of an update.

Numbers that are not finite stay so: a row that has one gets a loss of NaN.

Shapes throughout: raw outputs (B, 3n + 1), base points (N,), returns (B, N), targets (B, M).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdrl.engines.compiled.jit import HALF, ONE, TWO, ZERO, Array, F, compiled, compiled_sums, inlined

# What is added to raw outputs; the least scale; the unit of returns; the anchor, negative where there is none; and the
# limits of anchored locations and scales.
Law = tuple[Array, F, F, F, F, F]
Grid = tuple[F, F, F, int]

LOG2_E, LN2_HIGH, LN2_LOW = F(1.44269504), F(0.693359375), F(-2.12194440e-4)
LEAST_EXPONENT = F(-87.0)  # e⁻⁸⁷ is the smallest normal float
SQRT_HALF, TWO_OVER_SQRT_PI = F(math.sqrt(0.5)), F(2 / math.sqrt(math.pi))
EPS = F(np.finfo(np.float32).eps)


@inlined
def exp_negative(x: Any) -> Any:
    """eˣ for x ≤ 0, as 2ⁿ times a polynomial on ±½ ln 2 (Cephes, expf); compilers can vectorise it."""
    x = max(x, LEAST_EXPONENT)
    n = np.floor(x * LOG2_E + HALF)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return (p * r * r + r + ONE) * power


@inlined
def erf_of(t: Any, gauss: Any) -> Any:
    """erf(t) where e^{−t²} is known (Abramowitz and Stegun 7.1.26).

    Its absolute error is at most 5e-7, a few roundings of a float near 1: returns are off by that share of their law's
    range. Relative to a small erf(t) it is large (0.5 % at t = 1e-4), but no return or gradient here depends on that.
    """
    q = ONE / (ONE + F(0.3275911) * abs(t))
    p = F(1.061405429) * q + F(-1.453152027)
    p = p * q + F(1.421413741)
    p = p * q + F(-0.284496736)
    p = p * q + F(0.254829592)
    return math.copysign(ONE - p * q * gauss, t)


@inlined
def softplus(x: Any) -> Any:
    """log(1 + eˣ) = max(x, 0) + log(1 + u), u = e^{−|x|}, with log(1 + u) = 2 artanh(u/(2 + u)) as a series."""
    u = exp_negative(-abs(x))
    s = u / (TWO + u)  # at most ⅓
    q = s * s
    p = F(1 / 11)
    p = p * q + F(1 / 9)
    p = p * q + F(1 / 7)
    p = p * q + F(1 / 5)
    p = p * q + F(1 / 3)
    return max(x, ZERO) + TWO * s * (p * q + ONE)


@inlined
def sigmoid(x: Any) -> Any:
    """1/(1 + e⁻ˣ); NaN where x is not finite."""
    u = exp_negative(-abs(x))
    return (ONE if x >= ZERO else u) / (ONE + u) + ZERO * x


@inlined
def read_rows(raw: Any, law: Any) -> Any:
    """Amplitudes, locations and scales (3, n, B); G (B,), and where the middles of the supports are (B,).

    Amplitudes are those of the error functions: Gwᵢ of `FlowLaw.from_raw`, ½aᵢ of `anchored_law`. Rows lie side by
    side, so that what is done to each of them vectorises.
    """
    shift, least_scale, unit, anchor, reach, widest = law
    rows, n, columns = len(raw), raw.shape[1] // 3, raw.T.copy()
    parts = np.empty((3, n, rows), np.float32)
    bounds, middles = np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    if anchor >= ZERO:
        for b in range(rows):
            middles[b] = unit * (columns[3 * n, b] + shift[3 * n])
        for i in range(n):
            for b in range(rows):
                size = columns[i, b] + shift[i]
                side = -ONE if size < ZERO else ONE
                place = side * (columns[n + i, b] + shift[n + i]) / reach
                location = reach * (TWO * sigmoid(TWO * place) - ONE)  # tanh
                scale = least_scale + widest * sigmoid(columns[2 * n + i, b] + shift[2 * n + i])
                amplitude = HALF * unit * abs(size)
                q = anchor_of(location, scale, anchor)
                parts[0, i, b], parts[1, i, b], parts[2, i, b] = amplitude, location, scale
                bounds[b] += amplitude
                middles[b] -= amplitude * erf_of(q, exp_negative(-q * q))
    else:
        largest, total = np.full(rows, F(-np.inf)), np.zeros(rows, np.float32)
        for i in range(n):
            for b in range(rows):
                largest[b] = max(largest[b], columns[i, b] + shift[i])
        for i in range(n):
            for b in range(rows):
                weight = exp_negative(columns[i, b] + shift[i] - largest[b])
                parts[0, i, b], parts[1, i, b] = weight, columns[n + i, b] + shift[n + i]
                parts[2, i, b] = least_scale + softplus(columns[2 * n + i, b] + shift[2 * n + i])
                total[b] += weight
        for b in range(rows):
            bounds[b] = unit * softplus(columns[3 * n, b] + shift[3 * n])
        for i in range(n):
            for b in range(rows):
                parts[0, i, b] *= bounds[b] / total[b]
    return parts, bounds, middles


@inlined
def anchor_of(location: Any, scale: Any, anchor: Any) -> Any:
    """−μ/√(2s² + 2σ²), whose error function is 2κ − 1."""
    return -location / F(math.sqrt(TWO * (anchor * anchor + scale * scale)))


@compiled
def means(raw: Array, law: Law) -> Array:
    """Σ aᵢ erf(−μᵢ/√(2 + 2σᵢ²)); shape (B, 3n + 1) → (B,)."""
    parts, _, middles = read_rows(raw, law)
    result: Array = middles
    for i in range(parts.shape[1]):
        for b in range(len(raw)):
            probit = anchor_of(parts[1, i, b], parts[2, i, b], ONE)
            result[b] += parts[0, i, b] * erf_of(probit, exp_negative(-probit * probit))
    return result


NODES, NODE_WEIGHTS = (part.astype(np.float32) for part in np.polynomial.legendre.leggauss(16))
TWO_PI = F(2 * math.pi)


@inlined
def normal_cdf(z: Any) -> Any:
    """Φ(z)."""
    t = z * SQRT_HALF
    return HALF + HALF * erf_of(t, exp_negative(-t * t))


@inlined
def owen_integral(h: Any, a: Any) -> Any:
    """T(h, a) for 0 ≤ a ≤ 1 (see `numerics.normal`), to a float's precision."""
    total = ZERO
    for k in range(len(NODES)):
        x = HALF * a * (NODES[k] + ONE)
        one_plus = ONE + x * x
        total += NODE_WEIGHTS[k] * exp_negative(-HALF * h * h * one_plus) / one_plus
    return HALF * a * total / TWO_PI


@inlined
def owen_t(h: Any, ah: Any) -> Any:
    """T(h, a) with the slope given as the product a·h; slopes above 1 are folded (see `numerics.normal`)."""
    sign = -ONE if h * ah < ZERO else ONE
    h, ah = abs(h), abs(ah)
    inner, outer = max(h, ah), min(h, ah)
    integral = owen_integral(inner, outer / max(inner, F(1e-30)))
    below, above = normal_cdf(h), normal_cdf(ah)
    folded = HALF * (below + above) - below * above - integral
    return sign * (folded if ah > h else integral)


@compiled_sums
def cvars(raw: Array, law: Law, alpha: F, level: F) -> Array:
    """G(2 Σ wᵢ Φ₂(aᵢ, Φ⁻¹(α); ρᵢ)/α − 1), aᵢ = −μᵢ/√(1+σᵢ²), ρᵢ = −1/√(1+σᵢ²); shape (B, 3n + 1) → (B,).

    Φ₂ by Owen's T function, as in `numerics.normal`; √(1−ρ²) is −ρσ.
    """
    parts, bounds, middles = read_rows(raw, law)
    result = np.empty(len(raw), np.float32)
    level_mass = normal_cdf(level)
    for b in range(len(raw)):
        total = ZERO
        for i in range(parts.shape[1]):
            scale = parts[2, i, b]
            rho = -ONE / F(math.sqrt(ONE + scale * scale))
            a, root = parts[1, i, b] * rho, -rho * scale
            opposite = ONE if a * level < ZERO else ZERO
            joint = HALF * (normal_cdf(a) + level_mass - opposite)
            joint -= owen_t(a, (level - rho * a) / root) + owen_t(level, (a - rho * level) / root)
            total += parts[0, i, b] * min(max(joint, ZERO), ONE)
        result[b] = middles[b] + TWO * total / alpha - bounds[b]
    return result


@compiled
def returns(raw: Array, law: Law, z: Array, kept: int) -> tuple[Array, tuple[Array, Array, Array, Array]]:
    """Returns at base points, and what `gradient` needs of the first `kept` rows.

    That is erf and e^{−t²} (n, N) of each, all other rows sharing one that nobody reads, and parts and G of all.
    """
    parts, bounds, middles = read_rows(raw, law)
    rows, n, count = len(raw), parts.shape[1], len(z)
    y = np.empty((rows, count), np.float32)
    erfs, gausses = np.empty((kept + 1, n, count), np.float32), np.empty((kept + 1, n, count), np.float32)
    for b in range(rows):
        s = min(b, kept)
        y[b] = middles[b]
        for i in range(n):
            rate = SQRT_HALF / parts[2, i, b]
            offset, amplitude = -parts[1, i, b] * rate, parts[0, i, b]
            for k in range(count):
                t = rate * z[k] + offset
                gauss = exp_negative(-t * t)
                value = erf_of(t, gauss)
                gausses[s, i, k], erfs[s, i, k] = gauss, value
                y[b, k] += amplitude * value
    return y, (erfs, gausses, parts, bounds)


@compiled_sums
def gradient(slope: Array, raw: Array, law: Law, z: Array, saved: tuple[Array, Array, Array, Array]) -> Array:
    """Slopes in the returns (B, N) to slopes in the raw outputs."""
    erfs, gausses, parts, bounds = saved
    rows, n = len(slope), parts.shape[1]
    result, to_middle = np.empty((3 * n + 1, rows), np.float32), np.empty(rows, np.float32)
    for b in range(rows):
        pull, total = slope[b], ZERO
        for k in range(len(z)):
            total += pull[k]
        to_middle[b] = total
        for i in range(n):
            rate = SQRT_HALF / parts[2, i, b]
            offset = -parts[1, i, b] * rate
            to_amplitude, to_location, to_scale = ZERO, ZERO, ZERO
            for k in range(len(z)):
                pulled = gausses[b, i, k] * pull[k]
                to_amplitude += erfs[b, i, k] * pull[k]
                to_location += pulled
                to_scale += pulled * (rate * z[k] + offset)
            steep = -TWO_OVER_SQRT_PI * parts[0, i, b] / parts[2, i, b]
            result[i, b] = to_amplitude
            result[n + i, b], result[2 * n + i, b] = SQRT_HALF * steep * to_location, steep * to_scale
    to_raw(result, to_middle, raw, law, parts, bounds)
    return result.T.copy()


@inlined
def to_raw(result: Any, to_middle: Any, raw: Any, law: Any, parts: Any, bounds: Any) -> None:
    """Slopes (3n + 1, B) in amplitudes, locations and scales become slopes in the raw outputs, in place."""
    shift, least_scale, unit, anchor, reach, widest = law
    rows, n, columns = len(raw), parts.shape[1], raw.T.copy()
    if anchor >= ZERO:  # the middle moves with every amplitude, location and scale
        for i in range(n):
            for b in range(rows):
                location, scale = parts[1, i, b], parts[2, i, b]
                steep = -TWO_OVER_SQRT_PI * parts[0, i, b] * to_middle[b]
                q, both = anchor_of(location, scale, anchor), anchor * anchor + scale * scale
                gauss = exp_negative(-q * q)
                side = -ONE if columns[i, b] + shift[i] < ZERO else ONE
                place, width = location / reach, (scale - least_scale) / widest
                to_location = result[n + i, b] - steep * gauss / F(math.sqrt(TWO * both))
                to_scale = result[2 * n + i, b] - steep * gauss * q * scale / both
                result[i, b] = (result[i, b] - erf_of(q, gauss) * to_middle[b]) * HALF * unit * side
                result[n + i, b] = to_location * side * (ONE - place * place)
                result[2 * n + i, b] = to_scale * widest * width * (ONE - width)
        for b in range(rows):
            result[3 * n, b] = to_middle[b] * unit
    else:
        to_bound = np.zeros(rows, np.float32)
        for i in range(n):
            for b in range(rows):
                result[2 * n + i, b] *= sigmoid(columns[2 * n + i, b] + shift[2 * n + i])  # the slope of softplus
                to_bound[b] += parts[0, i, b] * result[i, b] / bounds[b]
        for i in range(n):
            for b in range(rows):  # softmax
                result[i, b] = (result[i, b] - to_bound[b]) * parts[0, i, b]
        for b in range(rows):
            result[3 * n, b] = to_bound[b] * unit * sigmoid(columns[3 * n, b] + shift[3 * n])


@compiled
def merge(y: Array, v: Array) -> tuple[Array, Array]:
    """The squared Cramér distance of sorted samples, and its slope in the first (see `losses.exact`)."""
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
                slopes[b, i] = before * before - after * after
                i += 1
            else:
                j += 1
            before, last = after, here
        values[b] = total
    return values, slopes


@compiled
def lines(y: Array, v: Array, z: Array) -> tuple[Array, Array]:
    """The squared distance to a CDF of straight lines, and its slope in the returns (see `losses.continuous`)."""
    rows, n, last = len(y), y.shape[1], y.shape[1] + 1
    values, slopes = np.empty(rows, np.float32), np.empty((rows, n), np.float32)
    knots, areas, rises = np.empty(n + 2, np.float32), np.empty(n + 2, np.float32), np.empty(n + 1, np.float32)
    heights, gain = np.zeros(n + 2, np.float32), TWO / F(n)
    for k in range(n):
        heights[k + 1] = normal_cdf(z[k])
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
            slopes[b, i] = gain * (height - level)
        values[b] = gain * total
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
