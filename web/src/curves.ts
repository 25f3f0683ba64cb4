// Curves on a canvas, by uPlot; the same lines as SVG for papers.

import uPlot from "uplot";
import { colourOf, cssColour, h, s, short } from "./dom";
import { joined, type Line } from "./series";
import { padded, ticks } from "./scale";

export const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]] as const;

/** An axis that curves run along. */
export interface Along {
  readonly label: string;
  readonly one: string; // a value of it, in the legend
  readonly tick: (value: number) => string;
  readonly value: (value: number) => string;
}

export const STEPS: Along = {
  label: "steps",
  one: "step",
  tick: (step) => (step >= 1e6 ? `${step / 1e6}M` : step >= 1e3 ? `${step / 1e3}k` : String(step)),
  value: (step) => Math.round(step).toLocaleString("en"),
};

/** Runs of one method share its colour: dashes tell them apart. */
function dashOf(found: readonly Line[], k: number): number[] {
  if (found[k]!.dash) return [...found[k]!.dash];
  const before = found.slice(0, k).filter((line) => line.colour === found[k]!.colour).length;
  return [...DASHES[before % DASHES.length]!];
}

/** A band is shown if its curve is. */
function hideEdges(plot: uPlot, k: number | null, changed: uPlot.Series): void {
  if (k === null || changed.show === undefined || plot.series[k]!.class) return;
  for (const at of [k + 1, k + 2]) if (plot.series[at]?.class) plot.setSeries(at, { show: changed.show });
}

export class CurvePlot {
  readonly element = h("div", { class: "curves" });
  private plot: uPlot | null = null;
  private shape = "";

  constructor(private readonly along: Along = STEPS) {
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.element);
  }

  private size(): { width: number; height: number } {
    const width = Math.max(280, this.element.clientWidth);
    return { width, height: Math.round(Math.min(440, 0.45 * width + 120)) };
  }

  /** Draw lines; if only their data have grown, the zoom stays. */
  draw(found: readonly Line[], name: string, log: boolean): void {
    const { steps, columns } = joined(found);
    const safe = log
      ? columns.map((column) =>
          column.map((value) => (value && value > 0 ? value : value === undefined ? undefined : null)),
        )
      : columns;
    const shape = JSON.stringify([
      found.map((line) => [line.label, colourOf(line.colour), !!line.low]),
      name,
      log,
      cssColour("--ink"),
    ]);
    if (shape === this.shape && this.plot) {
      const zoomed = this.plot.scales.x!;
      const data = this.plot.data[0];
      const whole = zoomed.min === data[0] && zoomed.max === data[data.length - 1];
      this.plot.setData([steps, ...safe] as uPlot.AlignedData, whole);
      if (!whole) this.plot.redraw();
      return;
    }
    this.shape = shape;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(found, name, log), [steps, ...safe] as uPlot.AlignedData, this.element);
  }

  private options(found: readonly Line[], name: string, log: boolean): uPlot.Options {
    const series: uPlot.Series[] = [
      { label: this.along.one, value: (_, at) => (at === null ? "–" : this.along.value(at)) },
    ];
    const bands: uPlot.Band[] = [];
    found.forEach((line, k) => {
      const stroke = colourOf(line.colour);
      series.push({
        label: line.label,
        stroke,
        width: 1.8,
        pxAlign: 0, // the line of a band has a point every few pixels: rounded, it would be a staircase
        dash: dashOf(found, k),
        spanGaps: true,
        points: { show: false },
        value: (_, value) => (value === null ? "–" : short(value)),
      });
      if (!line.low) return;
      const edge = {
        stroke: "transparent",
        width: 0,
        spanGaps: true,
        points: { show: false },
        class: "edge", // which the legend leaves out
      };
      series.push({ ...edge }, { ...edge });
      bands.push({
        series: [series.length - 2, series.length - 1],
        fill: stroke.replace("rgb(", "rgba(").replace(")", ", 0.2)"),
      });
    });
    const axis = {
      stroke: cssColour("--ink"),
      grid: { stroke: cssColour("--line"), width: 1 },
      ticks: { stroke: cssColour("--line"), width: 1 },
      font: "12px system-ui, sans-serif",
    };
    return {
      ...this.size(),
      series,
      bands,
      scales: { x: { time: false }, y: { distr: log ? 3 : 1 } },
      axes: [
        {
          ...axis,
          label: this.along.label,
          labelSize: 24,
          values: (_, found) => found.map((value) => this.along.tick(value)),
        },
        {
          ...axis,
          label: name,
          labelSize: 24,
          size: 64,
          values: (_, found) => found.map((value) => (value === null ? "" : short(value))),
        },
      ],
      hooks: { setSeries: [hideEdges] },
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      legend: {
        live: true,
        markers: { dash: (plot, k) => (plot.series[k]?.dash?.length ? "dashed" : "solid") },
      },
    };
  }

  /** Show all steps again. */
  reset(): void {
    const data = this.plot?.data[0];
    if (data?.length) this.plot!.setScale("x", { min: data[0]!, max: data[data.length - 1]! });
  }

  /** The steps that are shown. */
  range(): [number, number] {
    const x = this.plot?.scales.x;
    return [x?.min ?? 0, x?.max ?? 1];
  }
}

