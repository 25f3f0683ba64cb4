// What actions are compared by, as nfdrl.risk has it: the mean, CVaR, VaR, and Wang's distortion.

import type { Law } from "./laws";
import { normalQuantile, normalTail } from "./normal";

export type RiskName = "mean" | "cvar" | "var" | "wang";

/** A functional of a law; larger is better. Its word is the one that `--risk` takes. */
export interface Risk {
  readonly name: RiskName;
  readonly number: number;
}

export const MEAN: Risk = { name: "mean", number: 1 };

export function word(risk: Risk): string {
  return risk.name === "mean" ? "mean" : `${risk.name}:${risk.number}`;
}

export function title(risk: Risk): string {
  const number = risk.number.toFixed(2);
  const titles = { mean: "mean", cvar: `CVaR ${number}`, var: `VaR ${number}`, wang: `Wang ${number}` };
  return titles[risk.name];
}

/** The functional of a word, or null if it is not one of these. */
export function parse(text: string | null): Risk | null {
  const [name, number] = (text ?? "").split(":");
  if (name === "mean") return MEAN;
  if (name !== "cvar" && name !== "var" && name !== "wang") return null;
  return { name, number: Number(number) };
}

const BULK = 192; // cells of equal probability, the outermost of them halved repeatedly, as in nfdrl.risk
const HALVINGS = 32;

function edges(): number[] {
  const bulk = Array.from({ length: BULK - 1 }, (_, k) => (k + 1) / BULK);
  const tail = Array.from({ length: HALVINGS }, (_, k) => bulk[0]! * 0.5 ** (HALVINGS - k));
  return [0, ...tail, ...bulk, ...tail.map((t) => 1 - t).reverse(), 1];
}

const EDGES = edges();
const LEVELS = EDGES.slice(1).map((edge, k) => Math.min(0.5 * (edge + EDGES[k]!), 1 - 2 ** -52));

/** Masses of the cells after the distortion h(τ) = Φ(Φ⁻¹(τ) − η). */
function wangMasses(eta: number): number[] {
  const distorted = EDGES.map((tau) => normalTail(normalQuantile(tau) - eta));
  return distorted.slice(1).map((high, k) => high - distorted[k]!);
}

/** The functional as a function of one law. */
export function valuation(risk: Risk): (law: Law) => number {
  if (risk.name === "cvar") return risk.number >= 1 ? (law) => law.mean() : (law) => law.cvar(risk.number);
  if (risk.name === "var") return (law) => law.quantile(risk.number);
  if (risk.name === "mean") return (law) => law.mean();
  const masses = wangMasses(risk.number);
  return (law) => LEVELS.reduce((sum, level, k) => sum + masses[k]! * law.quantile(level), 0);
}

/** The action with the largest value, the first if several have it. */
export function best(laws: readonly Law[], value: (law: Law) => number): number {
  let [chosen, most] = [0, -Infinity];
  laws.forEach((law, action) => {
    const found = value(law);
    if (found > most) [chosen, most] = [action, found];
  });
  return chosen;
}
