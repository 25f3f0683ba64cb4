// Who beats whom: the probability that a run of the row beats one of the column.

import { h, select } from "./dom";
import { scrolling } from "./estimates";
import type { Estimate, Improvement, SetupCard } from "./schema";

const MOST = 38; // per cent of colour in a cell, so that its text stays readable

/** The estimate of the other way round. */
function turned({ value, low, high }: Estimate): Estimate {
  const less = (end: number | null) => (end === null ? null : 1 - end);
  return { value: less(value), low: less(high), high: less(low) };
}

export class ImprovementView {
  readonly element = h("div");
  private readonly place = h("div");

  constructor(
    private readonly pairs: readonly Improvement[],
    private readonly setups: readonly SetupCard[],
  ) {
    const envs = [...new Set(pairs.map((pair) => pair.env).filter((env) => env !== null))];
    const options = [["", "all that both were run in"] as const, ...envs.map((env) => [env, env] as const)];
    if (envs.length > 1)
      this.element.append(h("div", { class: "options" }, select("environment", options, "", (env) => this.show(env))));
    this.element.append(this.place);
    this.show("");
  }

  private show(env: string): void {
    const found = new Map<string, Estimate>();
    for (const pair of this.pairs.filter((pair) => (pair.env ?? "") === env)) {
      found.set(`${pair.one} ${pair.other}`, pair.probability);
      found.set(`${pair.other} ${pair.one}`, turned(pair.probability));
    }
    const met = this.setups.map((_, k) => k).filter((k) => this.setups.some((_, other) => found.has(`${k} ${other}`)));
    const head = h(
      "tr",
      {},
      h("th", { scope: "col" }, "P(row beats column)"),
      ...met.map((k) => h("th", { scope: "col", class: "upright" }, h("span", {}, this.setups[k]!.label))),
    );
    const rows = met.map((row) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, this.setups[row]!.label),
        ...met.map((column) => this.cell(found.get(`${row} ${column}`) ?? null, row === column)),
      ),
    );
    const title =
      "Probability of improvement; ties count one half. Bold: the 95 % interval leaves out one half. " +
      "Grey: no interval, for one of the two has a single seed somewhere.";
    const table = h("table", { class: "matrix" }, h("thead", {}, head), h("tbody", {}, ...rows));
    this.place.replaceChildren(scrolling(title, table));
  }

  private cell(found: Estimate | null, same: boolean): HTMLTableCellElement {
    if (!found || found.value === null) return h("td", { class: "none" }, same ? "" : "—");
    const { value, low, high } = found;
    const shown = h("span", { class: "value" }, value.toFixed(2));
    if (low === null || high === null) return h("td", { class: "none" }, shown);
    const sure = low > 0.5 || high < 0.5;
    const ends = h("span", { class: "ends" }, `[${low.toFixed(2)}, ${high.toFixed(2)}]`);
    const cell = h("td", { class: sure ? "sure" : null }, shown, ends);
    cell.style.setProperty("--share", `${(2 * MOST * Math.abs(value - 0.5)).toFixed(1)}%`);
    cell.style.setProperty("--side", value >= 0.5 ? "var(--accent)" : "var(--differs)");
    return cell;
  }
}
