// The risk slider: from the mean to the worst of the returns, by CVaR, Wang's distortion or VaR.

import { button, h, select } from "./dom";
import { MEAN, title, type Risk } from "./risk";

const STEPS = 20;

/** The functional at a place of the slider: at its left end the mean, or the median for VaR. */
export function riskAt(kind: string, place: number): Risk {
  const part = place / STEPS;
  const round = (value: number) => Number(value.toFixed(3));
  if (kind === "var") return { name: "var", number: round(0.5 - 0.45 * part) };
  if (place === 0) return MEAN;
  if (kind === "wang") return { name: "wang", number: round(-2 * part) };
  return { name: "cvar", number: round(1 - 0.95 * part) };
}

export class RiskControl {
  readonly element: HTMLElement;
  private readonly slider: HTMLInputElement;
  private readonly output = h("output", { class: "wide" });
  private readonly reset: HTMLButtonElement;
  private kind = "cvar";

  constructor(private readonly change: (risk: Risk | null) => void) {
    this.slider = h("input", { type: "range", id: "risk", min: 0, max: STEPS, value: 0, input: () => this.moved() });
    this.reset = button("reset", "choose actions as in training", () => this.clear(true));
    const kinds = [
      ["cvar", "CVaR"],
      ["wang", "Wang"],
      ["var", "VaR"],
    ] as const;
    this.element = h(
      "fieldset",
      { class: "risk" },
      h("legend", {}, "Choose by risk"),
      select("functional", kinds, this.kind, (kind) => {
        this.kind = kind;
        this.moved();
      }),
      h("label", { class: "field grow" }, h("span", {}, "mean … worst returns"), this.slider),
      this.output,
      this.reset,
    );
    this.clear(false);
  }

  clear(tell: boolean): void {
    this.slider.value = "0";
    this.output.textContent = "as trained";
    this.reset.disabled = true;
    if (tell) this.change(null);
  }

  private moved(): void {
    const risk = riskAt(this.kind, Number(this.slider.value));
    this.output.textContent = title(risk);
    this.slider.setAttribute("aria-valuetext", title(risk));
    this.reset.disabled = false;
    this.change(risk);
  }
}
