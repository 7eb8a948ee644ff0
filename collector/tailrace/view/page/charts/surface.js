// A canvas that fills its box, draws anew when size or colours change, and has a tip at the pointer.

import { h, scale } from "../parts/dom.js";
import { onChange } from "../parts/theme.js";

export class Surface {
  /** `height(width)` and `paint(pen, width, height)` draw; `tip(x, y)` returns a text or null; `picked(x, y)` takes clicks. */
  constructor({ label, height, paint, tip, picked = null }) {
    this._height = height;
    this._paint = paint;
    this._canvas = h("canvas", { role: "img", "aria-label": label });
    this._tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.element = h("div", { class: "canvasbox" }, this._canvas, this._tip);
    this._pen = this._canvas.getContext("2d", { alpha: false });
    this._size = new ResizeObserver(() => this.draw());
    this._size.observe(this.element);
    this._stop = onChange(() => this.draw());
    this._canvas.addEventListener("pointermove", (event) => this._show(event, tip));
    this._canvas.addEventListener("pointerleave", () => (this._tip.hidden = true));
    if (picked) this._canvas.addEventListener("click", (event) => picked(event.offsetX, event.offsetY));
  }

  /** Set what screen readers get for the canvas. */
  set label(text) {
    this._canvas.setAttribute("aria-label", text);
  }

  close() {
    this._stop();
    this._size.disconnect();
  }

  draw() {
    const width = this._canvas.clientWidth;
    if (!width) return;
    const height = this._height(width);
    this._canvas.style.height = `${height}px`;
    scale(this._canvas, this._pen);
    this._paint(this._pen, width, height);
  }

  _show(event, tip) {
    const text = tip(event.offsetX, event.offsetY);
    this._tip.hidden = !text;
    if (!text) return;
    this._tip.textContent = text;
    const most = this.element.clientWidth - this._tip.offsetWidth - 8;
    this._tip.style.left = `${Math.max(8, Math.min(event.offsetX + 24, most))}px`;
    this._tip.style.top = `${event.offsetY + 30}px`;
  }
}
