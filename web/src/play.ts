// Play: the picture, the laws of all actions beside it, and the episode to scrub through.

import { added, colourOf, empty, h, icon, iconButton, keep, select, short } from "./dom";
import { EpisodeData } from "./episode";
import { axisOf, LawPlot } from "./lawplot";
import { LawTable, type Law } from "./laws";
import { LivePlayer } from "./live";
import { MapView } from "./maps";
import type { Model } from "./model";
import { Picture } from "./picture";
import { best, title, valuation, word, type Risk } from "./risk";
import { RiskControl } from "./riskcontrol";
import type { AgentCard, Step } from "./schema";
import { Timeline } from "./timeline";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const MAP_RATE = 4; // steps per second on a map, where a picture's own rate would be too fast to follow
const SAMPLED = 150; // steps of an episode that decide its axis
const DEFAULT_ALPHA = 0.1;
const TIMELINE = 250; // milliseconds between two drawings of a timeline that grows

export class PlayView {
  readonly element = h("section", { class: "play" });
  private readonly scene = h("div", { class: "scene" });
  private readonly caption = h("p", { class: "caption" });
  private readonly agents = h("div", { class: "agents" });
  private readonly transport = h("div", { class: "transport", role: "group", "aria-label": "playback" });
  private readonly stage = h("div", { class: "stage" });
  private readonly timeline = new Timeline((t) => this.scrub(t));
  private readonly toggle = iconButton("play", "play", () => this.setPlaying(!this.playing), "Space");
  private readonly risks = new RiskControl((risk) => this.setRisk(risk));
  private readonly picture = new Picture();
  private readonly riskKey = h("span", { class: "key risk" });
  private readonly seeds = h("div", { class: "seeds" });
  private readonly note = h("p", { class: "note thinned" });
  private plot: LawPlot | null = null;
  private map: MapView | null = null;
  private agent: AgentCard | null = null;
  private episode: EpisodeData | null = null;
  private player: LivePlayer | null = null;
  private truth: LawTable | null = null;
  private rows = new Map<number, number>(); // of the table of all states, by state
  private policy: { laws: LawTable; chosen: readonly number[] } | null = null;
  private truthKind = "";
  private axis: [number, number] = [0, 1];
  private run = "";
  private t = 0;
  private playing = false;
  private speed = 1;
  private risk: Risk | null = null;
  private due = 0;
  private last = 0;
  private drawing = false;
  private timelineDue = 0;
  private counting = new AbortController();

  constructor(private readonly model: Model) {
    this.buildControls();
    if (model.live) {
      model.on("runs", () => (this.player === null ? this.start() : this.listAgents()));
    }
    this.start();
  }

  private start(): void {
    const runs = this.model.runs.filter((run) => run.playable);
    if (!runs.length) {
      this.element.replaceChildren(
        empty("No saved agent yet. Train one: ", "nfdrl train --env CartPole-v1 --out out/pole"),
      );
      return;
    }
    const dock = h("div", { class: "dock" }, this.timeline.element, this.transport);
    this.element.replaceChildren(this.agents, this.stage, dock, this.timeline.under, this.risks.element);
    this.openRun(runs[0]!.id);
    this.listAgents();
  }

  private listAgents(): void {
    const runs = this.model.runs.filter((run) => run.playable);
    const agents = runs.map((run) => [run.id, `${run.name} · ${run.label} · ${run.env}`] as const);
    const open = (id: string) => this.openRun(id);
    keep(this.agents, agents.join(), () => (agents.length > 1 ? [select("agent", agents, this.run, open)] : []));
  }

  private buildControls(): void {
    const rate = select(
      "speed",
      SPEEDS.map((speed) => [String(speed), `${speed}×`] as const),
      "1",
      (speed) => this.setSpeed(Number(speed)),
    );
    rate.querySelector("select")!.id = "speed";
    this.transport.append(
      iconButton("restart", "restart", () => this.restart(), "r"),
      iconButton("back", "one step back", () => this.jump(-1), "ArrowLeft"),
      this.toggle,
      iconButton("on", "one step on", () => this.jump(1), "ArrowRight"),
      rate,
      this.seeds,
    );
    this.toggle.classList.add("primary");
    this.toggle.id = "toggle";
  }

  /** Show another agent: its recorded episodes, or itself. */
  private openRun(id: string): void {
    this.run = id;
    this.player?.close();
    this.player = null;
    if (this.model.live) return this.connect(id);
    const agent = this.model.agents.get(id)!;
    this.open(agent);
    const episodes = this.model.episodes.filter((episode) => episode.run === id);
    const options = episodes.map(
      (one, k) => [String(k), `${one.seed} (${one.length} steps, return ${short(one.score(one.length))})`] as const,
    );
    const choice = select("seed", options, "0", (k) => this.show(episodes[Number(k)]!));
    choice.querySelector("select")!.id = "seed";
    this.seeds.replaceChildren(choice);
    this.show(episodes[0]!);
  }

