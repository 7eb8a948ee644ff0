// The panel beside the timeline: every column of a row, its parent and children; a gap; a selected range.

import { get } from "../api.js";
import { fill, h } from "../parts/dom.js";
import { problem } from "../parts/problem.js";
import { count, cut, duration, moment } from "../parts/text.js";
import { mark } from "../parts/whole.js";
import { amount, placeOf, title } from "./words.js";
import { columnsOf, placeParams, relativesOf } from "./row.js";

const MOST_NAMES = 8;

export class Details {
  /** `on` has `closed()`, `opened(place)` and `shown(from, to)`. */
  constructor(on) {
    this._on = on;
    this._turn = 0;
    this._title = h("h2");
    this._body = h("div", { class: "body" });
    this.element = h("aside", { class: "details", hidden: true, tabindex: "0", "aria-label": "Details" },
      h("header", {}, this._title, h("button", { type: "button", class: "quiet icon", "aria-label": "Close details", title: "Close (Esc)", on: { click: () => on.closed() } }, "✕")),
      this._body);
  }

  hide() {
    this._turn += 1;
    this.element.hidden = true;
  }

  /** Show a row by its place in the table. */
  async row(place) {
    await this._load("Row", get("row", placeParams(place)), (answer) => {
      const { name, columns, times } = columnsOf(answer);
      this._title.textContent = cut(name, 200);
      const { parent, children, more } = relativesOf(answer);
      return [
        times ? h("div", {}, h("button", { type: "button", on: { click: () => this._on.shown(times.from, times.to) } }, "Zoom to it")) : null,
        facts(columns),
        this._family("Parent", parent),
        this._family(more ? `Children (the first ${children.length})` : "Children", children),
        h("section", {}, h("h3", {}, "Raw bytes"), h("p", { class: "note" }, answer.raw.why)),
      ];
    });
  }

  /** Show all facts about a lane, with its ids. `asked` is a promise of the pairs for `facts`. */
  lane(lane, asked) {
    return this._load(`${lane.process} · ${lane.name}`, asked, (pairs) => [facts(pairs)]);
  }

  /** Show a gap of a lane. */
  gap({ gap, start, end }, lane, clock) {
    const words = `${amount(gap)} ${gap.missing === null || gap.missing === 1 ? "is" : "are"} missing`;
    const missing = words[0].toUpperCase() + words.slice(1);
    this._show(gap.count === 1 ? `Gap: ${gap.reason}` : title(gap), [
      h("div", { class: "lossbox" }, h("span", { class: "hatch", "aria-hidden": "true" }), missing),
      facts([
        ["lane", placeOf(lane)],
        ["from", clock.moment(start)],
        ["to", clock.moment(end)],
        ["placed", gap.placed],
        ["numbers", gap.first === null ? null : gap.first === gap.last ? gap.first : `${gap.first} to ${gap.last}`],
        ["of", gap.of],
        ["detail", gap.detail],
      ]),
      gap.count === 1 ? null : h("div", {}, h("button", { type: "button", on: { click: () => this._on.shown(start, end) } }, "Zoom to them")),
    ]);
  }

  /** Show several spans or instants that one mark stands for. */
  several({ name, count: number, about, instant, start, end }, lane, clock) {
    this._show(cut(name, 200), [
      h("p", {}, `${about ? "About " : ""}${count(number)} ${instant ? "instants" : "spans"} lie here, too close together to be drawn one by one. The longest gives the name.`),
      facts([["lane", placeOf(lane)], ["from", clock.moment(start)], ["to", clock.moment(end)]]),
      h("div", {}, h("button", { type: "button", on: { click: () => this._on.shown(start, end) } }, "Zoom to them")),
    ]);
  }

  /** Show figures of a range: the names whose spans took most of it. `links` lead on. */
  async range(from, to, params, links) {
    const length = duration(to - from);
    const asked = get("statistics", { from, to, self: false, limit: MOST_NAMES, ...params });
    await this._load(`${length} selected`, asked, (answer) => [
      facts([["from", moment(from)], ["to", moment(to)], ["length", `${length} (${count(to - from)} ns)`]]),
      h("div", {}, mark(answer.whole)),
      h("div", { class: "row" }, links),
      answer.groups.length ? names(answer) : h("p", { class: "note" }, "No span begins in this range."),
    ]);
  }

  async _load(title, asked, draw) {
    const turn = this._show(title, [h("p", { class: "note" }, "Reading …")]);
    try {
      const answer = await asked;
      if (turn === this._turn) fill(this._body, draw(answer));
    } catch (error) {
      if (turn === this._turn) fill(this._body, problem(error));
    }
  }

  _show(title, parts) {
    this.element.hidden = false;
    this.element.scrollTop = 0;
    this._title.textContent = title;
    fill(this._body, parts);
    this._turn += 1;
    return this._turn;
  }

  _family(title, rows) {
    if (!rows.length) return null;
    return h("section", {}, h("h3", {}, title), h("ul", { class: "family" }, rows.map((row) => h("li", {},
      h("button", { type: "button", disabled: !row.place, on: { click: () => this._on.opened(row.place) } }, row.text)))));
  }
}

/** Return a list of names and values; what has no value is left out. */
function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, known.map(([name, value]) => {
    const text = String(value);
    return [h("dt", {}, name), h("dd", text.length > 200 ? { class: "long mono", tabindex: "0" } : {}, cut(text, 20_000))];
  }));
}

function names({ groups, total }) {
  return h("div", {},
    h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Name"), h("th", { scope: "col", class: "number" }, "Spans"), h("th", { scope: "col", class: "number" }, "Total"))),
      h("tbody", {}, groups.map((each) => h("tr", {},
        h("th", { scope: "row" }, cut(each.group[0] ?? "(no name)", 28)),
        h("td", { class: "number" }, count(each.count)),
        h("td", { class: "number" }, each.unit === "ns" ? duration(each.total) : `${count(each.total)} ticks`))))),
    total > groups.length ? h("p", { class: "note" }, `and ${count(total - groups.length)} more names`) : null);
}
