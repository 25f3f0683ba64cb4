// Files made in the browser: numbers as CSV, drawings as PNG and SVG.

import { h } from "./dom";

export function download(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Rows of numbers under their names. */
export function csv(names: readonly string[], columns: readonly (readonly (number | null | undefined)[])[]): Blob {
  const rows = (columns[0] ?? []).map((_, k) => columns.map((column) => column[k] ?? "").join(","));
  const head = names.map((name) => `"${name.replaceAll('"', '""')}"`).join(",");
  return new Blob([[head, ...rows].join("\n") + "\n"], { type: "text/csv" });
}

/** A drawing with nothing but its own colours and sizes in it. */
export function svgFile(svg: SVGSVGElement): Blob {
  svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
}

/** The same drawing in pixels, twice as fine as it is on a screen. */
export async function png(svg: SVGSVGElement): Promise<Blob> {
  const image = h("img", { src: URL.createObjectURL(svgFile(svg)) });
  await image.decode();
  const canvas = h("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise((done) => canvas.toBlob((blob) => done(blob!), "image/png"));
}
