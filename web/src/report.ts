// A report: settings side by side, per environment and over all, with intervals over seeds.

import { CurvePlot, DASHES, STEPS, type Along } from "./curves";
import { colourOf, h, s, short } from "./dom";
import { estimateTable, scrolling, type Column, type Row } from "./estimates";
import { ImprovementView } from "./improvement";
import { unpack } from "./laws";
import type { Aggregate, BandCurve, Report, ReportEnvironment, ReportLine } from "./schema";
import type { Line } from "./series";
import { furnish } from "./shell";

const STYLES: Record<string, readonly number[]> = { "-": DASHES[0], "--": DASHES[1], ":": DASHES[2], "-.": DASHES[3] };
const SCORES: Along = {
  label: "normalised score τ",
  one: "τ",
  tick: (value) => short(value),
  value: (value) => short(value),
};

export class ReportView {
  private readonly painted: (() => void)[] = []; // whatever must follow a change of colours

  constructor(private readonly report: Report) {
    const sections = [
      ["notes", "To bear in mind", this.notes()],
      ["all", "All environments", this.all()],
      ...report.environments.map((found, k) => [`env-${k}`, found.env, this.environment(found)] as const),
      ["pairs", "Who beats whom", this.pairs()],
    ] as const;
    const shown = sections.filter(([, , content]) => content !== null);
    const around = h(
      "nav",
      { "aria-label": "sections" },
      ...shown.map(([id, title]) => h("a", { href: `#${id}` }, title)),
    );
    const panel = h("div", { id: "panel", class: "report" }, this.about());
    for (const [id, title, content] of shown)
      panel.append(h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...content!));
    furnish({ title: report.title, madeBy: report.made_by }, around, panel, () => this.refresh());
    this.refresh();
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }

  private refresh(): void {
    for (const paint of this.painted) paint();
  }

  private about(): HTMLElement {
    return h(
      "p",
      { class: "about" },
      "Scores are the mean returns of greedy episodes after training, one per seed. Brackets and bars are 95 % intervals by ",
      "the stratified percentile bootstrap: they measure the spread over seeds. ",
      `Made on ${this.report.date.slice(0, 10)}.`,
    );
  }

  private notes(): HTMLElement[] | null {
    const { notes } = this.report;
    if (!notes.length) return null;
    return [h("ul", { class: "flags" }, ...notes.map((note) => h("li", { class: "flag warn" }, note)))];
  }

  /** A setup: its line as curves draw it, its label, and what to know about it, warnings first. */
  private name(setup: number, warnings: readonly string[], facts: readonly string[]): HTMLElement {
    const { label, style } = this.report.setups[setup]!;
    const dash = STYLES[style]?.join(" ");
    const line = s("path", { d: "M0 5H26", class: "sample", "stroke-dasharray": dash || null });
    return h(
      "div",
      { class: "name" },
      s("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, line),
      h("span", {}, label),
      h(
        "span",
        { class: "facts" },
        ...warnings.map((text) => h("span", { class: "few" }, `⚠ ${text}`)),
        ...facts.map((text) => h("span", {}, text)),
      ),
    );
  }

  private paint(setup: number): (element: HTMLElement) => void {
    return (element) =>
      this.painted.push(() => element.style.setProperty("--law", colourOf(this.report.setups[setup]!.colour)));
  }

  private all(): HTMLElement[] | null {
    const { aggregate, profiles, efficiency, normalised } = this.report;
    if (!aggregate.length) return null;
    const of = aggregate[0]!.of;
    const rows: Row[] = aggregate.map((row) => {
      const places = `${row.environments} of ${count(row.of, "environment")}`;
      const seeds = of > 1 ? `fewest seeds: ${row.fewest_seeds}` : count(row.fewest_seeds, "seed");
      const [warnings, facts] = split([places, row.environments < row.of], [seeds, row.fewest_seeds < this.report.few]);
      return { head: this.name(row.setup, warnings, facts), paint: this.paint(row.setup) };
    });
    const column = (name: string, cell: (row: Aggregate) => Aggregate["mean"]): Column => ({
      name,
      cells: aggregate.map(cell),
    });
    const columns = [
      column("IQM", (row) => row.iqm),
      column("mean", (row) => row.mean),
      column("median", (row) => row.median),
      column("optimality gap ↓", (row) => row.gap),
      column("Atari-5, %", (row) => row.atari5),
    ];
    const caption = `${sentence(normalised)} scores over ${count(of, "environment")}`;
    const table = estimateTable(rows, columns);
    return [
      scrolling(caption, table),
      h(
        "div",
        { class: "pair" },
        this.figure("Performance profile: the share of runs above each score", "share of runs", profiles, SCORES),
        this.figure("Sample efficiency: IQM of normalised training returns, as far as all runs of a method reach", "IQM while training", efficiency, STEPS),
      ),
    ];
  }

  private environment(found: ReportEnvironment): HTMLElement[] {
    const { columns: settings, normalised } = this.report;
    const rows: Row[] = found.lines.map((line) => {
      const told = settings.map((name, k) => `${name} ${line.settings[k]}`);
      const whole = line.seeds === line.runs;
      const seeds = whole ? count(line.seeds, "seed") : `${line.seeds} of ${count(line.runs, "seed")} evaluated`;
      const [warnings, facts] = split([seeds, !whole || line.seeds < this.report.few], [count(line.steps, "step"), false]);
      return { head: this.name(line.setup, warnings, [...facts, ...told]), paint: this.paint(line.setup) };
    });
    const column = (name: string, cell: (line: ReportLine) => ReportLine["mean"]): Column => ({
      name,
      cells: found.lines.map(cell),
    });
    const columns = [
      { ...column("mean return", (line) => line.mean), seeds: found.lines.map((line) => line.scores) },
      column("median", (line) => line.median),
      column("IQM", (line) => line.iqm),
      column(normalised, (line) => line.normalised),
      column("optimality gap ↓", (line) => line.gap),
    ];
    const seconds = ["seconds", found.lines.map((line) => short(line.seconds))] as const;
    const caption = `Returns in ${found.env} after training; thin marks: single seeds`;
    const table = estimateTable(rows, columns, [seconds]);
    const absent = found.absent.map((k) => this.report.setups[k]!.label);
    const { target } = found;
    const ends = target
      ? `${sentence(normalised)}: ${short(target.low)} counts as 0 and ${short(target.high)} as 1 (${target.source}).`
      : "No target score: in no aggregate.";
    return [
      scrolling(caption, table),
      h("p", { class: "note" }, ends),
      ...(absent.length ? [h("p", { class: "flag warn" }, `Not run here: ${absent.join("; ")}.`)] : []),
      this.figure("Return while training, mean over seeds with its band", "return", found.curves, STEPS),
    ];
  }

  private figure(title: string, name: string, found: readonly BandCurve[], along: Along): HTMLElement {
    const plot = new CurvePlot(along);
    const lines = found.map((curve) => this.line(curve));
    if (lines.length) this.painted.push(() => plot.draw(lines, name, false));
    else plot.element.replaceChildren(h("p", { class: "empty" }, "No curve: these runs have no common steps."));
    return h("figure", {}, h("figcaption", {}, title), plot.element);
  }

  private line(curve: BandCurve): Line {
    const { label, colour, style } = this.report.setups[curve.setup]!;
    const [low, high] = [curve.low, curve.high].map((end) => (end === null ? undefined : [...unpack(end)]));
    const ends = low && high ? { low, high } : {};
    return { label, colour, dash: STYLES[style] ?? [], steps: [...unpack(curve.x)], values: [...unpack(curve.values)], ...ends };
  }

  private pairs(): HTMLElement[] | null {
    const { improvement, setups } = this.report;
    return improvement.length ? [new ImprovementView(improvement, setups).element] : null;
  }
}

/** Texts that are warnings, and the others. */
function split(...texts: readonly (readonly [text: string, bad: boolean])[]): [string[], string[]] {
  const of = (kind: boolean) => texts.filter(([, bad]) => bad === kind).map(([text]) => text);
  return [of(true), of(false)];
}

function count(number: number, what: string): string {
  return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
}

function sentence(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
