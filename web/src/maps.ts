// Where a state is: the cells of a grid world, or the nodes of a small graph.

import { s } from "./dom";
import type { AgentCard } from "./schema";

export type WorldMap = NonNullable<AgentCard["map"]>;

const CELL = 60;
const KINDS: Record<string, string> = { S: "start", F: "plain", H: "hole", G: "goal" };

/** The point at distance r from (x, y) on the way to another point. */
function towards(x: number, y: number, toX: number, toY: number, r: number): [number, number] {
  const length = Math.hypot(toX - x, toY - y) || 1;
  return [x + (r * (toX - x)) / length, y + (r * (toY - y)) / length];
}

/** A map whose states can be marked, and clicked if someone listens. */
export class MapView {
  readonly svg: SVGSVGElement;
  private readonly spots = new Map<number, SVGElement>();
  private readonly arrows = new Map<number, SVGElement>();
  private readonly edges: { source: number; actions: readonly number[]; drawn: readonly SVGElement[] }[] = [];

  constructor(map: WorldMap, pick?: (state: number) => void, pickable?: ReadonlySet<number>) {
    this.svg = s("svg", { class: "map", preserveAspectRatio: "xMinYMin", role: "group", "aria-label": "map" });
    if (map.kind === "grid") this.drawGrid(map.rows, map.columns, map.cells);
    else this.drawGraph(map);
    if (!pick) return;
    for (const [state, spot] of this.spots) {
      if (pickable && !pickable.has(state)) continue;
      spot.classList.add("pickable");
      spot.setAttribute("tabindex", "0");
      spot.setAttribute("role", "button");
      spot.addEventListener("click", () => pick(state));
      spot.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          pick(state);
        }
      });
    }
  }

  private drawGrid(rows: number, columns: number, cells: string): void {
    this.svg.setAttribute("viewBox", `0 0 ${columns * CELL} ${rows * CELL}`);
    [...cells].forEach((letter, state) => {
      const [x, y] = [(state % columns) * CELL, Math.floor(state / columns) * CELL];
      const kind = KINDS[letter] ?? "plain";
      const spot = s("g", {
        class: `cell ${kind}`,
        role: "img",
        "data-state": state,
        "aria-label": `state ${state}, ${kind}`,
      });
      spot.append(s("rect", { x: x + 1.5, y: y + 1.5, width: CELL - 3, height: CELL - 3, rx: 5 }));
      if (kind !== "plain") spot.append(s("text", { x: x + 8, y: y + 17, class: "small" }, kind));
      const arrow = s("text", { x: x + CELL / 2, y: y + CELL / 2 + 9, class: "arrow" });
      spot.append(arrow);
      this.spots.set(state, spot);
      this.arrows.set(state, arrow);
      this.svg.append(spot);
    });
  }

  private drawGraph(map: Extract<WorldMap, { kind: "graph" }>): void {
    const [dx, dy, r] = [92, 74, 27];
    const xs = map.nodes.map((node) => node.x * dx);
    const ys = map.nodes.map((node) => node.y * dy);
    const [left, top] = [Math.min(...xs) - 40, Math.min(...ys) - 64];
    this.svg.setAttribute("viewBox", `${left} ${top} ${Math.max(...xs) + 40 - left} ${Math.max(...ys) + 64 - top}`);
    for (const { source, target, actions } of map.edges) {
      const [x0, y0, x1, y1] = [xs[source]!, ys[source]!, xs[target]!, ys[target]!];
      const far = map.nodes[target]!.x - map.nodes[source]!.x > 1; // bowed, so that it does not cross what lies between
      const bow = far ? (y0 > 0 ? 1 : -1) * (18 + 0.12 * Math.abs(x1 - x0)) : 0;
      const [cx, cy] = [(x0 + x1) / 2, (y0 + y1) / 2 + 2 * bow];
      const [sx, sy] = towards(x0, y0, cx, cy, r);
      const [ex, ey] = towards(x1, y1, cx, cy, r);
      const [ux, uy] = [x1 - ex, y1 - ey];
      const tip = `M${ex} ${ey}L${ex - 0.3 * ux + 0.18 * uy} ${ey - 0.3 * uy - 0.18 * ux}L${ex - 0.3 * ux - 0.18 * uy} ${ey - 0.3 * uy + 0.18 * ux}Z`;
      const drawn = [
        s("path", { class: "edge", d: `M${sx} ${sy}Q${cx} ${cy} ${ex} ${ey}` }),
        s("path", { class: "tip", d: tip }),
      ];
      this.edges.push({ source, actions, drawn });
      this.svg.append(...drawn);
    }
    map.nodes.forEach((node, state) => {
      const spot = s("g", {
        class: `cell ${node.terminal ? "end" : "plain"}`,
        role: "img",
        "data-state": state,
        "aria-label": node.name,
      });
      spot.append(s("circle", { cx: xs[state]!, cy: ys[state]!, r }));
      spot.append(s("text", { x: xs[state]!, y: ys[state]! + 4, class: "node" }, node.name));
      this.spots.set(state, spot);
      this.svg.append(spot);
    });
  }

  /** Mark the state in which the agent is, or that was picked. */
  mark(state: number | null): void {
    for (const [key, spot] of this.spots) {
      spot.classList.toggle("here", key === state);
      if (spot.hasAttribute("tabindex")) spot.setAttribute("aria-pressed", String(key === state));
    }
  }

  /** Show the action that is chosen in each state: by its name in a cell, or by the ways that it may lead. */
  choose(chosen: ReadonlyMap<number, number>, actions: readonly string[]): void {
    for (const [state, arrow] of this.arrows) arrow.textContent = actions[chosen.get(state) ?? -1] ?? "";
    for (const { source, actions: ways, drawn } of this.edges)
      for (const part of drawn) part.classList.toggle("taken", ways.includes(chosen.get(source) ?? -1));
  }
}
