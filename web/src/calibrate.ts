// How well laws were calibrated: where in them the returns that came lie.

import type { EpisodeData } from "./episode";
import type { Law } from "./laws";

export const NOMINAL = [0.5, 0.8, 0.9, 0.95];
const EDGE = 0.01; // of a law's range, at each end of it

/** A number in [0, 1) for each index, evenly spread: the bits of the index, mirrored. */
function spread(index: number): number {
  let [value, part] = [0, 0.5];
  for (let k = index + 1; k > 0; k >>= 1, part /= 2) value += (k & 1) * part;
  return value;
}

/** The level of a return in its law; within the step of an atom, spread evenly. */
export function pit(law: Law, came: number, index: number): number {
  const [left, right] = [law.cdfLeft(came), law.cdf(came)];
  return left + spread(index) * (right - left);
}

/** The share of levels in the central interval of each nominal coverage. */
export function coverage(levels: readonly number[]): number[] {
  return NOMINAL.map((share) => levels.filter((u) => Math.abs(u - 0.5) <= share / 2).length / levels.length);
}

export interface Calibration {
  readonly levels: number[];
  readonly episodes: number;
  /** The mean mass of the laws within a hundredth of their range from its ends */
  readonly boundary: number;
  /** The share of returns that came there */
  readonly ended: number;
  /** The share of returns that their law holds impossible */
  readonly outside: number;
}

/** All levels of the episodes that ended by themselves and were played as in training. */
export function calibrate(episodes: readonly EpisodeData[], firstOnly: boolean, own: string | null): Calibration {
  const levels: number[] = [];
  let [counted, boundary, ended, outside] = [0, 0, 0, 0];
  for (const episode of episodes) {
    if (!episode.followed || (own !== null && episode.risk !== own)) continue;
    counted++;
    for (let t = 0; t < (firstOnly ? 1 : episode.length); t++) {
      const law = episode.laws(t)[episode.taken[t]!]!;
      const came = episode.followed[t]!;
      const [low, high] = law.support();
      const edge = EDGE * (high - low);
      boundary += Number.isFinite(edge) ? Math.min(1, law.cdf(low + edge) + 1 - law.cdfLeft(high - edge)) : 0;
      if (came < low - 1e-6 || came > high + 1e-6) outside++;
      else if (came <= low + edge || came >= high - edge) ended++;
      levels.push(pit(law, came, levels.length));
    }
  }
  const count = Math.max(1, levels.length);
  return { levels, episodes: counted, boundary: boundary / count, ended: ended / count, outside: outside / count };
}