  private connect(id: string): void {
    const seed = h("input", { type: "number", id: "seed", min: 0, step: 1, value: 10000 });
    seed.addEventListener("change", () => this.restart());
    this.seeds.replaceChildren(h("label", { class: "field" }, h("span", {}, "seed"), seed));
    this.stage.replaceChildren(empty("Loading the agent…"));
    this.player = new LivePlayer(id, {
      hello: ({ agent, table }) => {
        const again = this.agent?.run.id === agent.run.id && this.episode !== null;
        this.model.agents.set(agent.run.id, agent);
        if (table) this.model.setTable(table);
        this.open(agent, again); // a newer checkpoint of the same run: the wishes stay
        this.setPlaying(true);
      },
      step: (step) => this.arrived(step),
      closed: (reason) => this.stage.replaceChildren(empty(reason || "The server has closed the connection.")),
    });
  }

  /** Build what depends on the agent alone. */
  private open(agent: AgentCard, again = false): void {
    this.agent = agent;
    this.episode = null;
    if (!again) {
      this.risk = null;
      this.riskKey.hidden = true;
      this.risks.clear(false);
    }
    const table = this.model.knownTable(agent.run.env);
    const known = table?.agents.find((one) => one.run === agent.run.id);
    this.truth = known?.truth ? new LawTable(known.truth) : null;
    this.truthKind = known?.truth_kind ?? "";
    this.rows = new Map(table?.states.map((state, row) => [state, row]));
    this.policy = known ? { laws: new LawTable(known.laws), chosen: known.chosen } : null;
    this.plot = new LawPlot(agent.actions, () => this.request());
    this.map = agent.map && new MapView(agent.map);
    this.showPolicy();
    this.scene.replaceChildren(this.map ? this.map.svg : this.picture.canvas, this.caption);
    const about = h(
      "p",
      { class: "about" },
      `${agent.run.label} on ${agent.run.env} after ${agent.step.toLocaleString("en")} steps of training. Acts by: ${agent.risk ?? "a function of its own"}.`,
    );
    this.stage.replaceChildren(
      h("div", { class: "left" }, about, this.scene),
      h("div", { class: "right" }, this.plot.element, this.legend(), this.note),
    );
  }

  /** On a map: the action that is chosen in each state, as the slider stands. */
  private showPolicy(): void {
    const { policy, risk } = this;
    if (!this.map || !policy) return;
    const value = risk && valuation(risk);
    const chosen = (row: number) => (value ? best(policy.laws.row(row), value) : policy.chosen[row]!);
    this.map.choose(new Map([...this.rows].map(([state, row]) => [state, chosen(row)])), this.agent!.actions);
  }

  private legend(): HTMLElement {
    const item = (kind: string, text: string) => h("span", { class: `key ${kind}` }, text);
    return h(
      "p",
      { class: "legend" },
      item("mean", "mean"),
      item("cvar", "CVaR"),
      this.riskKey,
      item("came", "the return that then came"),
      this.truth ? item("truth", `${this.truthKind} of the policy as trained`) : null,
    );
  }

  private show(episode: EpisodeData): void {
    this.episode = episode;
    this.t = 0;
    const stride = Math.max(1, Math.floor(episode.length / SAMPLED));
    const rows = Array.from({ length: Math.ceil(episode.length / stride) }, (_, k) => episode.laws(k * stride));
    this.axis = axisOf(rows, episode.followed ?? []);
    this.timeline.show(episode);
    this.countChoices();
    this.request();
  }

  /** A step of the agent that plays now. */
  private arrived(step: Step): void {
    if (!this.agent) return;
    if (step.t === 0 || !this.episode) {
      this.episode = new EpisodeData(this.agent.run.id, step.seed, step.risk);
      this.model.add(this.episode);
    }
    const following = this.t >= this.episode.length - 2 || step.t === 0;
    this.episode.append(step, this.agent.discount);
    const [low, high] = axisOf([this.episode.laws(step.t)], this.episode.followed ?? []);
    this.axis = step.t === 0 ? [low, high] : [Math.min(low, this.axis[0]), Math.max(high, this.axis[1])];
    if (following) this.t = this.episode.length - 1;
    if (step.end !== "running") this.model.tell("episodes");
    this.request();
  }

  private setPlaying(playing: boolean): void {
    if (playing && !this.player && this.episode && this.t >= this.episode.length - 1) this.t = 0;
    this.playing = playing;
    this.toggle.replaceChildren(icon(playing ? "pause" : "play"));
    this.toggle.setAttribute("aria-label", playing ? "pause" : "play");
    this.player?.send({ playing, speed: this.rate() });
    if (playing && this.player && this.episode) this.t = this.episode.length - 1;
    this.last = performance.now();
    this.due = 0;
    if (playing && !this.player) requestAnimationFrame((now) => this.tick(now));
  }

  private setSpeed(speed: number): void {
    this.speed = speed;
    this.player?.send({ speed: this.rate() });
  }

  private rate(): number {
    return this.speed * (this.agent?.map ? MAP_RATE : (this.agent?.fps ?? MAP_RATE));
  }

