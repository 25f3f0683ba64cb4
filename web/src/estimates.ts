// Tables of statistics: each number with its interval, in figures and as a bar on the axis of its column.

import { h, s, short } from "./dom";
import { padded } from "./scale";
import type { Estimate } from "./schema";

const [WIDTH, HEIGHT] = [100, 16]; // units of a bar; it is stretched to its column

/** A column of estimates, one per row; null where a row has none. */
export interface Column {
  readonly name: string;
  readonly cells: readonly (Estimate | null)[];
  readonly seeds?: readonly (readonly number[])[]; // the score of each seed, as marks on the bar
}

export interface Row {
  readonly head: Node;
  readonly paint: (element: HTMLElement) => void; // gives the row its colour
}

/** A number with its interval, in words. */
export function written({ value, low, high }: Estimate): HTMLElement {
  if (value === null) return h("span", { class: "none" }, "—");
  const ends = low === null || high === null ? null : h("span", { class: "ends" }, `[${short(low)}, ${short(high)}]`);
  return h("span", { class: "estimate" }, h("span", { class: "value" }, short(value)), ends);
}

/** The least and the largest number that a column draws. */
function range(column: Column): [number, number] {
  const all = [
    ...column.cells.flatMap((cell) => [cell?.value, cell?.low, cell?.high]),
    ...(column.seeds ?? []).flat(),
  ].filter((value): value is number => typeof value === "number");
  return [Math.min(...all), Math.max(...all)];
}

function bar(cell: Estimate, seeds: readonly number[], [low, high]: [number, number]): SVGSVGElement {
  const x = (value: number) => ((WIDTH * (value - low)) / (high - low)).toFixed(2);
  const svg = s("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    class: "interval",
    "aria-hidden": "true",
  });
  svg.append(s("path", { class: "rule", d: `M0 ${HEIGHT / 2}H${WIDTH}` }));
  if (cell.low !== null && cell.high !== null)
    svg.append(
      s("rect", { class: "reach", x: x(cell.low), y: 4, width: Number(x(cell.high)) - Number(x(cell.low)), height: 8 }),
    );
  for (const seed of seeds) svg.append(s("path", { class: "seed", d: `M${x(seed)} 2V14` }));
  svg.append(s("path", { class: "middle", d: `M${x(cell.value!)} 0V${HEIGHT}` }));
  return svg;
}

/** A table under what it shows; it scrolls by itself where it is wider than the page. */
export function scrolling(title: string, table: HTMLTableElement): HTMLElement {
  table.setAttribute("aria-label", title);
  const region = h("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": `${title}, to scroll` }, table);
  return h("div", {}, h("p", { class: "note" }, title), region);
}

/** A row per setup: its name, a cell per column of estimates, and words. */
export function estimateTable(
  rows: readonly Row[],
  columns: readonly Column[],
  last: readonly (readonly [name: string, cells: readonly string[]])[] = [],
): HTMLTableElement {
  const shown = columns.filter((column) => column.cells.some((cell) => cell && cell.value !== null));
  const ranges = shown.map(range);
  const th = (...content: (string | Node)[]) => h("th", { scope: "col" }, ...content);
  const ends = ([low, high]: [number, number]) => {
    const marked = low < high ? [low, high] : []; // nothing to mark where all are the same
    return h("span", { class: "axis-ends", "aria-hidden": "true" }, ...marked.map((end) => h("span", {}, short(end))));
  };
  const head = h(
    "tr",
    {},
    th("method"),
    ...shown.map((column, k) => th(column.name, ends(ranges[k]!))),
    ...last.map(([name]) => h("th", { scope: "col", class: "plain" }, name)),
  );
  const body = rows.map((row, k) => {
    const made = h("tr", {}, h("th", { scope: "row" }, row.head));
    row.paint(made);
    for (const [at, column] of shown.entries()) {
      const cell = column.cells[k];
      const axis = padded(...ranges[at]!, 0.04);
      const drawn = cell && cell.value !== null ? bar(cell, column.seeds?.[k] ?? [], axis) : null;
      made.append(h("td", { class: "number" }, cell ? written(cell) : "", drawn));
    }
    made.append(...last.map(([, cells]) => h("td", { class: "plain" }, cells[k] ?? "")));
    return made;
  });
  return h("table", { class: "estimates" }, h("thead", {}, head), h("tbody", {}, ...body));
}
