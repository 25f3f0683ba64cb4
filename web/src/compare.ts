// Compare: one state, the laws of all agents in it, beside the exact ones where they are known.

import { colourOf, empty, h, s, select, short } from "./dom";
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
  private readonly content = h("div");
  private env: string;
  private table: StateTable | null = null;
  private contestants: Contestant[] = [];
  private state = 0; // row of the table
  private map: MapView | null = null;
  private readonly plots = h("div", { class: "plots" });
  private readonly thumbs: HTMLElement[] = [];

  constructor(private readonly model: Model) {
    const envs = [...new Set(model.runs.filter((run) => run.playable).map((run) => run.env))];
    this.env = envs[0] ?? "";
    if (envs.length > 1) {
      this.element.append(
        select(
          "environment",
          envs.map((env) => [env, env] as const),
          this.env,
          (env) => {
            this.env = env;
            void this.load();
          },
        ),
      );
    }
    this.element.append(this.content);
    void this.load();
  }

  private async load(): Promise<void> {
    this.content.replaceChildren(empty(this.env ? "Computing the laws of all agents…" : "No saved agent yet."));
    if (!this.env) return;
    const env = this.env;
    const table = await this.model.table(env);
    if (env !== this.env) return;
    this.table = table;
    if (!table) return this.content.replaceChildren(empty("No agent of this environment can be loaded."));
    this.contestants = table.agents.flatMap((found) => {
      const run = this.model.run(found.run);
      const distances = [found.cramer, found.w1].map((packed) => (packed === null ? null : unpack(packed)));
      const truth = found.truth && new LawTable(found.truth);
      return run
        ? [{ run, found, laws: new LawTable(found.laws), truth, cramer: distances[0]!, w1: distances[1]! }]
        : [];
    });
    this.state = 0;
    this.content.replaceChildren(h("div", { class: "picker" }, this.picker(table)), this.plots);
    this.pick(0);
  }

  /** A map to click on, or pictures of states, or their names. */
  private picker(table: StateTable): Element {
    this.thumbs.length = 0;
    this.map = null;
    if (table.map) {
      const rows = new Map(table.states.map((state, row) => [state, row]));
      this.map = new MapView(table.map, (state) => this.pick(rows.get(state)!), new Set(table.states));
      if (table.map.kind === "grid")
        this.map.write(
          new Map(table.states.map((state, row) => [state, table.actions[this.contestants[0]!.found.chosen[row]!]!])),
        );
      return h(
        "div",
        {},
        h("p", { class: "note" }, "Click on a state. Arrows: what the first agent does."),
        this.map.svg,
      );
    }
    table.names.forEach((name, row) => {
      const picture = table.pictures?.[row];
      const image = picture ? h("img", { src: picture, alt: "" }) : null;
      this.thumbs.push(h("button", { type: "button", class: "thumb", click: () => this.pick(row) }, image, name));
    });
    return h(
      "div",
      {},
      h("p", { class: "note" }, "States of one episode of the first agent."),
      h("div", { class: "thumbs" }, ...this.thumbs),
    );
  }

  private pick(row: number): void {
    this.state = row;
    this.map?.mark(this.table!.states[row]!);
    this.thumbs.forEach((thumb, k) => thumb.setAttribute("aria-pressed", String(k === row)));
    this.refresh();
  }

  refresh(): void {
    const { table, state } = this;
    if (!table) return;
    const laws = this.contestants.map(({ laws }) => laws.row(state));
    const truths = this.contestants.map(({ truth }) =>
      table.actions.map((_, action) => truth?.at(state, action) ?? null),
    );
    const known = truths.flat().filter((law): law is Law => law !== null);
    const [low, high] = axisOf(
      [...laws, known].filter((row) => row.length),
      [],
    );
    this.plots.replaceChildren(
      h("h2", { id: "state" }, table.names[state]!),
      ...this.contestants.map((one, k) => {
        const plot = new LawPlot(
          table.actions,
          k === 0 ? () => this.refresh() : undefined,
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
    return h("h3", {}, dot, `${run.label} `, h("span", { class: "soft" }, `${run.name}, seed ${run.seed}.${grey}`));
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
    const rows = this.contestants.filter(({ cramer }) => cramer);
    if (!rows.length) return [];
    const mean = (values: Float32Array) => {
      const known = values.filter((value) => value >= 0);
      return known.reduce((sum, value) => sum + value, 0) / known.length;
    };
    const table = h(
      "table",
      { class: "distances" },
      h("caption", {}, "Distance to the exact laws of each agent's own policy, mean over all states and actions"),
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
