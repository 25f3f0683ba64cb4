"""The arithmetic of flow laws on the CPU, compiled: each function is one pass over memory.

The float32 counterpart of `laws.flow`, `losses.exact` and `losses.grid`, which are the definition; the tests hold
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
def read_row(raw: Any, b: Any, law: Any, n: Any, parts: Any, p: Any) -> Any:
    """Amplitudes, locations and scales of row b into `parts[p]` (3, n); G, and where the middle of the support is.

    Amplitudes are those of the error functions: Gwᵢ of `FlowLaw.from_raw`, ½aᵢ of `anchored_law`.
    """
    shift, least_scale, unit, anchor, reach, widest = law
    middle, bound = ZERO, ZERO
    if anchor >= ZERO:
        middle = unit * (raw[b, 3 * n] + shift[3 * n])
        for i in range(n):
            place = (raw[b, n + i] + shift[n + i]) / reach
            parts[p, 1, i] = reach * (TWO * sigmoid(TWO * place) - ONE)  # tanh
            parts[p, 2, i] = least_scale + widest * sigmoid(raw[b, 2 * n + i] + shift[2 * n + i])
            parts[p, 0, i] = HALF * unit * abs(raw[b, i] + shift[i])
            q = anchor_of(parts[p, 1, i], parts[p, 2, i], anchor)
            bound += parts[p, 0, i]
            middle -= parts[p, 0, i] * erf_of(q, exp_negative(-q * q))
    else:
        largest = raw[b, 0] + shift[0]
        for i in range(1, n):
            largest = max(largest, raw[b, i] + shift[i])
        total = ZERO
        for i in range(n):
            parts[p, 1, i] = raw[b, n + i] + shift[n + i]
            parts[p, 2, i] = least_scale + softplus(raw[b, 2 * n + i] + shift[2 * n + i])
            parts[p, 0, i] = exp_negative(raw[b, i] + shift[i] - largest)
            total += parts[p, 0, i]
        bound = unit * softplus(raw[b, 3 * n] + shift[3 * n])
        factor = bound / total
        for i in range(n):
            parts[p, 0, i] *= factor
    return bound, middle


@inlined
def anchor_of(location: Any, scale: Any, anchor: Any) -> Any:
    """−μ/√(2s² + 2σ²), whose error function is 2κ − 1."""
    return -location / F(math.sqrt(TWO * (anchor * anchor + scale * scale)))


@compiled
def means(raw: Array, law: Law) -> Array:
    """Σ aᵢ erf(−μᵢ/√(2 + 2σᵢ²)); shape (B, 3n + 1) → (B,)."""
    rows, n = len(raw), raw.shape[1] // 3
    parts = np.empty((1, 3, n), np.float32)
    result = np.empty(rows, np.float32)
    for b in range(rows):
        _, total = read_row(raw, b, law, n, parts, 0)
        for i in range(n):
            probit = -parts[0, 1, i] / F(math.sqrt(TWO + TWO * parts[0, 2, i] * parts[0, 2, i]))
            total += parts[0, 0, i] * erf_of(probit, exp_negative(-probit * probit))
        result[b] = total
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
    rows, n = len(raw), raw.shape[1] // 3
    parts = np.empty((1, 3, n), np.float32)
    result = np.empty(rows, np.float32)
    level_mass = normal_cdf(level)
    for b in range(rows):
        bound, middle = read_row(raw, b, law, n, parts, 0)
        total = ZERO
        for i in range(n):
            scale = parts[0, 2, i]
            rho = -ONE / F(math.sqrt(ONE + scale * scale))
            a, root = parts[0, 1, i] * rho, -rho * scale
            opposite = ONE if a * level < ZERO else ZERO
            joint = HALF * (normal_cdf(a) + level_mass - opposite)
            joint -= owen_t(a, (level - rho * a) / root) + owen_t(level, (a - rho * level) / root)
            total += parts[0, 0, i] * min(max(joint, ZERO), ONE)
        result[b] = middle + TWO * total / alpha - bound
    return result


@compiled
def returns(raw: Array, law: Law, z: Array, kept: int) -> tuple[Array, tuple[Array, Array, Array, Array]]:
    """Returns at base points, and what `gradient` needs of the first `kept` rows.

    That is erf and e^{−t²} (n, N), parts (3, n) and G of each; all other rows share one that nobody reads.
    """
    rows, n, count = len(raw), raw.shape[1] // 3, len(z)
    y = np.empty((rows, count), np.float32)
    erfs, gausses = np.empty((kept + 1, n, count), np.float32), np.empty((kept + 1, n, count), np.float32)
    parts, bounds = np.empty((kept + 1, 3, n), np.float32), np.empty(kept + 1, np.float32)
    for b in range(rows):
        s = min(b, kept)
        bounds[s], middle = read_row(raw, b, law, n, parts, s)
        y[b] = middle
        for i in range(n):
            rate = SQRT_HALF / parts[s, 2, i]
            offset, amplitude = -parts[s, 1, i] * rate, parts[s, 0, i]
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
    shift, least_scale, unit, anchor, reach, widest = law
    erfs, gausses, parts, bounds = saved
    rows, n = len(slope), len(shift) // 3
    result = np.empty((rows, 3 * n + 1), np.float32)
    for b in range(rows):
        pull, to_bound, to_middle = slope[b], ZERO, ZERO
        for k in range(len(z)):
            to_middle += pull[k]
        for i in range(n):
            amplitude, scale = parts[b, 0, i], parts[b, 2, i]
            rate = SQRT_HALF / scale
            offset = -parts[b, 1, i] * rate
            to_amplitude, to_location, to_scale = ZERO, ZERO, ZERO
            for k in range(len(z)):
                pulled = gausses[b, i, k] * pull[k]
                to_amplitude += erfs[b, i, k] * pull[k]
                to_location += pulled
                to_scale += pulled * (rate * z[k] + offset)
            steep = -TWO_OVER_SQRT_PI * amplitude
            to_location, to_scale = steep * rate * to_location, steep / scale * to_scale
            if anchor >= ZERO:  # the middle moves with every amplitude, location and scale
                q, both = anchor_of(parts[b, 1, i], scale, anchor), anchor * anchor + scale * scale
                gauss = exp_negative(-q * q)
                to_location -= steep * gauss * to_middle / F(math.sqrt(TWO * both))
                to_scale -= steep * gauss * to_middle * q * scale / both
                to_amplitude = (to_amplitude - erf_of(q, gauss) * to_middle) * HALF * unit
                to_amplitude = math.copysign(ONE, raw[b, i] + shift[i]) * to_amplitude
                place, width = parts[b, 1, i] / reach, (scale - least_scale) / widest
                to_location, to_scale = to_location * (ONE - place * place), to_scale * widest * width * (ONE - width)
            else:
                to_scale *= sigmoid(raw[b, 2 * n + i] + shift[2 * n + i])  # the slope of softplus
                to_bound += amplitude * to_amplitude
            result[b, i], result[b, n + i], result[b, 2 * n + i] = to_amplitude, to_location, to_scale
        if anchor >= ZERO:
            result[b, 3 * n] = to_middle * unit
        else:
            to_bound /= bounds[b]
            for i in range(n):  # softmax
                result[b, i] = (result[b, i] - to_bound) * parts[b, 0, i]
            result[b, 3 * n] = to_bound * unit / (ONE + F(math.exp(-(raw[b, 3 * n] + shift[3 * n]))))
    return result


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
