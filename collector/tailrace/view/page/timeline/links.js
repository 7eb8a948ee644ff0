// Where a selected range leads: its statistics, a note, other tools.

import { address as question } from "../api.js";
import { format } from "../address.js";
import { h } from "../parts/dom.js";

/** Return buttons and links for the selection of a timeline. */
export function links(timeline) {
  const { from, to } = timeline.canvas.selection;
  const range = { from, to, ...timeline.filters };
  const exports = timeline.frame.store.exports.map((each) => each.name);
  return [
    h("button", { type: "button", class: "primary", on: { click: () => timeline.zoomToSelection() } }, "Zoom"),
    h("a", { class: "button", href: format("statistics", range) }, "Statistics"),
    h("a", { class: "button", href: format("notes", range) }, "Note"),
    exports.includes("perfetto") ? h("a", { class: "button", href: question("export", { format: "perfetto", ...range }), download: "" }, "Perfetto file") : null,
  ];
}
