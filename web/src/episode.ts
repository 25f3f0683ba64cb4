// An episode as the page keeps it: recorded whole, or growing while an agent plays.

import { LawTable, unpack, type Law } from "./laws";
import { best, valuation, word, type Risk } from "./risk";
import type { Episode, Step } from "./schema";

const SLICE = 12; // milliseconds of computing between two moments in which the page can react

/** Σ γᵏ r from each step up to the next end. */
export function discounted(rewards: readonly number[], ends: readonly boolean[], discount: number): number[] {
  const followed = new Array<number>(rewards.length);
  let after = 0;
  for (let t = rewards.length - 1; t >= 0; t--) {
    after = rewards[t]! + (ends[t] ? 0 : discount * after);
    followed[t] = after;
  }
  return followed;
}

export class EpisodeData {
  readonly taken: number[] = [];
  readonly rewards: number[] = [];
  readonly states: number[] = [];
  followed: number[] | null = null;
  end: Episode["end"] = "running";
  note: string | null = null;
  private readonly learned: number[] = [];
  private readonly ends: boolean[] = [];
  private readonly tables: LawTable[] = [];
  private whole: LawTable | null = null;
  private frames: string[] = [];
  private every = 1;
  private choices: { word: string; chosen: number[] } = { word: "", chosen: [] };

  constructor(
    readonly run: string,
    readonly seed: number,
    public risk: string | null, // null if it was changed during the episode
  ) {}

  /** A recorded episode. */
  static recorded(episode: Episode): EpisodeData {
    const made = new EpisodeData(episode.run, episode.seed, episode.risk);
    made.taken.push(...episode.taken);
    made.rewards.push(...unpack(episode.rewards));
    made.states.push(...(episode.states ?? []));
    made.followed = episode.followed === null ? null : Array.from(unpack(episode.followed));
    made.end = episode.end;
    made.whole = new LawTable(episode.laws);
    made.note = episode.laws.note;
    made.frames = episode.frames?.images ?? [];
    made.every = episode.frames?.every ?? 1;
    return made;
  }

  /** The next step of an episode that is being played. */
  append(step: Step, discount: number): void {
    this.taken.push(step.action);
    this.rewards.push(step.reward);
    this.learned.push(step.learned_reward);
    this.ends.push(step.ends);
    if (step.state !== null) this.states.push(step.state);
    this.tables.push(new LawTable(step.laws));
    this.note = step.laws.note;
    if (step.frame !== null) this.frames.push(step.frame);
    this.end = step.end;
    if (step.risk !== this.risk) this.risk = null;
    if (step.end === "terminated") this.followed = discounted(this.learned, this.ends, discount);
  }

  get length(): number {
    return this.taken.length;
  }

  /** The laws of all actions at a step. */
  laws(t: number): Law[] {
    return this.whole ? this.whole.row(t) : this.tables[t]!.row(0);
  }

  picture(t: number): string | null {
    return this.frames[Math.min(this.frames.length - 1, Math.floor(t / this.every))] ?? null;
  }

  /** Give the memory of the pictures back. */
  forgetPictures(): void {
    this.frames = [];
  }

  /** The sum of the rewards before a step. */
  score(t: number): number {
    let sum = 0;
    for (let k = 0; k < t; k++) sum += this.rewards[k]!;
    return sum;
  }

  /** The action that a functional would choose at a step. */
  choice(t: number, risk: Risk | null): number {
    return risk === null ? this.taken[t]! : best(this.laws(t), valuation(risk));
  }

  /** The choices at all steps, a slice of time at a time; `told` gets what is known so far. */
  async allChoices(risk: Risk | null, told: (chosen: readonly number[]) => void, stop: AbortSignal): Promise<void> {
    if (risk === null) return told(this.taken);
    const key = word(risk);
    if (this.choices.word !== key) this.choices = { word: key, chosen: [] };
    const { chosen } = this.choices;
    const value = valuation(risk);
    while (chosen.length < this.length && !stop.aborted) {
      const until = performance.now() + SLICE;
      while (chosen.length < this.length && performance.now() < until)
        chosen.push(best(this.laws(chosen.length), value));
      told(chosen);
      await new Promise((resume) => setTimeout(resume));
    }
    if (!stop.aborted) told(chosen);
  }
}
