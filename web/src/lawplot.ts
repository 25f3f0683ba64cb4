// Pictures of laws: for each action its density and its CDF on one axis of returns.

import { check, h, s, short } from "./dom";
import type { Law } from "./laws";
import { padded, quantileOf, ticks } from "./scale";

const BINS = 150; // of the axis of returns
const WIDTH = 300; // units of the drawing; it is stretched to its column
const TAIL = 0.01; // of each law that may lie outside the axis

/** What is marked on a law. */
export interface Marks {
  readonly values: readonly { kind: "mean" | "cvar" | "risk"; at: number }[];
  readonly came: number | null;
}

/** A law on an axis: P(Z < y) and P(Z ≤ y) at the edges of its bins. */
export interface Profile {
  readonly left: Float64Array;
  readonly right: Float64Array;
  readonly stepped: boolean;
}

export function profile(law: Law, low: number, high: number): Profile {
  const at = (k: number) => low + ((high - low) * k) / BINS;
  const left = Float64Array.from({ length: BINS + 1 }, (_, k) => law.cdfLeft(at(k)));
  const right = law.smooth ? left : Float64Array.from({ length: BINS + 1 }, (_, k) => law.cdf(at(k)));
  return { left, right, stepped: !law.smooth };
}

/** The largest mass in one bin. */
export function peak(found: Profile): number {
  let most = 0;
  for (let k = 0; k < BINS; k++) most = Math.max(most, found.left[k + 1]! - found.left[k]!);
  return most;
}

/** The outline of the masses in all bins, smooth where the law has a density and stepped where not. */
export function densityPath(found: Profile, most: number, top: number, height: number, power = 1): string {
  const x = (k: number) => ((k * WIDTH) / BINS).toFixed(1);
  let path = `M0 ${height}`;
  for (let k = 0; k < BINS; k++) {
    const mass = Math.max(0, found.left[k + 1]! - found.left[k]!);
    const y = (height - (height - top) * Math.min(1, mass / most) ** power).toFixed(1);
    path += found.stepped ? `L${x(k)} ${y}L${x(k + 1)} ${y}` : `L${x(k + 0.5)} ${y}`;
  }
  return `${path}L${WIDTH} ${height}Z`;
}

/** The path of a CDF, with the steps of atoms. */
export function cdfPath(found: Profile, top: number, height: number): string {
  const y = (value: number) => (height - (height - top) * value).toFixed(1);
  const points = [];
  for (let k = 0; k <= BINS; k++) {
    const x = ((k * WIDTH) / BINS).toFixed(1);
    if (found.stepped && k > 0) points.push(`${x} ${y(found.right[k - 1]!)}`);
    points.push(`${x} ${y(found.left[k]!)}`);
    if (found.right[k]! > found.left[k]!) points.push(`${x} ${y(found.right[k]!)}`);
  }
  return `M${points.join("L")}`;
}

/** An axis that holds nearly all of nearly all laws, and the returns that came. */
export function axisOf(laws: Iterable<readonly Law[]>, came: readonly number[]): [number, number] {
  const [lows, highs]: [number[], number[]] = [[], []];
  for (const row of laws) {
    for (const law of row) {
      lows.push(law.quantile(TAIL));
      highs.push(law.quantile(1 - TAIL));
    }
  }
  const inside = came.filter(Number.isFinite);
  const low = Math.min(quantileOf(lows, TAIL), ...inside);
  const high = Math.max(quantileOf(highs, 1 - TAIL), ...inside);
  return padded(low, high);
}

/** One row: an action's name and values, its density, its CDF. */
class LawRow {
  readonly element: HTMLElement;
  private readonly name = h("strong");
  private readonly values = h("span", { class: "values" });
  private readonly density: Panel;
  private readonly cdf: Panel;

  constructor(label: string, height: number) {
    this.density = new Panel(height, `density of ${label}`);
    this.cdf = new Panel(height, `CDF of ${label}`);
    this.name.textContent = label;
    this.element = h("div", { class: "law", role: "group", "aria-label": label });
    this.element.append(h("div", { class: "law-name" }, this.name, this.values), this.density.svg, this.cdf.svg);
  }

  draw(row: RowContent, low: number, high: number, most: number): void {
    const { truth, marks } = row;
    this.element.classList.toggle("chosen", row.chosen);
    this.element.classList.toggle("preferred", row.preferred);
    this.element.style.setProperty("--law", row.colour);
    this.values.textContent = row.text;
    const [top, height] = [4, this.density.height];
    const exact = truth && profile(truth, low, high);
    const outline = (found: Profile) => densityPath(found, most, top, height, LawPlot.rooted ? 0.5 : 1);
    this.density.draw(outline(row.profile), exact && outline(exact), marks, low, high);
    this.cdf.draw(cdfPath(row.profile, top, height), exact && cdfPath(exact, top, height), marks, low, high);
  }
}