/** The same lines as a drawing of their own. */
export function drawing(
  found: readonly Line[],
  name: string,
  log: boolean,
  [from, to]: [number, number],
): SVGSVGElement {
  const [width, height, left, bottom, top] = [720, 400, 64, 44, 12 + 18 * found.length];
  const points = (line: Line, values: readonly (number | null)[] = []) =>
    line.steps
      .map((step, k) => [step, values[k] ?? null] as const)
      .filter((point): point is [number, number] => point[1] !== null && (!log || point[1] > 0))
      .filter(([step]) => step >= from && step <= to);
  const inside = found.map((line) => points(line, line.values));
  const bands = found.map((line) => [...points(line, line.high), ...points(line, line.low).reverse()]);
  const scale = (value: number) => (log ? Math.log10(value) : value);
  const all = [...inside, ...bands].flat().map(([, value]) => scale(value));
  const [low, high] = padded(
    all.reduce((a, b) => Math.min(a, b), Infinity),
    all.reduce((a, b) => Math.max(a, b), -Infinity),
    0.04,
  );
  const x = (step: number) => left + ((width - left - 12) * (step - from)) / (to - from || 1);
  const y = (value: number) => height - bottom - ((height - bottom - top) * (scale(value) - low)) / (high - low);
  const text = { "font-family": "sans-serif", "font-size": 12, fill: "#1f262b" };
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
  svg.append(s("rect", { width, height, fill: "#ffffff" }));
  for (const tick of ticks(low, high)) {
    const value = log ? 10 ** tick : tick;
    svg.append(s("path", { d: `M${left} ${y(value)}H${width - 12}`, stroke: "#d5dade", fill: "none" }));
    svg.append(s("text", { ...text, x: left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  }
  for (const tick of ticks(from, to))
    svg.append(
      s("text", { ...text, x: x(tick), y: height - bottom + 18, "text-anchor": "middle" }, STEPS.tick(tick)),
    );
  const [middle, centre] = [(left + width) / 2, (top + height - bottom) / 2];
  svg.append(s("text", { ...text, x: middle, y: height - 6, "text-anchor": "middle" }, "steps"));
  const upright = `translate(14 ${centre}) rotate(-90)`;
  svg.append(s("text", { ...text, transform: upright, "text-anchor": "middle" }, name));
  const path = (along: readonly [number, number][]) =>
    `M${along.map(([step, value]) => `${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}`;
  bands.forEach((along, k) => {
    if (along.length) svg.append(s("path", { d: `${path(along)}Z`, fill: found[k]!.colour, "fill-opacity": 0.2 }));
  });
  inside.forEach((along, k) => {
    const look = {
      stroke: found[k]!.colour,
      "stroke-dasharray": dashOf(found, k).join(" ") || null,
      "stroke-width": 1.6,
      fill: "none",
    };
    if (along.length) svg.append(s("path", { ...look, d: path(along) }));
    svg.append(
      s("path", { ...look, d: `M${left} ${12 + 18 * k}h24` }),
      s("text", { ...text, x: left + 30, y: 16 + 18 * k }, found[k]!.label),
    );
  });
  return svg;
}
