// The legend: which colours and marks are in sight, and whose they are. A click on a name lets all others step back.

import { afterRest, fill, h } from "../parts/dom.js";
import { spanColour } from "../parts/theme.js";
import { count, cut } from "../parts/text.js";

const MOST_NAMES = 24;
const REST_MILLISECONDS = 120;

export class Legend {
  /** `chosen(name)` is called with a name that shall stand out, or null. */
  constructor(chosen) {
    this._chosen = chosen;
    this._name = null;
    this._shown = "";
    this.element = h("ul", { class: "legend", "aria-label": "Colours in sight", hidden: true });
    this.draw = afterRest(REST_MILLISECONDS, (sight) => this._draw(sight));
  }

  /** Show what is in sight: `names` has the pixels of each name, `instants` and `gaps` are whether there are any. */
  _draw({ names, instants, gaps }) {
    const all = [...names].sort(([, one], [, other]) => other - one).map(([name]) => name);
    // In the order of the alphabet, a name keeps its place while one moves.
    const listed = all.slice(0, MOST_NAMES).sort((one, other) => (one < other ? -1 : 1));
    if (this._name !== null && !listed.includes(this._name)) listed.unshift(this._name);
    const signature = JSON.stringify([listed, all.length, instants, gaps, this._name]);
    if (signature === this._shown) return;
    this._shown = signature;
    this.element.hidden = !listed.length && !instants && !gaps;
    fill(this.element,
      listed.map((name) => h("li", {}, this._item(name))),
      all.length > MOST_NAMES ? h("li", { class: "note" }, `and ${count(all.length - MOST_NAMES)} more names`) : null,
      instants ? h("li", {}, h("span", { class: "rhomb", "aria-hidden": "true" }), "instant") : null,
      gaps ? h("li", {}, h("span", { class: "hatch", "aria-hidden": "true" }), "missing events") : null);
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
