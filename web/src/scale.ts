// Axes: round ticks, and straight scales between returns and pixels.

/** About `count` round numbers between two ends. */
export function ticks(low: number, high: number, count = 5): number[] {
  const raw = (high - low) / count;
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-12) && found.length < 50; k++) found.push(k * step);
  return found.map((tick) => Number(tick.toPrecision(12)));
}

/** A range with room around it, never empty. */
export function padded(low: number, high: number, share = 0.06): [number, number] {
  const margin = share * (high - low) || 0.5 * Math.max(Math.abs(low), 1);
  return [low - margin, high + margin];
}

/** The value below which a share of the numbers lies. */
export function quantileOf(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(share * (sorted.length - 1))))]!;
}
