// Paper: the figures that have been made, each with the command that makes it again.

import { button, empty, h } from "./dom";
import type { Model } from "./model";
import type { Figure } from "./schema";

export class PaperView {
  readonly element = h("section", { class: "paper" });

  constructor(private readonly model: Model) {
    this.element.append(empty("Looking for figures…"));
    void this.load();
  }

  private async load(): Promise<void> {
    const figures = await this.model.figures();
    if (!figures.length) {
      const how = this.model.live
        ? ["No figures in this folder: ", "nfdrl paper all --smoke", " makes them."]
        : ["No figures in this page: ", "nfdrl page RUN --figures FOLDER", " puts them in."];
      return this.element.replaceChildren(empty(...how));
    }
    this.element.replaceChildren(...figures.map((figure) => this.card(figure)));
  }

  private card(figure: Figure): HTMLElement {
    const image = h("img", { src: figure.image, alt: `figure of ${figure.title}`, loading: "lazy" });
    const copy = button(
      "copy",
      `copy the command of ${figure.title}`,
      () => void navigator.clipboard?.writeText(figure.command),
    );
    copy.setAttribute("aria-label", `copy the command of ${figure.title}`);
    const command = figure.command ? h("p", { class: "command" }, h("code", {}, figure.command), copy) : null;
    return h(
      "article",
      {},
      h("h2", {}, figure.title),
      h("figure", {}, h("a", { href: figure.image, target: "_blank", rel: "noopener" }, image)),
      command,
      figure.date ? h("p", { class: "note" }, figure.date.slice(0, 10)) : null,
    );
  }

  refresh(): void {} // figures have colours of their own
}
