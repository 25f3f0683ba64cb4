// What all pages have: a title, a way around, light or dark, and the command that made them.

import { h, iconButton, isDark } from "./dom";

/** Fill the page; `refresh` draws it again after a change of colours. */
export function furnish(
  about: { readonly title: string; readonly madeBy: string },
  around: HTMLElement,
  content: HTMLElement,
  refresh: () => void,
): void {
  const theme = iconButton("theme", "light or dark", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    refresh();
  });
  const head = h("header", {}, h("h1", {}, about.title), around, theme);
  const foot = h("footer", {}, about.madeBy ? h("code", {}, about.madeBy) : null);
  document.querySelector("main")!.replaceChildren(head, content, foot);
  document.title = about.title;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
}
