// The legend: which colours and marks are in sight, and whose they are. A click on a name lets all others step back.

import { afterRest, fill, h } from "../parts/dom.js";
import { spanColour } from "../parts/theme.js";
import { count, cut } from "../parts/text.js";

const MOST_NAMES = 24;
const REST_MILLISECONDS = 120;

/** The marks beside spans: a key of what is in sight, a class, a text, and an explanation. */
const MARKS = [
  ["instants", "rhomb", "instant", "an event without a duration"],
  ["several", "comb", "several spans in one mark", "spans too short to be drawn one by one; the fainter, the less of the time they cover"],
  ["gaps", "hatch", "missing events", "between the events beside it, nothing is left"],
  ["shares", "band", "share of events missing", "the fuller the band at the foot of a lane, the more events are missing; full height: all"],
  ["bar", "minimap", "bar on top: events, and which share is missing", "grey, from below: events; pink, from above: the share of them that is missing"],
];

export class Legend {
  /** `chosen(name)` is called with a name that shall stand out, or null. */
  constructor(chosen) {
    this._chosen = chosen;
    this._name = null;
    this._shown = "";
    this._names = h("ul", { class: "names", "aria-label": "Colours in sight" });
    this._marks = h("ul", { class: "marks", "aria-label": "Marks in sight" });
    this.element = h("div", { class: "legend", hidden: true }, this._names, this._marks);
    this.draw = afterRest(REST_MILLISECONDS, (sight) => this._draw(sight));
  }

  /** Show what is in sight: `names` has the pixels of each name, each of `MARKS` is whether there are any. */
  _draw({ names, ...sight }) {
    const all = [...names].sort(([, one], [, other]) => other - one).map(([name]) => name);
    // In the order of the alphabet, a name keeps its place while one moves.
    const listed = all.slice(0, MOST_NAMES).sort((one, other) => (one < other ? -1 : 1));
    if (this._name !== null && !listed.includes(this._name)) listed.unshift(this._name);
    const marks = MARKS.filter(([key]) => sight[key]);
    const signature = JSON.stringify([listed, all.length, marks, this._name]);
    if (signature === this._shown) return;
    this._shown = signature;
    this.element.hidden = !listed.length && !marks.length;
    fill(this._names,
      listed.map((name) => h("li", {}, this._item(name))),
      all.length > MOST_NAMES ? h("li", { class: "note" }, `and ${count(all.length - MOST_NAMES)} more names`) : null);
    fill(this._marks, marks.map(([, mark, text, hint]) => h("li", { title: hint }, h("span", { class: mark, "aria-hidden": "true" }), text)));
  }

  _item(name) {
    const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = `var(--${spanColour(name)})`;
    const pressed = String(this._name === name);
    return h("button", { type: "button", class: "quiet", title: cut(name, 300), "aria-pressed": pressed, on: { click: () => this._pick(name) } }, swatch, cut(name, 48));
  }

  _pick(name) {
    this._name = this._name === name ? null : name;
    this._chosen(this._name);
  }
}
