// The line below the timeline: what is under the pointer, what is selected, how many lanes and gaps there are.

import { h } from "../parts/dom.js";
import { count, plural } from "../parts/text.js";
import { hiddenWords } from "./order.js";

const HELP = "wheel zooms · drag moves · Shift + drag selects · ? keys";

export class StatusLine {
  constructor(canvas) {
    this._canvas = canvas;
    this._hover = h("span", { class: "hover" });
    this._status = h("span");
    /** Text about the order of the lanes, or "". */
    this.order = "";
    this.element = h("div", { class: "status" }, this._hover, this._status, h("span", { id: "timeline-keys" }, HELP));
  }

  /** Show a text about what is under the pointer. */
  hovered(text) {
    this._hover.textContent = text;
  }

  /** Show what is in sight, of `all` lanes. `newest` says that earlier events are not, as only the newest were looked at first. */
  draw(newest, all) {
    const { selection, clock, layout, frame } = this._canvas;
    if (!layout) return;
    const selected = selection ? `${clock.length(Number(selection.to - selection.from))} selected · ` : "";
    const gaps = frame?.gaps ?? 0;
    const hidden = hiddenWords(all, layout.lanes);
    const lanes = hidden.of ? `${count(layout.lanes.length)}${hidden.of} lanes` : plural(layout.lanes.length, "lane");
    this._status.textContent = `${selected}${lanes}${hidden.lacks}${gaps ? ` · ${plural(gaps, "gap")} near` : ""}${this.order ? ` · ${this.order}` : ""}${newest ? " · the newest events; 0 shows earlier ones too" : ""}`;
  }
}
