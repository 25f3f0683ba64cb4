// Calibration: do the returns that came look like draws from the laws?

import { calibrate, coverage, NOMINAL, type Calibration } from "./calibrate";
import { check, colourOf, empty, h, keep, s, select, short } from "./dom";
import type { Model } from "./model";

const BINS = 10;
const [WIDTH, HEIGHT, LEFT, FLOOR] = [420, 230, 44, 200];
const DORMANT = 0.25; // share of units at zero that is worth a warning
const BOUNDARY = 0.05; // mass at the ends of the range, beyond the share of returns there and its chance, that is worth one

export class CalibrationView {
  readonly element = h("section", { class: "calibration" });
  private readonly agents = h("div");
  private readonly content = h("div");
  private run = "";
  private firstOnly = false;

  constructor(private readonly model: Model) {
    for (const topic of ["episodes", "runs"] as const) model.on(topic, () => this.element.isConnected && this.refresh());
    const first = check("first steps of episodes only", false, (on) => {
      this.firstOnly = on;
      this.refresh();
    });
    this.element.append(h("div", { class: "options" }, this.agents, first), this.content);
  }

  private listAgents(): void {
    const runs = this.model.runs.filter((run) => run.playable);
    this.run ||= this.model.episodes[0]?.run ?? runs[0]?.id ?? "";
    const pick = (id: string) => {
      this.run = id;
      this.refresh();
    };
    const agents = runs.map((run) => [run.id, `${run.name} · ${run.label}`] as const);
    keep(this.agents, agents.join(), () => (agents.length > 1 ? [select("agent", agents, this.run, pick)] : []));
  }

  refresh(): void {
    this.listAgents();
    const agent = this.model.agents.get(this.run);
    const mine = this.model.episodes.filter((episode) => episode.run === this.run && episode.end !== "running");
    const found = calibrate(mine, this.firstOnly, agent?.risk ?? null);
    if (!found.levels.length) {
      const why = mine.length ? "None of its episodes ended by itself." : "No episode has ended yet.";
      this.content.replaceChildren(
        empty(`${why} A return is known once an episode has ended, not when it was cut off.`),
      );
      return;
    }
    const count = `${found.levels.length.toLocaleString("en")} returns of ${found.episodes} episodes`;
    this.content.replaceChildren(
      h(
        "p",
        { class: "about", role: "status" },
        `${count}, each the level of its return in the law of the action taken. The steps of one episode share their future, so count the episodes.`,
      ),
      h(
        "div",
        { class: "pair" },
        h(
          "figure",
          {},
          this.histogram(found),
          h(
            "figcaption",
            {},
            "Levels (PIT): flat if the laws are right; the band holds 95 % of bars for as many independent episodes.",
          ),
        ),
        h(
          "figure",
          {},
          this.coverage(found),
          h(
            "figcaption",
            {},
            "Coverage: the share of returns inside the central intervals, against their nominal share.",
          ),
        ),
      ),
      this.flags(found, agent?.dormant ?? null),
    );
  }

  private frame(label: string): SVGSVGElement {
    const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": label });
    svg.style.setProperty("--law", colourOf(this.model.run(this.run)?.colour ?? "#0072B2"));
    return svg;
  }

  private histogram(found: Calibration): SVGSVGElement {
    const counts = new Array<number>(BINS).fill(0);
    for (const level of found.levels) counts[Math.min(BINS - 1, Math.floor(level * BINS))]! += 1;
    const heights = counts.map((count) => (BINS * count) / found.levels.length);
    const reach = 1.96 * Math.sqrt((BINS - 1) / found.episodes); // of a bar's height, as a binomial share of 1/BINS
    const most = Math.max(1.5, ...heights, Math.min(1 + reach, 3));
    const y = (height: number) => FLOOR - (FLOOR - 10) * Math.min(1, Math.max(0, height) / most);
    const svg = this.frame("histogram of the levels of returns in their laws");
    svg.append(
      s("rect", {
        class: "band",
        x: LEFT,
        width: WIDTH - LEFT - 10,
        y: y(1 + reach),
        height: y(1 - reach) - y(1 + reach),
      }),
    );
    const width = (WIDTH - LEFT - 10) / BINS;
    heights.forEach((height, k) =>
      svg.append(
        s("rect", { class: "bar", x: LEFT + k * width + 1, width: width - 2, y: y(height), height: FLOOR - y(height) }),
      ),
    );
    svg.append(s("path", { class: "even", d: `M${LEFT} ${y(1)}H${WIDTH - 10}` }));
    for (const tick of [0, 0.25, 0.5, 0.75, 1])
      svg.append(
        s("text", { class: "tick middle", x: LEFT + tick * (WIDTH - LEFT - 10), y: FLOOR + 18 }, String(tick)),
      );
    for (const tick of [0, 1]) svg.append(s("text", { class: "tick end", x: LEFT - 6, y: y(tick) + 4 }, String(tick)));
    return svg;
  }

  private coverage(found: Calibration): SVGSVGElement {
    const svg = this.frame("coverage of central intervals");
    const shares = coverage(found.levels);
    const room = WIDTH - LEFT - 60;
    NOMINAL.forEach((nominal, k) => {
      const y = 14 + k * 46;
      svg.append(s("text", { class: "tick end", x: LEFT - 6, y: y + 19 }, `${Math.round(100 * nominal)} %`));
      svg.append(s("rect", { class: "band", x: LEFT, y, width: room, height: 28 }));
      svg.append(s("rect", { class: "bar", x: LEFT, y, width: room * shares[k]!, height: 28 }));
      svg.append(s("path", { class: "even", d: `M${LEFT + room * nominal} ${y - 5}V${y + 33}` }));
      svg.append(s("text", { class: "tick", x: LEFT + room + 8, y: y + 19 }, `${(100 * shares[k]!).toFixed(0)} %`));
    });
    return svg;
  }

  private flags(found: Calibration, dormant: number | null): HTMLElement {
    const chance = 1.96 * Math.sqrt((found.boundary * (1 - found.boundary)) / found.episodes);
    const flag = (bad: boolean, text: string) => h("li", { class: bad ? "flag bad" : "flag" }, bad ? "⚠ " : "", text);
    return h(
      "ul",
      { class: "flags" },
      flag(found.outside > 0, `returns outside the range of their law: ${short(100 * found.outside, 2)} %`),
      flag(
        found.boundary - found.ended > BOUNDARY + chance,
        `mass at the ends of the range: ${short(100 * found.boundary, 2)} %, where ${short(100 * found.ended, 2)} % of the returns came`,
      ),
      flag(
        (dormant ?? 0) > DORMANT,
        dormant === null
          ? "dormant units: not reported"
          : `dormant units in the layer with most of them: ${short(100 * dormant, 2)} %`,
      ),
    );
  }
}
