// The page: five views on one model, or a report.

import "uplot/dist/uPlot.min.css";
import "./page.css";
import { CalibrationView } from "./calibration";
import { CompareView } from "./compare";
import { h } from "./dom";
import { Model } from "./model";
import { PaperView } from "./paper";
import { PlayView } from "./play";
import { ReportView } from "./report";
import type { Document, Report } from "./schema";
import { furnish } from "./shell";
import { TrainView } from "./train";

interface View {
  readonly element: HTMLElement;
  refresh(): void;
  key?(event: KeyboardEvent): void;
}

const VIEWS: readonly (readonly [name: string, title: string, make: (model: Model) => View])[] = [
  ["play", "Play", (model) => new PlayView(model)],
  ["calibration", "Calibration", (model) => new CalibrationView(model)],
  ["train", "Train", (model) => new TrainView(model)],
  ["compare", "Compare", (model) => new CompareView(model)],
  ["paper", "Paper", (model) => new PaperView(model)],
];

class Page {
  private readonly made = new Map<string, View>();
  private readonly tabs = new Map<string, HTMLElement>();
  private readonly panel = h("div", { id: "panel", role: "tabpanel", tabindex: -1 });
  private shown = "";

  constructor(private readonly model: Model) {
    const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "views" });
    for (const [name, title] of VIEWS) {
      const tab = h(
        "button",
        { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", click: () => this.go(name) },
        title,
      );
      this.tabs.set(name, tab);
      tabs.append(tab);
    }
    tabs.addEventListener("keydown", (event) => this.tabKey(event));
    furnish(model, tabs, this.panel, () => this.refresh());
    document.addEventListener("keydown", (event) => this.made.get(this.shown)?.key?.(event));
    window.addEventListener("hashchange", () => this.route());
    this.route();
  }

  private route(): void {
    const wanted = location.hash.slice(1);
    this.show(this.tabs.has(wanted) ? wanted : VIEWS[0]![0]);
  }

  private go(name: string): void {
    if (location.hash.slice(1) === name) this.show(name);
    else location.hash = name;
  }

  private show(name: string): void {
    this.shown = name;
    for (const [key, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(key === name));
      tab.tabIndex = key === name ? 0 : -1;
    }
    if (!this.made.has(name)) this.made.set(name, VIEWS.find(([key]) => key === name)![2](this.model));
    this.panel.setAttribute("aria-labelledby", `tab-${name}`);
    this.panel.replaceChildren(this.made.get(name)!.element);
    this.made.get(name)!.refresh();
  }

  private tabKey(event: KeyboardEvent): void {
    const names = [...this.tabs.keys()];
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = names[(names.indexOf(this.shown) + step + names.length) % names.length]!;
    this.go(next);
    this.tabs.get(next)!.focus();
  }

  private refresh(): void {
    this.made.get(this.shown)?.refresh();
  }
}

async function main(): Promise<void> {
  const text = document.getElementById("document")?.textContent;
  const recorded = text ? (JSON.parse(text) as Document | Report) : null;
  if (recorded && "kind" in recorded) return void new ReportView(recorded);
  const model = recorded ? Model.recorded(recorded) : new Model(true);
  if (model.live) await model.look();
  new Page(model);
  if (model.live) void model.poll();
}

void main();
