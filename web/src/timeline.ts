// The episode at a glance: what was expected, what came, where another choice would have been made.

import { h, s, short } from "./dom";
import type { EpisodeData } from "./episode";
import { padded } from "./scale";

const [WIDTH, HEIGHT, STRIP] = [1000, 64, 10];

export class Timeline {
  readonly element: HTMLElement;
  readonly range: HTMLInputElement;
  private readonly expected = s("path", { class: "expected" });
  private readonly came = s("path", { class: "came" });
  private readonly differs = s("path", { class: "differs" });
  private readonly cursor = s("path", { class: "cursor" });
  private readonly ends = [h("span", { class: "most" }), h("span", { class: "least" })];
  private readonly summary = h("p", { class: "summary", role: "status" });
  readonly under: HTMLElement;
  private episode: EpisodeData | null = null;
  private means: number[] = [];

  constructor(scrub: (t: number) => void) {
    const box = `0 0 ${WIDTH} ${HEIGHT + STRIP + 4}`;
    const svg = s("svg", {
      viewBox: box,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": "values over the episode",
    });
    svg.append(s("rect", { class: "strip", y: HEIGHT + 4, width: WIDTH, height: STRIP }));
    svg.append(this.came, this.expected, this.differs, this.cursor);
    this.range = h("input", {
      type: "range",
      id: "scrub",
      min: 0,
      max: 0,
      value: 0,
      "aria-label": "step of the episode",
      input: () => scrub(Number(this.range.value)),
    });
    svg.addEventListener("pointerdown", (event) => {
      const rect = svg.getBoundingClientRect();
      const place = (event.clientX - rect.left) / rect.width;
      scrub(Math.max(0, Math.min(this.length - 1, Math.floor(place * this.length))));
    });
    const legend = h(
      "p",
      { class: "legend" },
      h("span", { class: "key expected" }, "the mean of the action taken"),
      h("span", { class: "key came" }, "the return that then came"),
    );
    this.element = h("div", { class: "timeline" }, svg, ...this.ends, this.range);
    this.under = h("div", { class: "under" }, this.summary, legend);
  }

  private get length(): number {
    return Math.max(1, this.episode?.length ?? 1);
  }

  private x(t: number): string {
    return ((WIDTH * t) / this.length).toFixed(1);
  }

  /** Show an episode, or what has been added to it. */
  show(episode: EpisodeData): void {
    if (episode !== this.episode) this.means = [];
    this.episode = episode;
    while (this.means.length < episode.length) {
      const t = this.means.length;
      this.means.push(episode.laws(t)[episode.taken[t]!]!.mean());
    }
    this.range.max = String(this.length - 1);
    const came = episode.followed ?? [];
    const [least, most] = [Math.min(...this.means, ...came), Math.max(...this.means, ...came)];
    const [low, high] = padded(least, most);
    [this.ends[0]!.textContent, this.ends[1]!.textContent] = [short(most), short(least)];
    const y = (value: number) => (HEIGHT - (HEIGHT * (value - low)) / (high - low)).toFixed(1);
    const path = (values: readonly number[]) =>
      values.length ? `M${values.map((value, t) => `${this.x(t + 0.5)} ${y(value)}`).join("L")}` : "";
    this.expected.setAttribute("d", path(this.means));
    this.came.setAttribute("d", path(came));
  }

  /** Mark the current step. */
  at(t: number, label: string): void {
    this.range.value = String(t);
    this.range.setAttribute("aria-valuetext", label);
    this.cursor.setAttribute("d", `M${this.x(t + 0.5)} 0V${HEIGHT + STRIP + 4}`);
  }

  /** Colour the steps at which the choices are not the actions that were taken. */
  choices(chosen: readonly number[], name: string): void {
    const taken = this.episode?.taken ?? [];
    let [path, count] = ["", 0];
    for (let t = 0; t < chosen.length; t++) {
      if (chosen[t] === taken[t]) continue;
      let end = t;
      while (end < chosen.length && chosen[end] !== taken[end]) end++;
      path += `M${this.x(t)} ${HEIGHT + 4}H${this.x(end)}v${STRIP}H${this.x(t)}Z`;
      count += end - t;
      t = end;
    }
    this.differs.setAttribute("d", path);
    const share = chosen.length ? Math.round((100 * count) / chosen.length) : 0;
    this.summary.textContent = name
      ? `${name} would choose differently in ${count} of ${chosen.length} steps (${share} %).`
      : "The actions are those that the agent took.";
  }
}
