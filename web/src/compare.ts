// Compare: one state, the laws of all agents in it, beside the exact ones where they are known.

import { added, button, check, colourOf, empty, h, keep, s, select, short } from "./dom";
import { axisOf, LawPlot } from "./lawplot";
import { LawTable, unpack, type Law } from "./laws";
import { MapView } from "./maps";
import type { Model } from "./model";
import type { RunCard, StateLaws, StateTable } from "./schema";

const ALPHA = 0.1;

interface Contestant {
  readonly run: RunCard;
  readonly found: StateLaws;
  readonly laws: LawTable;
  readonly truth: LawTable | null;
  readonly cramer: Float32Array | null;
  readonly w1: Float32Array | null;
}

export class CompareView {
  readonly element = h("section", { class: "compare" });
  private readonly envs = h("div");
  private readonly content = h("div");
  private env = "";
  private shown = ""; // the agents in the table,
  private saved = ""; // and their checkpoints
  private readonly newer = button("load newer checkpoints", "compare the agents as they are now", () => void this.load());
  private table: StateTable | null = null;
  private all: Contestant[] = [];
  private readonly hidden = new Set<string>(); // agents that are not shown
  private state = 0; // row of the table
  private map: MapView | null = null;
  private readonly plots = h("div", { class: "plots" });
  private readonly thumbs: HTMLElement[] = [];

  constructor(private readonly model: Model) {
    model.on("runs", () => this.element.isConnected && this.refresh());
    this.element.append(h("div", { class: "options" }, this.envs, this.newer), this.content);
    this.newer.hidden = true;
  }

  /** Look at the model again: there may be new agents. Whoever compares states is not disturbed by newer checkpoints. */
  refresh(): void {
    const agents = this.model.runs.filter((run) => run.playable);
    const envs = [...new Set(agents.map((run) => run.env))];
    keep(this.envs, envs.join(), () => {
      this.env ||= envs[0] ?? "";
      const choose = (env: string) => {
        this.env = env;
        this.refresh();
      };
      const options = envs.map((env) => [env, env] as const);
      return envs.length > 1 ? [select("environment", options, this.env, choose)] : [];
    });
    const wanted = this.mine().join();
    if (wanted !== this.shown || !wanted) return void this.load();
    this.newer.hidden = this.mine("newest").join() === this.saved;
    this.draw();
  }

  private mine(what: "id" | "newest" = "id"): (string | null | undefined)[] {
    return this.model.runs.filter((run) => run.playable && run.env === this.env).map((run) => run[what]);
  }

  private async load(): Promise<void> {
    const env = this.env;
    const shown = (this.shown = this.mine().join());
    this.saved = this.mine("newest").join();
    this.newer.hidden = true;
    this.content.replaceChildren(empty(env ? "Computing the laws of all agents…" : "No saved agent yet."));
    if (!env) return;
    const table = await this.model.table(env);
    if (shown !== this.shown) return;
    this.table = table;
    if (!table) return this.content.replaceChildren(empty("No agent of this environment can be loaded."));
    this.all = table.agents.flatMap((found) => {
      const run = this.model.run(found.run);
      const distances = [found.cramer, found.w1].map((packed) => (packed === null ? null : unpack(packed)));
      const truth = found.truth && new LawTable(found.truth);
      return run
        ? [{ run, found, laws: new LawTable(found.laws), truth, cramer: distances[0]!, w1: distances[1]! }]
        : [];
    });
    this.state = 0;
    this.content.replaceChildren(h("div", { class: "picker" }, this.picker(table), this.chooser()), this.plots);
    this.pick(0);
  }

  private get contestants(): Contestant[] {
    return this.all.filter(({ run }) => !this.hidden.has(run.id));
  }

  /** Which agents are shown, where there are more than two. */
  private chooser(): Element | string {
    if (this.all.length < 3) return "";
    return h(
      "fieldset",
      { class: "runs" },
      h("legend", {}, "agents"),
      ...this.all.map(({ run }) =>
        check(`${run.label} · ${run.name}`, !this.hidden.has(run.id), (on) => {
          if (on) this.hidden.delete(run.id);
          else this.hidden.add(run.id);
          this.draw();
        }),
      ),
    );
  }