  private tick(now: number): void {
    if (!this.playing || !this.episode) return;
    this.due += ((now - this.last) / 1000) * this.rate();
    this.last = now;
    const steps = Math.floor(this.due);
    this.due -= steps;
    if (steps) this.move(this.t + steps);
    if (this.t >= this.episode.length - 1) return this.setPlaying(false);
    requestAnimationFrame((later) => this.tick(later));
  }

  private scrub(t: number): void {
    if (this.playing && this.player) this.setPlaying(false);
    this.move(t);
  }

  private move(t: number): void {
    if (!this.episode) return;
    this.t = Math.max(0, Math.min(this.episode.length - 1, t));
    this.request();
  }

  /** One step on or back; at the end of what has been played, the agent is asked for one more. */
  private jump(by: number): void {
    this.setPlaying(false);
    if (this.player && this.episode && this.t + by >= this.episode.length) this.player.send({ steps: 1 });
    else this.move(this.t + by);
  }

  private restart(): void {
    if (!this.player) return this.move(0);
    const seed = this.seeds.querySelector("input")!;
    this.player.send({ seed: Math.max(0, Math.floor(Number(seed.value) || 0)) });
    this.setPlaying(true);
  }

  private setRisk(risk: Risk | null): void {
    const own = this.agent?.risk ?? null;
    this.risk = risk && word(risk) === own ? null : risk;
    const marked = this.risk?.name === "wang" || this.risk?.name === "var";
    this.riskKey.textContent = marked ? title(this.risk!) : "";
    this.riskKey.hidden = !marked;
    this.player?.send({ risk: risk === null ? (own ?? "mean") : word(risk) });
    this.showPolicy();
    this.countChoices();
    this.request();
  }

  private countChoices(): void {
    if (!this.episode) return;
    this.counting.abort();
    this.counting = new AbortController();
    const name = this.risk ? title(this.risk) : "";
    void this.episode.allChoices(this.risk, (chosen) => this.timeline.choices(chosen, name), this.counting.signal);
  }

  /** Draw at the next frame; several requests are one. */
  private request(): void {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      if (this.episode?.length) this.draw(this.episode);
    });
  }

  /** Draw again, in other colours. */
  refresh(): void {
    this.request();
  }

  private draw(episode: EpisodeData): void {
    const { t } = this;
    const laws = episode.laws(t);
    const taken = episode.taken[t]!;
    const preferred = episode.choice(t, this.risk);
    const state = episode.states[t] ?? null;
    this.plot!.draw(
      laws.map((law, action) => this.row(law, action, taken, preferred, state)),
      ...this.axis,
    );
    this.note.textContent = added(episode.note);
    if (this.map) this.map.mark(state);
    else void this.picture.show(episode.picture(t));
    if (this.player && (performance.now() > this.timelineDue || episode.end !== "running")) {
      this.timelineDue = performance.now() + TIMELINE;
      this.timeline.show(episode);
      this.countChoices();
    }
    const label = `step ${t + 1} of ${episode.length}${this.player && episode.end === "running" ? "…" : ""}`;
    const action = `${this.agent!.actions[taken]}${preferred === taken ? "" : `, ${title(this.risk!)}: ${this.agent!.actions[preferred]}`}`;
    this.timeline.at(t, label);
    this.caption.textContent = `${label} · return so far ${short(episode.score(t))} · ${action}`;
    this.element.dataset.step = String(t);
    this.element.dataset.preferred = String(preferred);
  }

  private row(law: Law, action: number, taken: number, preferred: number, state: number | null) {
    const alpha = this.risk?.name === "cvar" ? this.risk.number : DEFAULT_ALPHA;
    const [mean, cvar] = [law.mean(), alpha < 1 ? law.cvar(alpha) : law.mean()];
    const values: { kind: "mean" | "cvar" | "risk"; at: number }[] = [
      { kind: "mean", at: mean },
      { kind: "cvar", at: cvar },
    ];
    let text = `mean ${short(mean)}\nCVaR ${alpha.toFixed(2)} ${short(cvar)}`;
    if (this.risk && this.risk.name !== "cvar" && this.risk.name !== "mean") {
      const at = valuation(this.risk)(law);
      values.push({ kind: "risk", at });
      text += `\n${title(this.risk)} ${short(at)}`;
    }
    const row = state === null ? undefined : this.rows.get(state);
    const truth = row === undefined ? null : (this.truth?.at(row, action) ?? null);
    const came = action === taken && this.episode!.followed ? this.episode!.followed[this.t]! : null;
    const colour = colourOf(this.agent!.run.colour);
    return {
      law,
      truth,
      marks: { values, came },
      chosen: action === taken,
      preferred: action === preferred && preferred !== taken,
      colour,
      text,
    };
  }

  /** Keys, wherever the focus is except in a control that needs them itself. */
  key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (target.matches("input, select, textarea, [role=tab]") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && target.matches("button, a, [role=button]")) return;
    const actions: Record<string, () => void> = {
      " ": () => this.setPlaying(!this.playing),
      ArrowLeft: () => this.jump(-1),
      ArrowRight: () => this.jump(1),
      Home: () => this.scrub(0),
      End: () => this.scrub((this.episode?.length ?? 1) - 1),
      r: () => this.restart(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}
