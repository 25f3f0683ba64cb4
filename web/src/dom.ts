// Elements without a framework. Text is always set as text, so that no name of a run can become markup.

type Child = Node | string | null | false;
type Handler = (event: Event) => void;
type Props = Record<string, string | number | boolean | null | Handler>;

function fill(element: Element, props: Props, children: readonly Child[]): void {
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child): child is Node | string => child !== null && child !== false));
}

/** An HTML element; functions among its properties listen to the event of that name. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, props, children);
  return element;
}

/** An SVG element. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: readonly Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, props, children);
  return element;
}

/** A select with the given options. */
export function select(
  label: string,
  options: readonly (readonly [value: string, text: string])[],
  value: string,
  change: (value: string) => void,
): HTMLLabelElement {
  const box = h("select", { change: () => change(box.value) });
  box.append(...options.map(([key, text]) => h("option", { value: key }, text)));
  box.value = value;
  return h("label", { class: "field" }, h("span", {}, label), box);
}

/** Pictures of the playback buttons, which not every font has. */
const ICONS: Record<string, string> = {
  restart: "M3 3v10M13 3v10L5 8Z",
  back: "M11 3v10L4 8Z",
  play: "M4 2v12l9-6Z",
  pause: "M4 3h3v10H4ZM9 3h3v10H9Z",
  on: "M3 3v10l7-5ZM13 3v10",
  theme: "M10 2a6 6 0 1 0 4 9 5 5 0 0 1-4-9Z",
};

export function icon(name: string): SVGElement {
  return s("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, s("path", { d: ICONS[name]! }));
}

/** A button with a picture. */
export function iconButton(name: string, label: string, click: () => void, key?: string): HTMLButtonElement {
  const made = button("", label, click, key);
  made.append(icon(name));
  return made;
}

/** A button; its key is told to screen readers and in its tooltip. */
export function button(text: string, label: string, click: () => void, key?: string): HTMLButtonElement {
  const title = key ? `${label} (${key})` : label;
  const name = text ? null : label;
  return h("button", { type: "button", title, "aria-label": name, "aria-keyshortcuts": key ?? null, click }, text);
}

/** Build a part again only if what it depends on has changed, so that nothing flickers or loses its focus. */
export function keep(place: HTMLElement, key: string, make: () => readonly HTMLElement[]): void {
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...make());
}

/** A check box with its label. */
export function check(text: string, value: boolean, change: (value: boolean) => void): HTMLLabelElement {
  const box = h("input", { type: "checkbox", change: () => change(box.checked) });
  box.checked = value;
  return h("label", { class: "check" }, box, h("span", {}, text));
}

/** Say what is missing, and what to do. */
export function empty(...words: string[]): HTMLElement {
  return h("p", { class: "empty" }, ...words.map((text) => (text.startsWith("nfdrl ") ? h("code", {}, text) : text)));
}

/** Words as a sentence, after a space; nothing of nothing. */
export function added(words: string | null): string {
  return words ? ` ${words.slice(0, 1).toUpperCase()}${words.slice(1)}.` : "";
}

/** A number in a few digits. */
export function short(value: number, digits = 3): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(1);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, size >= 1000 ? 4 : 0) });
}

/** A method's colour in the theme that is shown: brighter on dark, ink instead of black. */
export function colourOf(hex: string): string {
  const dark = isDark();
  if (hex.toLowerCase() === "#000000") return dark ? "#d7dde2" : "#22282d";
  const parts = [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const mixed = parts.map((part) => Math.round(dark ? part + 0.35 * (255 - part) : 0.82 * part));
  return `rgb(${mixed.join(", ")})`;
}

export function isDark(): boolean {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A colour of the style sheet, for canvases. */
export function cssColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
