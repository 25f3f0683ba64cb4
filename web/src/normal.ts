// The normal law as nfdrl.numerics.normal has it: Φ, Φ⁻¹, and the bivariate Φ₂ by Owen's T function.

const SQRT_HALF = Math.SQRT1_2;
const TWO_OVER_SQRT_PI = 2 / Math.sqrt(Math.PI);
const SERIES_END = 2.5; // beyond it the continued fraction of erfc converges within a few dozen terms

/** erf(x) for small |x|: (2/√π) e^{−x²} Σ 2ⁿ x^{2n+1} / (2n+1)!!, whose terms all have one sign. */
function erfSeries(x: number): number {
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum) && n < 200; n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return TWO_OVER_SQRT_PI * Math.exp(-x * x) * sum;
}

/** erfc(x) for large x, by its continued fraction from the bottom up. */
function erfcFraction(x: number): number {
  let below = 0;
  for (let k = 60; k >= 1; k--) below = k / 2 / (x + below);
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + below);
}

/** 1 − erf(x), to full relative precision in the upper tail. */
export function erfc(x: number): number {
  if (x > SERIES_END) return erfcFraction(x);
  if (x < -SERIES_END) return 2 - erfcFraction(-x);
  return 1 - erfSeries(x);
}

const TABLE_END = 6;
const PER_UNIT = 128;
const TABLE = Float64Array.from({ length: TABLE_END * PER_UNIT + 2 }, (_, k) => 1 - erfc(k / PER_UNIT));
const SLOPES = Float64Array.from(TABLE, (_, k) => (TWO_OVER_SQRT_PI * Math.exp(-((k / PER_UNIT) ** 2))) / PER_UNIT);

/** erf(x) to 1e-10, by cubic interpolation in a table: fast enough for every law of an episode. */
export function erf(x: number): number {
  const a = Math.abs(x);
  if (a >= TABLE_END) return x > 0 ? 1 : x < 0 ? -1 : NaN;
  const at = a * PER_UNIT;
  const k = at | 0;
  const s = at - k;
  const y0 = TABLE[k]!;
  const rise = TABLE[k + 1]! - y0;
  const m0 = SLOPES[k]!;
  const m1 = SLOPES[k + 1]!;
  const y = y0 + s * (m0 + s * (3 * rise - 2 * m0 - m1 + s * (m0 + m1 - 2 * rise)));
  return x < 0 ? -y : y;
}

/** Φ(z), to 1e-10. */
export const normalCdf = (z: number): number => 0.5 + 0.5 * erf(z * SQRT_HALF);

/** Φ(z), to full relative precision in the lower tail. */
export const normalTail = (z: number): number => 0.5 * erfc(-z * SQRT_HALF);

/** The density of N(0, 1). */
export const phi = (z: number): number => Math.exp(-0.5 * z * z) / Math.sqrt(2 * Math.PI);

/** Φ⁻¹(τ): Halley's iteration on the smaller tail. */
export function normalQuantile(tau: number): number {
  if (tau <= 0) return -Infinity;
  if (tau >= 1) return Infinity;
  const lower = tau <= 0.5;
  const tail = lower ? tau : 1 - tau;
  const t = Math.sqrt(-2 * Math.log(tail));
  let z = (2.30753 + 0.27061 * t) / (1 + t * (0.99229 + 0.04481 * t)) - t; // Abramowitz and Stegun 26.2.22
  for (let k = 0; k < 4; k++) {
    const step = (normalTail(z) - tail) / phi(z);
    z -= step / (1 + 0.5 * z * step);
  }
  return lower ? z : -z;
}

const levels = new Map<number, number>();

/** Φ⁻¹(τ) at a level that many laws are asked for: found once. */
export function levelQuantile(tau: number): number {
  let z = levels.get(tau);
  if (z === undefined) {
    if (levels.size > 2048) levels.clear();
    levels.set(tau, (z = normalQuantile(tau)));
  }
  return z;
}

/** Nodes and weights of Gauss-Legendre quadrature on [−1, 1]: the roots of Pₙ by Newton's method. */
function gaussLegendre(n: number): [Float64Array, Float64Array] {
  const nodes = new Float64Array(n);
  const weights = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    let x = Math.cos((Math.PI * (i + 0.75)) / (n + 0.5));
    let slope = 0;
    for (let k = 0; k < 20; k++) {
      let previous = 1;
      let value = x;
      for (let j = 2; j <= n; j++) [previous, value] = [value, ((2 * j - 1) * x * value - (j - 1) * previous) / j];
      slope = (n * (x * value - previous)) / (x * x - 1);
      x -= value / slope;
    }
    nodes[i] = x;
    weights[i] = 2 / ((1 - x * x) * slope * slope);
  }
  return [nodes, weights];
}

const [NODES, WEIGHTS] = gaussLegendre(32);

/** T(h, a) = (2π)⁻¹ ∫₀ᵃ exp(−½h²(1+x²))/(1+x²) dx for 0 ≤ a ≤ 1. */
function owenIntegral(h: number, a: number): number {
  let sum = 0;
  for (let k = 0; k < NODES.length; k++) {
    const x = 0.5 * a * (NODES[k]! + 1);
    const one = 1 + x * x;
    sum += (WEIGHTS[k]! * Math.exp(-0.5 * h * h * one)) / one;
  }
  return (0.5 * a * sum) / (2 * Math.PI);
}

/** T(h, a) with the slope given as a·h, which stays finite where a does not; |a| > 1 is folded. */
function owenT(h: number, ah: number): number {
  const sign = h * ah < 0 ? -1 : 1;
  h = Math.abs(h);
  ah = Math.abs(ah);
  const folded = ah > h;
  const inner = folded ? ah : h;
  const direct = owenIntegral(inner, (folded ? h : ah) / Math.max(inner, 1e-300));
  if (!folded) return sign * direct;
  const below = normalTail(h);
  const above = normalTail(ah);
  return sign * (0.5 * (below + above) - below * above - direct);
}

/** Φ₂(h, k; ρ) = P(X ≤ h, Y ≤ k) for standard normals with correlation ρ. */
export function bivariateNormalCdf(h: number, k: number, rho: number): number {
  if (Math.abs(h) < 1e-150) h = 1e-150;
  if (Math.abs(k) < 1e-150) k = 1e-150;
  const root = Math.sqrt(Math.max(1 - rho * rho, 1e-300));
  const marginals = normalTail(h) + normalTail(k) - (h * k < 0 ? 1 : 0);
  const joint = 0.5 * marginals - owenT(h, (k - rho * h) / root) - owenT(k, (h - rho * k) / root);
  return Math.min(1, Math.max(0, joint));
}
