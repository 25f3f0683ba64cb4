// The law of the start state over training: one outline per checkpoint, the newest in front.

import { added, colourOf, h, s, short } from "./dom";
import { axisOf, densityPath, LawPlot, peak, profile } from "./lawplot";
import { LawTable } from "./laws";
import { ticks } from "./scale";
import type { Ridge, RunCard } from "./schema";

const [WIDTH, LEFT, TALL, GAP] = [300, 70, 46, 20]; // the first is that of the paths

/** Heights may be square roots, as those of `LawPlot`. */
export function ridgePlot(ridge: Ridge, run: RunCard): SVGSVGElement {
  const laws = ridge.laws.map((packed, k) => new LawTable(packed).at(0, ridge.chosen[k]!)!);
  const [low, high] = axisOf(
    laws.map((law) => [law]),
    [],
  );
  const profiles = laws.map((law) => profile(law, low, high));
  const height = TALL + GAP * laws.length + 34;
  const svg = s("svg", {
    class: "ridge",
    viewBox: `0 0 ${LEFT + WIDTH + 10} ${height}`,
    role: "img",
    "aria-label": `law of the start state at ${laws.length} checkpoints`,
  });
  profiles.forEach((found, k) => {
    const group = s("g", { transform: `translate(${LEFT} ${GAP * (k + 1)})` });
    group.style.setProperty("--law", colourOf(run.colour));
    const outline = densityPath(found, Math.max(peak(found), 1e-300), 2, TALL, LawPlot.rooted ? 0.5 : 1);
    group.append(s("path", { class: "ridge-law", d: outline }));
    group.append(s("text", { x: -8, y: TALL, class: "ridge-step" }, ridge.steps[k]!.toLocaleString("en")));
    svg.append(group);
  });
  const floor = GAP * laws.length + TALL;
  for (const tick of ticks(low, high, 5)) {
    svg.append(
      s("text", { x: LEFT + (WIDTH * (tick - low)) / (high - low), y: floor + 16, class: "ridge-tick" }, short(tick)),
    );
  }
  svg.append(
    s("text", { x: LEFT + WIDTH / 2, y: floor + 31, class: "ridge-tick" }, "discounted return from the start"),
  );
  return svg;
}

export const explain = (ridge: Ridge): HTMLElement =>
  h(
    "p",
    { class: "note" },
    "Each outline is the law of the action chosen in the start state of one seed, at a checkpoint; heights are scaled to each. ",
    h("code", {}, "nfdrl train --checkpoint-every N --keep N"),
    " keeps more of them.",
    added(ridge.laws[0]!.note),
  );
