// Return laws from their parameters, by the formulas of nfdrl.laws; the tests hold them to Python.

import { bivariateNormalCdf, erf, erfc, levelQuantile, normalCdf, normalQuantile, normalTail, phi } from "./normal";
import type { AtomLaws, FlowLaws, LinearLaws, MixtureLaws } from "./schema";

export type Laws = FlowLaws | AtomLaws | LinearLaws | MixtureLaws;

/** One return law. */
export interface Law {
  /** Whether it has a density */
  readonly smooth: boolean;
  mean(): number;
  /** P(Z ≤ y) */
  cdf(y: number): number;
  /** P(Z < y), which differs from it at an atom */
  cdfLeft(y: number): number;
  /** The least y with P(Z ≤ y) ≥ τ */
  quantile(tau: number): number;
  /** The mean of the worst fraction α */
  cvar(alpha: number): number;
  /** The density, or null where the law has none */
  pdf(y: number): number | null;
  /** The least and the largest return that it can hold; infinite if nothing limits it */
  support(): [number, number];
}

/** The float32 numbers that Python packed. */
export function unpack(packed: string): Float32Array {
  const text = atob(packed);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return new Float32Array(bytes.buffer);
}

const SQRT_HALF = Math.SQRT1_2;
const PLAIN_TAIL = 1e-6; // above it the fast erf suffices to invert F

/** y = center + bound · (2F(Z) − 1), F = Σ wᵢ Φ((z − μᵢ)/σᵢ), Z ~ N(0, 1). */
export class FlowLaw implements Law {
  constructor(
    readonly weights: ArrayLike<number>,
    readonly locations: ArrayLike<number>,
    readonly scales: ArrayLike<number>,
    readonly bound: number,
    readonly center: number,
  ) {}

  get smooth(): boolean {
    return this.bound > 0;
  }

  /** The return at a base point. */
  at(z: number): number {
    let sum = 0;
    for (let i = 0; i < this.weights.length; i++) {
      sum += this.weights[i]! * erf((SQRT_HALF * (z - this.locations[i]!)) / this.scales[i]!);
    }
    return this.center + this.bound * sum;
  }

  mean(): number {
    let sum = 0;
    for (let i = 0; i < this.weights.length; i++) sum += this.weights[i]! * erf(SQRT_HALF * this.probit(i));
    return this.center + this.bound * sum;
  }

  /** aᵢ = −μᵢ/√(1+σᵢ²), so that E[Φ((Z − μᵢ)/σᵢ)] = Φ(aᵢ). */
  private probit(i: number): number {
    return -this.locations[i]! / Math.sqrt(1 + this.scales[i]! ** 2);
  }

  cvar(alpha: number): number {
    const level = levelQuantile(alpha);
    let partial = 0;
    for (let i = 0; i < this.weights.length; i++) {
      const rho = -1 / Math.sqrt(1 + this.scales[i]! ** 2);
      partial += this.weights[i]! * bivariateNormalCdf(this.probit(i), level, rho);
    }
    return this.center + this.bound * ((2 * partial) / alpha - 1);
  }

  quantile(tau: number): number {
    return this.at(levelQuantile(tau));
  }

  cdf(y: number): number {
    const ratio = this.bound > 0 ? (y - this.center) / this.bound : y - this.center;
    if (!(Math.abs(ratio) < 1) || this.bound <= 0) return y - this.center >= this.bound ? 1 : 0;
    return normalCdf(this.inverse(0.5 * (ratio + 1)));
  }

  cdfLeft(y: number): number {
    return this.bound > 0 ? this.cdf(y) : y > this.center ? 1 : 0;
  }

  pdf(y: number): number | null {
    if (!this.smooth) return null;
    const ratio = (y - this.center) / this.bound;
    if (!(Math.abs(ratio) < 1)) return 0;
    const z = this.inverse(0.5 * (ratio + 1));
    return phi(z) / (2 * this.bound * this.slope(z));
  }

  support(): [number, number] {
    return [this.center - this.bound, this.center + this.bound];
  }