  /** A map to click on, or pictures of states, or their names. */
  private picker(table: StateTable): Element {
    this.thumbs.length = 0;
    this.map = null;
    if (table.map) {
      const rows = new Map(table.states.map((state, row) => [state, row]));
      this.map = new MapView(table.map, (state) => this.pick(rows.get(state)!), new Set(table.states));
      this.map.choose(
        new Map(table.states.map((state, row) => [state, this.all[0]!.found.chosen[row]!])),
        table.actions,
      );
      const what = table.map.kind === "grid" ? "Arrows" : "Thick lines";
      const note = `Click on a state. ${what}: what ${this.all[0]!.run.name} does.`;
      return h("div", {}, h("p", { class: "note" }, note), this.map.svg);
    }
    table.names.forEach((name, row) => {
      const picture = table.pictures?.[row];
      const image = picture ? h("img", { src: picture, alt: "" }) : null;
      this.thumbs.push(h("button", { type: "button", class: "thumb", click: () => this.pick(row) }, image, name));
    });
    return h(
      "div",
      {},
      h("p", { class: "note" }, `States of one episode of ${this.all[0]!.run.name}.`),
      h("div", { class: "thumbs" }, ...this.thumbs),
    );
  }

  private pick(row: number): void {
    this.state = row;
    this.map?.mark(this.table!.states[row]!);
    this.thumbs.forEach((thumb, k) => thumb.setAttribute("aria-pressed", String(k === row)));
    this.draw();
  }

  private draw(): void {
    const { table, state, contestants } = this;
    if (!table) return;
    if (!contestants.length) return this.plots.replaceChildren(empty("No agent is chosen."));
    const laws = contestants.map(({ laws }) => laws.row(state));
    const truths = contestants.map(({ truth }) =>
      table.actions.map((_, action) => truth?.at(state, action) ?? null),
    );
    const known = truths.flat().filter((law): law is Law => law !== null);
    const [low, high] = axisOf(
      [...laws, known].filter((row) => row.length),
      [],
    );
    this.plots.replaceChildren(
      h("h2", { id: "state" }, table.names[state]!),
      ...contestants.map((one, k) => {
        const plot = new LawPlot(
          table.actions,
          k === 0 ? () => this.draw() : undefined,
          table.actions.length > 8 ? 30 : 60,
        );
        plot.draw(
          laws[k]!.map((law, action) => this.row(one, law, truths[k]![action]!, action)),
          low,
          high,
        );
        return h("article", { "aria-label": one.run.name }, this.heading(one), plot.element);
      }),
      ...this.summary(),
    );
    this.element.dataset.state = String(table.states[state]);
  }

  private heading({ run, found }: Contestant): HTMLElement {
    const dot = s(
      "svg",
      { viewBox: "0 0 10 10", class: "dot", "aria-hidden": "true" },
      s("circle", { cx: 5, cy: 5, r: 5, fill: colourOf(run.colour) }),
    );
    const grey = found.truth ? ` Grey: the ${found.truth_kind} of its own policy.` : "";
    const about = `${run.name}, seed ${run.seed}.${grey}${added(found.laws.note)}`;
    return h("h3", {}, dot, `${run.label} `, h("span", { class: "soft" }, about));
  }

  private row(one: Contestant, law: Law, truth: Law | null, action: number) {
    const [mean, cvar] = [law.mean(), law.cvar(ALPHA)];
    const k = this.state * one.laws.actions + action;
    const distance =
      one.cramer && one.cramer[k]! >= 0 ? `\nCramér ${short(one.cramer[k]!, 2)}\nW₁ ${short(one.w1![k]!, 2)}` : "";
    const text = `mean ${short(mean)}\nCVaR ${ALPHA.toFixed(2)} ${short(cvar)}${distance}`;
    const marks = {
      values: [
        { kind: "mean", at: mean },
        { kind: "cvar", at: cvar },
      ] as const,
      came: null,
    };
    return {
      law,
      truth,
      marks,
      chosen: one.found.chosen[this.state] === action,
      preferred: false,
      colour: colourOf(one.run.colour),
      text,
    };
  }

  /** The mean distance of every agent over all states and actions. */
  private summary(): HTMLElement[] {
    const rows = this.all.filter(({ cramer }) => cramer);
    if (!rows.length) return [];
    const mean = (values: Float32Array) => {
      const known = values.filter((value) => value >= 0);
      return known.reduce((sum, value) => sum + value, 0) / known.length;
    };
    const table = h(
      "table",
      { class: "distances" },
      h(
        "caption",
        {},
        "Distance of the whole laws to the exact ones of each agent's own policy, mean over all states and actions",
      ),
      h("thead", {}, h("tr", {}, ...["agent", "Cramér", "W₁"].map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        {},
        ...rows.map(({ run, cramer, w1 }) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, `${run.label} · ${run.name}`),
            h("td", {}, short(mean(cramer!))),
            h("td", {}, short(mean(w1!))),
          ),
        ),
      ),
    );
    return [table];
  }
}
