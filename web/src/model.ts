// What the page knows, and where it comes from: a document inside the file, or a server.

import { EpisodeData } from "./episode";
import { unpack } from "./laws";
import type { AgentCard, Curve, Document, Figure, Ridge, RunCard, Runs, StateTable } from "./schema";

const KEPT = 20; // episodes of agents that play live
const POLL = 1000; // milliseconds between two looks at runs that train

export type Topic = "episodes" | "curves" | "runs";

/** The columns of a run's metrics so far. */
export class CurveData {
  readonly columns = new Map<string, number[]>();
  offset = 0;

  /** Add the rows of a message; false if they do not continue these. */
  extend(curve: Curve): boolean {
    if (curve.fresh) this.columns.clear();
    const steps = this.columns.get("step");
    const added = Object.entries(curve.columns).map(([name, packed]) => [name, unpack(packed)] as const);
    const first = added.find(([name]) => name === "step")?.[1][0] ?? Infinity;
    if (steps && steps.length && first <= steps[steps.length - 1]!) return false;
    const before = steps?.length ?? 0;
    for (const [name, values] of added) {
      const column = this.columns.get(name) ?? new Array<number>(before).fill(NaN);
      for (const value of values) column.push(value);
      this.columns.set(name, column);
    }
    this.offset = curve.offset;
    return true;
  }
}

export class Model {
  title = "";
  madeBy = "";
  runs: RunCard[] = [];
  readonly agents = new Map<string, AgentCard>();
  readonly episodes: EpisodeData[] = [];
  readonly curves = new Map<string, CurveData>();
  private readonly tables = new Map<string, StateTable>();
  private readonly ridges = new Map<string, Ridge>();
  private shownFigures: Figure[] = [];
  private readonly listeners = new Map<Topic, Set<() => void>>();

  constructor(readonly live: boolean) {}

  static recorded(found: Document): Model {
    const model = new Model(false);
    model.title = found.title;
    model.madeBy = found.made_by;
    model.runs = found.runs;
    for (const agent of found.agents) model.agents.set(agent.run.id, agent);
    model.episodes.push(...found.episodes.map((episode) => EpisodeData.recorded(episode)));
    for (const table of found.tables) model.tables.set(table.env, table);
    for (const curve of found.curves) model.curve(curve);
    for (const ridge of found.ridges) model.ridges.set(ridge.run, ridge);
    model.shownFigures = found.figures;
    return model;
  }

  on(topic: Topic, listener: () => void): void {
    if (!this.listeners.has(topic)) this.listeners.set(topic, new Set());
    this.listeners.get(topic)!.add(listener);
  }

  tell(topic: Topic): void {
    for (const listener of this.listeners.get(topic) ?? []) listener();
  }

  run(id: string): RunCard | undefined {
    return this.runs.find((run) => run.id === id);
  }

  /** Begin an episode; of those before it, a few are kept for calibration. */
  add(episode: EpisodeData): void {
    for (const before of this.episodes) before.forgetPictures();
    this.episodes.push(episode);
    if (this.episodes.length > KEPT) this.episodes.splice(0, this.episodes.length - KEPT);
  }

  private curve(curve: Curve): boolean {
    const data = this.curves.get(curve.run) ?? new CurveData();
    this.curves.set(curve.run, data);
    return data.extend(curve);
  }

  setTable(table: StateTable): void {
    this.tables.set(table.env, table);
  }

  knownTable(env: string): StateTable | null {
    return this.tables.get(env) ?? null;
  }

  /** All agents of an environment in the same states. */
  async table(env: string): Promise<StateTable | null> {
    if (this.live) return this.fetched<StateTable>(`api/table/${this.runs.find((run) => run.env === env)?.id}`);
    return this.knownTable(env);
  }

  /** The start state's law over a run's checkpoints. */
  async ridge(run: string): Promise<Ridge | null> {
    if (this.live) return this.fetched<Ridge>(`api/ridge/${run}`);
    return this.ridges.get(run) ?? null;
  }

  async figures(): Promise<Figure[]> {
    if (this.live) return (await this.fetched<Figure[]>("api/figures")) ?? [];
    return this.shownFigures;
  }

  private async fetched<T>(path: string): Promise<T | null> {
    const answer = await fetch(path);
    return answer.ok ? ((await answer.json()) as T | null) : null;
  }

  /** Look at all runs again and again, and fetch only what is new. */
  async poll(): Promise<void> {
    for (;;) {
      if (document.visibilityState === "visible") await this.look().catch(() => undefined);
      await new Promise((resume) => setTimeout(resume, POLL));
    }
  }

  async look(): Promise<void> {
    const found = await this.fetched<Runs>("api/runs");
    if (!found) return;
    this.title = found.title;
    const changed = JSON.stringify(found.runs) !== JSON.stringify(this.runs);
    this.runs = found.runs;
    if (changed) this.tell("runs");
    const have = [...this.curves].map(([run, data]) => `${run}:${data.offset}`).join(",");
    const curves = (await this.fetched<Curve[]>(`api/curves?have=${have}`)) ?? [];
    const broken = curves.filter((curve) => !this.curve(curve));
    for (const { run } of broken) this.curves.delete(run); // it was resumed from an earlier step: read again
    if (curves.length) this.tell("curves");
  }
}