  private slope(z: number): number {
    let sum = 0;
    for (let i = 0; i < this.weights.length; i++) {
      sum += (this.weights[i]! / this.scales[i]!) * phi((z - this.locations[i]!) / this.scales[i]!);
    }
    return sum;
  }

  /** F(z), or 1 − F(z) on the upper side. */
  private tail(z: number, upper: boolean, exact: boolean): number {
    let sum = 0;
    const side = upper ? SQRT_HALF : -SQRT_HALF;
    for (let i = 0; i < this.weights.length; i++) {
      const x = (side * (z - this.locations[i]!)) / this.scales[i]!;
      sum += this.weights[i]! * 0.5 * (exact ? erfc(x) : 1 - erf(x));
    }
    return sum;
  }

  /** z with F(z) = u: Newton on the smaller tail, inside the bracket of the components' quantiles. */
  private inverse(u: number): number {
    const upper = u > 0.5;
    const target = upper ? 1 - u : u;
    const exact = target < PLAIN_TAIL;
    const level = normalQuantile(u);
    let low = Infinity;
    let high = -Infinity;
    for (let i = 0; i < this.weights.length; i++) {
      const z = this.locations[i]! + this.scales[i]! * level;
      low = Math.min(low, z);
      high = Math.max(high, z);
    }
    let z = 0.5 * (low + high);
    let last = high - low;
    for (let k = 0; k < 100; k++) {
      const tail = this.tail(z, upper, exact);
      if (Math.abs(tail - target) <= 1e-13 * target || high - low <= 1e-13 * (1 + Math.abs(z))) break;
      if (tail > target === upper) low = z;
      else high = z;
      const step = ((upper ? 1 : -1) * tail * Math.log(tail / target)) / this.slope(z);
      const newton = z + step;
      const trusted = newton > low && newton < high && Math.abs(step) <= 0.5 * Math.abs(last);
      const following = trusted ? newton : 0.5 * (low + high);
      last = following - z;
      z = following;
      if (Math.abs(last) < 1e-12 * (1 + Math.abs(z))) break;
    }
    return z;
  }
}

const SLACK = 1 - 4 * 2 ** -23; // rounding of a float32 sum must not push a level past its own step

/** Masses on atoms: steps. */
export class AtomLaw implements Law {
  readonly smooth = false;
  private readonly values: Float64Array;
  private readonly below: Float64Array; // the mass before each atom, and all of it

  constructor(atoms: ArrayLike<number>, masses: ArrayLike<number> | null) {
    const n = atoms.length;
    const order = Array.from({ length: n }, (_, k) => k).sort((a, b) => atoms[a]! - atoms[b]!);
    this.values = Float64Array.from(order, (k) => atoms[k]!);
    this.below = new Float64Array(n + 1);
    order.forEach((k, i) => (this.below[i + 1] = this.below[i]! + (masses ? masses[k]! : 1 / n)));
  }

  private mass(i: number): number {
    return this.below[i + 1]! - this.below[i]!;
  }

  mean(): number {
    return this.values.reduce((sum, value, i) => sum + value * this.mass(i), 0);
  }

  cdf(y: number): number {
    return Math.min(1, this.below[search(this.values, y, true)]!);
  }

  cdfLeft(y: number): number {
    return Math.min(1, this.below[search(this.values, y, false)]!);
  }

  /** The first atom at which the mass reaches a level. */
  private step(level: number): number {
    return search(this.below.subarray(1, this.values.length), level * SLACK, false);
  }

  quantile(tau: number): number {
    return this.values[this.step(tau)]!;
  }

  cvar(alpha: number): number {
    const step = this.step(alpha);
    let moment = 0;
    for (let i = 0; i < step; i++) moment += this.values[i]! * this.mass(i);
    return (moment + (alpha - this.below[step]!) * this.values[step]!) / alpha;
  }

  pdf(): null {
    return null;
  }

  support(): [number, number] {
    return [this.values[0]!, this.values[this.values.length - 1]!];
  }
}

