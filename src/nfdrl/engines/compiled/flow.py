"""The arithmetic of flow laws on the CPU, compiled: each function is one pass over memory.

The float32 counterpart of `laws.flow` and `laws.anchored`, which are the definition; the tests hold these functions
to them. A hundred small operations become five calls, which saves most of the time of an update.

Numbers that are not finite stay so: a row that has one gets a loss of NaN.

Shapes throughout: raw outputs (B, 3n + 1), base points (N,), returns (B, N), targets (B, M).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nfdrl.engines.compiled.jit import HALF, ONE, TWO, ZERO, Array, F, compiled, compiled_sums, inlined


def law_of(
    zero: Array, least_scale: float, unit: float, anchor: float = -1, reach: float = 0, widest: float = 0
) -> Array:
    """How raw outputs become laws, in one array, which a compiled function takes faster than a tuple.

    What is added to them (3n + 1), the least scale, the unit of returns, the anchor, negative where there is none, and
    the limits of anchored locations and scales.
    """
    return np.array([*zero, least_scale, unit, anchor, reach, widest], np.float32)


LOG2_E, LN2_HIGH, LN2_LOW = F(1.44269504), F(0.693359375), F(-2.12194440e-4)
LEAST_EXPONENT = F(-87.0)  # e⁻⁸⁷ is the smallest normal float
SQRT_HALF, TWO_OVER_SQRT_PI = F(math.sqrt(0.5)), F(2 / math.sqrt(math.pi))


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
    shift, least_scale, unit, anchor, reach, widest = law[:-5], law[-5], law[-4], law[-3], law[-2], law[-1]
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
def means(raw: Array, law: Array) -> Array:
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


@compiled
def levels(z: Array) -> Array:
    """Φ at base points; shape (N,)."""
    result = np.empty(len(z), np.float32)
    for k in range(len(z)):
        result[k] = normal_cdf(z[k])
    return result


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
def cvars(raw: Array, law: Array, alpha: F, level: F) -> Array:
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
def returns(raw: Array, law: Array, z: Array, kept: int) -> tuple[Array, tuple[Array, Array, Array, Array]]:
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
def gradient(slope: Array, raw: Array, law: Array, z: Array, saved: tuple[Array, Array, Array, Array]) -> Array:
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
    shift, least_scale, unit, anchor, reach, widest = law[:-5], law[-5], law[-4], law[-3], law[-2], law[-1]
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
