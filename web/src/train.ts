// Train: curves of runs, growing while they train.

import { button, check, empty, h, keep, select } from "./dom";
import { CurvePlot, drawing } from "./curves";
import { csv, download, png, svgFile } from "./download";
import { LawPlot } from "./lawplot";
import type { Model } from "./model";
import { explain, ridgePlot } from "./ridge";
import { joined, lines, type Line } from "./series";

const TITLES: Record<string, string> = {
  episode_return: "return",
  episode_length: "episode length",
  epsilon: "ε",
  steps_per_second: "steps per second",
  learning_rate: "learning rate",
  dormant: "dormant units",
  skipped: "skipped updates",
};

export class TrainView {
  readonly element = h("section", { class: "train" });
  private readonly plot = new CurvePlot();
  private readonly envs = h("div");
  private readonly metrics = h("div", { class: "metric" });
  private readonly runs = h("fieldset", { class: "runs" });
  private readonly ridgeRuns = h("div");
  private readonly ridge = h("div");
  private readonly hidden = new Set<string>();
  private metric = "episode_return";
  private share = 0;
  private log = false;
  private bands = false;
  private ridgeRun = "";
  private env: string | null = null;

  constructor(private readonly model: Model) {
    for (const topic of ["curves", "runs"] as const) model.on(topic, () => this.element.isConnected && this.refresh());
    const smooth = h("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: 0, id: "smoothing" });
    smooth.addEventListener("input", () => this.set({ share: Number(smooth.value) }));
    const options = h(
      "div",
      { class: "options" },
      this.envs,
      this.metrics,
      h("label", { class: "field grow" }, h("span", {}, "smoothing"), smooth),
      check("log axis", false, (log) => this.set({ log })),
      check("bands over seeds", false, (bands) => this.set({ bands })),
      button("all steps", "show all steps", () => this.plot.reset()),
      h("span", { class: "downloads", role: "group", "aria-label": "download" }, ...this.downloads()),
    );
    const hint = h("p", { class: "note" }, "Drag across the curves to zoom, double-click to see all.");
    this.element.append(
      options,
      this.plot.element,
      hint,
      this.runs,
      h("h2", {}, "The law of the start state over training"),
      this.ridgeRuns,
      this.ridge,
    );
  }

  private set(changed: { share?: number; log?: boolean; bands?: boolean; metric?: string }): void {
    this.share = changed.share ?? this.share;
    this.log = changed.log ?? this.log;
    this.bands = changed.bands ?? this.bands;
    this.metric = changed.metric ?? this.metric;
    this.draw();
  }

  private downloads(): HTMLButtonElement[] {
    return [
      button("CSV", "download the curves as CSV", () => download(`${this.metric}.csv`, this.asCsv())),
      button(
        "PNG",
        "download the picture as PNG",
        () => void png(this.picture()).then((blob) => download(`${this.metric}.png`, blob)),
      ),
      button("SVG", "download the picture as SVG", () => download(`${this.metric}.svg`, svgFile(this.picture()))),
    ];
  }

  private picture(): SVGSVGElement {
    return drawing(this.lines(), this.name(), this.log, this.plot.range());
  }

  private asCsv(): Blob {
    const found = this.lines();
    const { steps, columns } = joined(found);
    const names = found.flatMap((line) =>
      line.low ? [line.label, `${line.label}, most`, `${line.label}, least`] : [line.label],
    );
    return csv(["step", ...names], [steps, ...columns]);
  }

  private name(): string {
    return TITLES[this.metric] ?? this.metric;
  }

  private lines(): Line[] {
    const shown = this.model.runs.filter((run) => !this.hidden.has(run.id) && (this.env ?? run.env) === run.env);
    return lines(shown, this.model.curves, this.metric, this.share, this.bands);
  }

  /** Look at the model again: there may be new runs, metrics and rows. */
  refresh(): void {
    const metrics = [...new Set([...this.model.curves.values()].flatMap((data) => [...data.columns.keys()]))].filter(
      (name) => name !== "step",
    );
    if (!metrics.length) {
      this.plot.element.replaceChildren(
        empty("No curves yet: ", "nfdrl train --env CartPole-v1 --out out/pole", " writes them."),
      );
      return;
    }
    if (this.plot.element.querySelector(".empty")) this.plot.element.replaceChildren();
    if (!metrics.includes(this.metric)) this.metric = metrics[0]!;
    const envs = [...new Set(this.model.runs.filter((run) => this.model.curves.has(run.id)).map((run) => run.env))];
    keep(this.envs, envs.join(), () => {
      this.env = envs.length > 1 ? envs[0]! : null;
      const choose = (env: string) => {
        this.env = env || null;
        this.refresh();
      };
      const options = [...envs.map((env) => [env, env] as const), ["", "all"] as const];
      return envs.length > 1 ? [select("environment", options, this.env ?? "", choose)] : [];
    });
    keep(this.metrics, metrics.join(), () => [
      select(
        "metric",
        metrics.map((name) => [name, TITLES[name] ?? name] as const),
        this.metric,
        (metric) => this.set({ metric }),
      ),
    ]);
    const known = this.model.runs.filter((run) => this.model.curves.has(run.id) && (this.env ?? run.env) === run.env);
    keep(this.runs, known.map((run) => run.id).join(), () => [
      h("legend", {}, "runs"),
      ...known.map((run) =>
        check(`${run.name} · ${run.label} · ${run.env} · seed ${run.seed}`, !this.hidden.has(run.id), (on) => {
          if (on) this.hidden.delete(run.id);
          else this.hidden.add(run.id);
          this.draw();
        }),
      ),
    ]);
    const playable = known.filter((run) => run.playable);
    const choices = playable.map((run) => [run.id, run.name] as const);
    keep(this.ridgeRuns, choices.join(), () => {
      if (!playable.some((run) => run.id === this.ridgeRun)) this.ridgeRun = playable[0]?.id ?? "";
      const choose = (id: string) => {
        this.ridgeRun = id;
        this.refresh();
      };
      return playable.length > 1 ? [select("run", choices, this.ridgeRun, choose)] : [];
    });
    const newest = `${this.ridgeRun} ${this.model.run(this.ridgeRun)?.newest}`;
    if (this.ridge.dataset.newest !== newest) {
      this.ridge.dataset.newest = newest;
      void this.showRidge(this.ridgeRun);
    }
    this.draw();
  }

  private async showRidge(id: string): Promise<void> {
    if (!id) return this.ridge.replaceChildren(empty("No checkpoints yet."));
    const ridge = await this.model.ridge(id);
    if (this.ridgeRun !== id) return;
    this.ridge.replaceChildren(
      ...(ridge
        ? [this.roots(), ridgePlot(ridge, this.model.run(id)!), explain(ridge)]
        : [empty("This run has fewer than two checkpoints: ", "nfdrl train --checkpoint-every N --keep N", " keeps more.")]),
    );
  }

  private roots(): HTMLElement {
    return check("√ heights", LawPlot.rooted, (on) => {
      LawPlot.rooted = on;
      void this.showRidge(this.ridgeRun);
    });
  }

  private draw(): void {
    if (this.element.isConnected && this.model.curves.size) this.plot.draw(this.lines(), this.name(), this.log);
  }
}