/** How many of the ordered values lie below y, or at y and below. */
function search(ordered: Float64Array, y: number, orAt: boolean): number {
  let low = 0;
  let high = ordered.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (orAt ? ordered[middle]! <= y : ordered[middle]! < y) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A CDF that is straight between the points of an even grid. */
export class LinearLaw implements Law {
  readonly smooth = true;

  constructor(
    private readonly grid: ArrayLike<number>,
    private readonly cumulative: ArrayLike<number>,
  ) {}

  private get width(): number {
    return (this.grid[this.grid.length - 1]! - this.grid[0]!) / (this.grid.length - 1);
  }

  mean(): number {
    let sum = 0;
    for (let k = 0; k + 1 < this.grid.length; k++) {
      sum += (this.cumulative[k + 1]! - this.cumulative[k]!) * 0.5 * (this.grid[k]! + this.grid[k + 1]!);
    }
    return sum;
  }

  private cell(y: number): [number, number] {
    const position = (y - this.grid[0]!) / this.width;
    const k = Math.min(Math.max(Math.floor(position), 0), this.grid.length - 2);
    return [k, Math.min(Math.max(position - k, 0), 1)];
  }

  cdf(y: number): number {
    const [k, part] = this.cell(y);
    return this.cumulative[k]! + part * (this.cumulative[k + 1]! - this.cumulative[k]!);
  }

  cdfLeft(y: number): number {
    return this.cdf(y);
  }

  /** The cell in which the CDF reaches a level, and the part of the cell that lies below. */
  private locate(level: number): [number, number] {
    let k = 1;
    while (k < this.cumulative.length - 1 && this.cumulative[k]! < level) k++;
    const [low, high] = [this.cumulative[k - 1]!, this.cumulative[k]!];
    return [k - 1, Math.min(Math.max((level - low) / Math.max(high - low, 1e-300), 0), 1)];
  }

  quantile(tau: number): number {
    const [k, part] = this.locate(tau);
    return this.grid[k]! + part * this.width;
  }

  cvar(alpha: number): number {
    const [cell, part] = this.locate(alpha);
    let moment = 0;
    for (let k = 0; k < cell; k++) {
      moment += (this.cumulative[k + 1]! - this.cumulative[k]!) * 0.5 * (this.grid[k]! + this.grid[k + 1]!);
    }
    return (moment + (alpha - this.cumulative[cell]!) * (this.grid[cell]! + 0.5 * part * this.width)) / alpha;
  }

  pdf(y: number): number {
    if (y < this.grid[0]! || y > this.grid[this.grid.length - 1]!) return 0;
    const [k] = this.cell(y);
    return (this.cumulative[k + 1]! - this.cumulative[k]!) / this.width;
  }

  support(): [number, number] {
    return [this.grid[0]!, this.grid[this.grid.length - 1]!];
  }
}

/** Z = mᵢ + sᵢ N(0, 1) with probability wᵢ; sᵢ = 0 is an atom. The exact laws are of this kind. */
export class MixtureLaw implements Law {
  readonly smooth: boolean;
  private readonly atoms: AtomLaw | null;

  constructor(
    private readonly weights: ArrayLike<number>,
    private readonly means: ArrayLike<number>,
    private readonly stds: ArrayLike<number>,
  ) {
    const total = sum(weights.length, (i) => weights[i]!);
    this.weights = Float64Array.from(weights, (weight) => weight / total);
    this.smooth = Array.from(stds).every((std) => std > 0);
    this.atoms = Array.from(stds).every((std) => std === 0) ? new AtomLaw(means, this.weights) : null;
  }

  mean(): number {
    return sum(this.weights.length, (i) => this.weights[i]! * this.means[i]!);
  }

  private until(y: number, closed: boolean): number {
    return sum(this.weights.length, (i) => {
      const [mean, std] = [this.means[i]!, this.stds[i]!];
      return this.weights[i]! * (std > 0 ? normalTail((y - mean) / std) : +(closed ? mean <= y : mean < y));
    });
  }

  cdf(y: number): number {
    return this.atoms ? this.atoms.cdf(y) : Math.min(1, this.until(y, true));
  }

  cdfLeft(y: number): number {
    return this.atoms ? this.atoms.cdfLeft(y) : Math.min(1, this.until(y, false));
  }

  quantile(tau: number): number {
    if (this.atoms) return this.atoms.quantile(tau);
    let [low, high] = [Infinity, -Infinity];
    for (let i = 0; i < this.weights.length; i++) {
      low = Math.min(low, this.means[i]! - 9 * this.stds[i]!);
      high = Math.max(high, this.means[i]! + 9 * this.stds[i]!);
    }
    for (let k = 0; k < 60; k++) {
      const middle = 0.5 * (low + high);
      if (this.until(middle, true) >= tau) high = middle;
      else low = middle;
    }
    return high;
  }

  cvar(alpha: number): number {
    if (this.atoms) return this.atoms.cvar(alpha);
    const value = this.quantile(alpha);
    const partial = sum(this.weights.length, (i) => {
      const [mean, std] = [this.means[i]!, this.stds[i]!];
      if (std === 0) return mean <= value ? this.weights[i]! * mean : 0;
      const u = (value - mean) / std;
      return this.weights[i]! * (mean * normalTail(u) - std * phi(u));
    });
    return (partial + value * (alpha - this.until(value, true))) / alpha;
  }

  pdf(y: number): number | null {
    if (!this.smooth) return null;
    return sum(
      this.weights.length,
      (i) => (this.weights[i]! * phi((y - this.means[i]!) / this.stds[i]!)) / this.stds[i]!,
    );
  }

  support(): [number, number] {
    return this.atoms ? this.atoms.support() : [-Infinity, Infinity];
  }
}

function sum(count: number, term: (i: number) => number): number {
  let total = 0;
  for (let i = 0; i < count; i++) total += term(i);
  return total;
}

/** Many laws, unpacked once; a law is made when it is asked for. */
export class LawTable {
  readonly rows: number;
  readonly actions: number;
  private readonly make: (k: number) => Law | null;
  private readonly made = new Map<number, Law | null>();

  constructor(readonly laws: Laws) {
    this.rows = laws.rows;
    this.actions = laws.actions;
    this.make = maker(laws);
  }

  /** The law of an action in a row; null where there is none. */
  at(row: number, action: number): Law | null {
    const k = row * this.actions + action;
    if (this.laws.kind !== "mixture") return this.make(k);
    if (!this.made.has(k)) this.made.set(k, this.make(k)); // a thousand atoms, asked for at every step
    return this.made.get(k)!;
  }

  /** The laws of all actions of a row that has them. */
  row(row: number): Law[] {
    return Array.from({ length: this.actions }, (_, action) => this.at(row, action)!);
  }
}

function maker(laws: Laws): (k: number) => Law | null {
  if (laws.kind === "flow") {
    const n = laws.components;
    const [weights, locations, scales] = [unpack(laws.weights), unpack(laws.locations), unpack(laws.scales)];
    const [bound, center] = [unpack(laws.bound), unpack(laws.center)];
    const part = (all: Float32Array, k: number) => all.subarray(k * n, (k + 1) * n);
    return (k) => new FlowLaw(part(weights, k), part(locations, k), part(scales, k), bound[k]!, center[k]!);
  }
  if (laws.kind === "atoms") {
    const n = laws.points;
    const [atoms, masses] = [unpack(laws.atoms), laws.masses === null ? null : unpack(laws.masses)];
    const part = (all: Float32Array, k: number) => (all.length === n ? all : all.subarray(k * n, (k + 1) * n));
    return (k) => new AtomLaw(part(atoms, k), masses && part(masses, k));
  }
  if (laws.kind === "linear") {
    const [grid, cumulative] = [unpack(laws.grid), unpack(laws.cumulative)];
    return (k) => new LinearLaw(grid, cumulative.subarray(k * grid.length, (k + 1) * grid.length));
  }
  const { first } = laws;
  const [weights, means, stds] = [unpack(laws.weights), unpack(laws.means), unpack(laws.stds)];
  return (k) => {
    const [a, b] = [first[k]!, first[k + 1]!];
    return a === b ? null : new MixtureLaw(weights.subarray(a, b), means.subarray(a, b), stds.subarray(a, b));
  };
}
