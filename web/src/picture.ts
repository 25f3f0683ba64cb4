// The picture of the environment, on a canvas: of image elements a browser keeps hundreds decoded.

import { h } from "./dom";

export class Picture {
  readonly canvas = h("canvas", { class: "picture", role: "img", "aria-label": "the environment" });
  private shown: string | null = null;
  private asked = 0;
  private painted = 0;

  /** Paint a data URI, unless a later one was decoded before it; nothing of null. */
  async show(picture: string | null): Promise<void> {
    this.canvas.hidden = picture === null;
    if (picture === null || picture === this.shown) return;
    this.shown = picture;
    const turn = ++this.asked;
    const [head, data] = picture.split(",") as [string, string];
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: head.slice(5, head.indexOf(";")) }));
    if (turn > this.painted) {
      this.painted = turn;
      if (this.canvas.width !== bitmap.width) this.canvas.width = bitmap.width;
      if (this.canvas.height !== bitmap.height) this.canvas.height = bitmap.height;
      this.canvas.getContext("2d")!.drawImage(bitmap, 0, 0);
    }
    bitmap.close();
  }
}
