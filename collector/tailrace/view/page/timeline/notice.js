// What stands over lanes that show nothing: what is being read, what went wrong, or that nothing lies in sight.

import { fill, h } from "../parts/dom.js";
import { problem } from "../parts/problem.js";
import { plural } from "../parts/text.js";

const PATIENCE_MILLISECONDS = 250;
const READING_LANES = "Reading lanes …";

export class Notice {
  constructor(canvas) {
    this._canvas = canvas;
    this._error = null;
    this._reading = READING_LANES;
    this._patience = 0;
    this.element = h("div", { class: "message", role: "status" });
    this.draw();
  }

  close() {
    clearTimeout(this._patience);
  }

  /** Take note that a frame is being read. Most come so soon that no notice is needed. */
  reads() {
    clearTimeout(this._patience);
    this._patience = setTimeout(() => {
      const { lanes } = this._canvas.layout;
      const events = lanes.reduce((sum, lane) => sum + lane.events, 0);
      this._reading = `Reading this range: ${plural(events, "event")} in ${plural(lanes.length, "lane")} …`;
      this.draw();
    }, PATIENCE_MILLISECONDS);
  }

  /** Take note that nothing is being read any more, and of what went wrong, if anything did. The next drawing shows it. */
  rests(error = null) {
    clearTimeout(this._patience);
    this._reading = "";
    this._error = error;
  }

  /** Say what is true of the lanes in sight, or nothing if these show events. */
  draw() {
    const { layout, whole, bare, hidden } = this._canvas;
    const lanes = Boolean(layout?.lanes.length);
    // A newer version may have events where the frame in sight has none.
    const reading = whole && !bare ? "" : this._reading;
    const state = this._error ? "failed" : reading ? "reading" : lanes && !(whole && bare) ? "drawn" : "empty";
    const empty = lanes ? "No event and no gap in sight. The bar above shows when events are." : hidden ? "No lane has this text. Clear the filter to see all lanes." : "No event here yet.";
    const text = this._error?.message ?? (reading || empty);
    if (this.element.dataset.state === state && this._text === text) return;
    this._text = text;
    this.element.dataset.state = state;
    this.element.hidden = state === "drawn";
    fill(this.element, this._error ? problem(this._error) : text);
  }
}
