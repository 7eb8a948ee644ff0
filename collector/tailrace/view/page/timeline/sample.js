// The line above lanes of which only a sample of the events is drawn: what is drawn, until when, and how far the viewer is.

import { fill, h } from "../parts/dom.js";
import { count, plural } from "../parts/text.js";

export class SampleNote {
  constructor() {
    this.element = h("p", { class: "sample-note", hidden: true });
  }

  /** Show that one in `oneIn` events is drawn; nothing if all are. `preparing` has how many `rows` of the table are summed,
   * `of` how many, or is null if none are being summed. */
  draw(oneIn, preparing) {
    const shown = oneIn > 1 ? JSON.stringify([oneIn, preparing?.rows, preparing?.of]) : "";
    if (this._shown === shown) return;
    this._shown = shown;
    this.element.hidden = !shown;
    fill(this.element, shown ? [h("strong", {}, `Sample: 1 event in ${count(oneIn)} is drawn.`), " Counts are estimates. ", ...until(preparing)] : []);
  }
}

function until(preparing) {
  if (!preparing) return ["Zoom in to see every event."];
  const { rows, of } = preparing;
  return [
    "All events are drawn once the viewer has read the table: ",
    h("progress", { value: rows, max: of, "aria-label": "Rows read" }),
    ` ${count(rows)} of ${plural(of, "row")}`,
  ];
}
