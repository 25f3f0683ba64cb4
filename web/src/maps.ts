// Where a state is: the cells of a grid world, or the nodes of a small graph.

import { s } from "./dom";
import type { AgentCard } from "./schema";

export type WorldMap = NonNullable<AgentCard["map"]>;

const CELL = 60;
const KINDS: Record<string, string> = { S: "start", F: "plain", H: "hole", G: "goal" };

/** A map whose states can be marked, and clicked if someone listens. */
export class MapView {
  readonly svg: SVGSVGElement;
  private readonly spots = new Map<number, SVGElement>();
  private readonly arrows = new Map<number, SVGElement>();

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
      const spot = s("g", { class: `cell ${kind}`, role: "img", "data-state": state, "aria-label": `state ${state}, ${kind}` });
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
    const [dx, dy, r] = [92, 74, 24];
    const xs = map.nodes.map((node) => node.x * dx);
    const ys = map.nodes.map((node) => node.y * dy);
    const [left, top] = [Math.min(...xs) - 40, Math.min(...ys) - 40];
    this.svg.setAttribute("viewBox", `${left} ${top} ${Math.max(...xs) + 40 - left} ${Math.max(...ys) + 40 - top}`);
    for (const { source, target } of map.edges) {
      const [x, y] = [xs[target]! - xs[source]!, ys[target]! - ys[source]!];
      const length = Math.hypot(x, y) || 1;
      const [ux, uy] = [(x / length) * r, (y / length) * r];
      const [ex, ey] = [xs[target]! - ux, ys[target]! - uy];
      const tip = `M${ex} ${ey}L${ex - 0.3 * ux + 0.18 * uy} ${ey - 0.3 * uy - 0.18 * ux}L${ex - 0.3 * ux - 0.18 * uy} ${ey - 0.3 * uy + 0.18 * ux}Z`;
      this.svg.append(s("path", { class: "edge", d: `M${xs[source]! + ux} ${ys[source]! + uy}L${ex} ${ey}` }));
      this.svg.append(s("path", { class: "tip", d: tip }));
    }
    map.nodes.forEach((node, state) => {
      const spot = s("g", { class: `cell ${node.terminal ? "goal" : "plain"}`, role: "img", "data-state": state, "aria-label": node.name });
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

  /** Write a short text into states, such as the arrow of the action that is chosen there. */
  write(texts: ReadonlyMap<number, string>): void {
    for (const [state, arrow] of this.arrows) arrow.textContent = texts.get(state) ?? "";
  }
}
