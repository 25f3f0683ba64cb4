// Curves of runs: smoothed, and runs that differ in nothing but their seed as one mean with a band.

import type { CurveData } from "./model";
import type { RunCard } from "./schema";

const GRID = 400; // common steps of the runs of a group

export interface Line {
  readonly label: string;
  readonly colour: string;
  readonly dash?: readonly number[]; // otherwise lines of one colour are told apart by theirs
  readonly steps: readonly number[];
  readonly values: readonly (number | null)[];
  readonly low?: readonly (number | null)[];
  readonly high?: readonly (number | null)[];
}

/** An exponential mean; 0 changes nothing, 0.9 remembers about ten rows. */
export function smoothed(values: readonly number[], share: number): (number | null)[] {
  let [sum, weight] = [0, 0];
  return values.map((value) => {
    if (!Number.isFinite(value)) return null;
    sum = share * sum + (1 - share) * value;
    weight = share * weight + (1 - share);
    return sum / weight;
  });
}

/** The value of a curve at a step, straight between its rows; null outside them. */
export function valueAt(steps: readonly number[], values: readonly (number | null)[], at: number): number | null {
  if (!steps.length || at < steps[0]! || at > steps[steps.length - 1]!) return null;
  let [low, high] = [0, steps.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle]! <= at) low = middle;
    else high = middle;
  }
  const [a, b] = [values[low] ?? null, values[high] ?? null];
  if (a === null || b === null) return a ?? b;
  const width = steps[high]! - steps[low]!;
  return width > 0 ? a + ((b - a) * (at - steps[low]!)) / width : a;
}

/** A run's line. */
export function lineOf(run: RunCard, data: CurveData, metric: string, share: number): Line {
  const steps = data.columns.get("step") ?? [];
  const values = smoothed(data.columns.get(metric) ?? [], share);
  return { label: run.name, colour: run.colour, steps, values };
}

/** The mean of several lines on common steps, between the least and the largest of them. */
export function band(label: string, colour: string, lines: readonly Line[]): Line {
  const last = Math.max(...lines.map((line) => line.steps[line.steps.length - 1] ?? 0));
  const first = Math.min(...lines.map((line) => line.steps[0] ?? 0));
  const steps = Array.from({ length: GRID + 1 }, (_, k) => first + ((last - first) * k) / GRID);
  const rows = steps.map((at) =>
    lines.map((line) => valueAt(line.steps, line.values, at)).filter((value) => value !== null),
  );
  const each = (f: (row: number[]) => number) => rows.map((row) => (row.length ? f(row) : null));
  const values = each((row) => row.reduce((sum, value) => sum + value, 0) / row.length);
  return { label, colour, steps, values, low: each((row) => Math.min(...row)), high: each((row) => Math.max(...row)) };
}

/** The lines to draw: one per run, or one for all seeds of a setting. */
export function lines(
  runs: readonly RunCard[],
  curves: ReadonlyMap<string, CurveData>,
  metric: string,
  share: number,
  bands: boolean,
): Line[] {
  const known = runs.filter((run) => curves.get(run.id)?.columns.has(metric));
  const drawn = (run: RunCard) => lineOf(run, curves.get(run.id)!, metric, share);
  if (!bands) return known.map(drawn);
  const settings = new Map<string, RunCard[]>();
  for (const run of known) settings.set(run.setting, [...(settings.get(run.setting) ?? []), run]);
  const name = (run: RunCard) => `${run.label} · ${run.env}`;
  const firsts = [...settings.values()].map(([run]) => name(run!));
  return [...settings.values()].map((same) => {
    const [first] = same as [RunCard, ...RunCard[]];
    const unique = firsts.filter((other) => other === name(first)).length === 1;
    const label = unique ? name(first) : `${name(first)} as in ${first.name}`; // other settings of the same method
    if (same.length === 1) return { ...drawn(first), label };
    return band(`${label}, ${same.length} seeds`, first.colour, same.map(drawn));
  });
}

/** Lines on one axis of steps, as uPlot wants them. */
export function joined(found: readonly Line[]): { steps: number[]; columns: (number | null | undefined)[][] } {
  const steps = [...new Set(found.flatMap((line) => [...line.steps]))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, k) => [step, k]));
  const columns: (number | null | undefined)[][] = [];
  for (const line of found) {
    for (const values of [line.values, ...(line.low && line.high ? [line.high, line.low] : [])]) {
      const column = new Array<number | null | undefined>(steps.length); // undefined: nothing there, the line continues
      line.steps.forEach((step, k) => (column[place.get(step)!] = values[k] ?? null));
      columns.push(column);
    }
  }
  return { steps, columns };
}