/** A drawing with one law in it, the exact one under it, and marks over it. */
class Panel {
  readonly svg: SVGSVGElement;
  private readonly truth = s("path", { class: "truth" });
  private readonly law = s("path", { class: "curve" });
  private readonly came = s("path", { class: "came" });
  private readonly marks = {
    mean: s("path", { class: "mark mean" }),
    cvar: s("path", { class: "mark cvar" }),
    risk: s("path", { class: "mark risk" }),
  };

  constructor(
    readonly height: number,
    label: string,
  ) {
    const box = `0 0 ${WIDTH} ${height}`;
    const kind = label.startsWith("CDF") ? "cdf" : "density";
    this.svg = s("svg", {
      viewBox: box,
      preserveAspectRatio: "none",
      class: `panel ${kind}`,
      role: "img",
      "aria-label": label,
    });
    const floor = s("path", { class: "floor", d: `M0 ${height - 0.5}H${WIDTH}` });
    this.svg.append(floor, this.truth, this.law, this.came, ...Object.values(this.marks));
    this.svg.style.height = `${height}px`;
  }

  draw(path: string, truth: string | null, marks: Marks, low: number, high: number): void {
    const x = (value: number) => Math.min(WIDTH, Math.max(0, (WIDTH * (value - low)) / (high - low))).toFixed(1);
    this.law.setAttribute("d", path);
    this.truth.setAttribute("d", truth ?? "");
    this.came.setAttribute("d", marks.came === null ? "" : `M${x(marks.came)} 0V${this.height}`);
    for (const mark of Object.values(this.marks)) mark.setAttribute("d", "");
    for (const { kind, at } of marks.values) {
      const length = kind === "mean" ? 1 : 0.6;
      this.marks[kind].setAttribute("d", `M${x(at)} ${this.height}V${(this.height * (1 - length)).toFixed(1)}`);
    }
  }
}

/** What a row shows. */
export interface RowContent {
  readonly law: Law;
  readonly truth: Law | null;
  readonly marks: Marks;
  readonly chosen: boolean;
  readonly preferred: boolean;
  readonly colour: string;
  readonly text: string;
  readonly profile: Profile;
}

/** The laws of several actions, one below the other, with one axis. */
export class LawPlot {
  readonly element = h("div", { class: "laws" });
  private readonly rows: LawRow[];
  private readonly axes = [h("div", { class: "axis" }), h("div", { class: "axis" })];
  private readonly readout = h("p", { class: "readout", "aria-live": "off" });
  /** Whether heights are square roots of densities, so that rare returns can be seen beside common ones */
  static rooted = false;
  private range: [number, number] = [0, 1];
  private shown: readonly RowContent[] = [];

  /** `again` draws whatever shows laws again, after a change of how heights are shown; without it there is no switch. */
  constructor(labels: readonly string[], again?: () => void, height?: number) {
    const tall = height ?? (labels.length <= 4 ? 88 : labels.length <= 8 ? 56 : 30);
    this.rows = labels.map((label) => new LawRow(label, tall));
    const roots =
      again &&
      check("√ heights", LawPlot.rooted, (on) => {
        LawPlot.rooted = on;
        again();
      });
    const head = h("div", { class: "law head" }, roots ?? h("span"), h("span", {}, "density"), h("span", {}, "CDF"));
    const foot = h("div", { class: "law foot" }, h("span", {}, "return from here on"), ...this.axes);
    this.element.append(head, ...this.rows.map((row) => row.element), foot, this.readout);
    this.element.addEventListener("pointermove", (event) => this.point(event));
    this.element.addEventListener("pointerleave", () => (this.readout.textContent = ""));
  }

  draw(rows: readonly Omit<RowContent, "profile">[], low: number, high: number): void {
    if (low !== this.range[0] || high !== this.range[1] || !this.axes[0]!.childElementCount) this.drawAxes(low, high);
    const filled = rows.map((row) => ({ ...row, profile: profile(row.law, low, high) }));
    const most = Math.max(1e-300, ...filled.map((row) => peak(row.profile)));
    filled.forEach((row, k) => this.rows[k]!.draw(row, low, high, most));
    this.shown = filled;
  }

  private drawAxes(low: number, high: number): void {
    this.range = [low, high];
    for (const axis of this.axes) {
      const marks = ticks(low, high, 4).map((tick) => {
        const label = h("span", {}, short(tick));
        label.style.left = `${(100 * (tick - low)) / (high - low)}%`;
        return label;
      });
      axis.replaceChildren(...marks);
    }
  }

  /** Under the pointer: the return, the probability of at most that much, and the density. */
  private point(event: PointerEvent): void {
    const panel = (event.target as Element).closest("svg.panel");
    const row = panel && this.rows.findIndex((one) => one.element.contains(panel));
    const content = row === null ? undefined : this.shown[row];
    if (!panel || !content) return;
    const box = panel.getBoundingClientRect();
    const y = this.range[0] + ((this.range[1] - this.range[0]) * (event.clientX - box.left)) / box.width;
    const density = content.law.pdf(y);
    const tail = density === null ? "" : `, density ${short(density)}`;
    this.readout.textContent = `P(return ≤ ${short(y)}) = ${short(content.law.cdf(y))}${tail}`;
  }
}
