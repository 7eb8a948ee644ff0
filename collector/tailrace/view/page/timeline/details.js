// The panel beside the timeline: every column of a row, its bytes, its parent and children; a gap; a selected range.

import { get } from "../api.js";
import { fill, h } from "../parts/dom.js";
import { problem } from "../parts/problem.js";
import { count, cut, duration, moment, visible } from "../parts/text.js";
import { mark } from "../parts/whole.js";
import { hexLines, rowFacts } from "./row.js";

const MOST_CHILDREN = 200;
const MOST_NAMES = 8;

export class Details {
  /** `on` has `closed()`, `opened(place)` and `shown(time, end)`. */
  constructor(on) {
    this._on = on;
    this._turn = 0;
    this.element = h("aside", { class: "details", hidden: true, tabindex: "0", "aria-label": "Details" });
  }

  hide() {
    this._turn += 1;
    this.element.hidden = true;
  }

  /** Show a row by its place in the table. */
  async row(place) {
    await this._load("Row", "row", { place }, (answer) => this._row(answer));
  }

  gap(item, lane, logical) {
    const { gap } = item;
    this._show(`Gap: ${visible(gap.reason)}`, [
      h("div", { class: "lossbox" }, h("span", { class: "hatch", "aria-hidden": "true" }), gap.missing === null ? "An unknown number of events is missing" : `${count(gap.missing)} events are missing`),
      facts([
        ["lane", `${lane.source} · ${lane.title} · ${lane.name}`],
        ["between", logical ? `${count(item.start)} and ${count(item.end)} ticks` : `${moment(item.start)}\n${moment(item.end)}`],
        ["placed", gap.placed],
        ["numbers", gap.first === null || gap.first === undefined ? null : `${gap.first} to ${gap.last}`],
        ["detail", gap.detail],
      ]),
    ]);
  }

  /** Show several spans that one mark stands for. */
  several(item, lane, logical) {
    this._show(visible(item.name), [
      h("p", {}, `${count(item.count)} ${item.instant ? "instants" : "spans"} are too close together to be drawn one by one; most are, or the longest is, “${visible(item.name)}”.`),
      facts([["lane", `${lane.source} · ${lane.title} · ${lane.name}`], ["from", logical ? count(item.start) : moment(item.start)], ["to", logical ? count(item.end) : moment(item.end)]]),
      h("div", {}, h("button", { type: "button", on: { click: () => this._on.shown(item.start, item.end) } }, "Zoom to them")),
    ]);
  }

  /** Show figures of a range: the names whose spans took most of it. `links` are buttons that lead on. */
  async range(from, to, params, links) {
    const lengthText = duration(to - from);
    await this._load(`${lengthText} selected`, "statistics", { from, to, self: false, limit: MOST_NAMES, ...params }, (answer) => [
      facts([["from", moment(from)], ["to", moment(to)], ["length", `${lengthText} (${count(to - from)} ns)`]]),
      h("div", {}, mark(answer.whole)),
      h("div", { class: "row" }, links),
      answer.groups.length ? names(answer) : h("p", { class: "note" }, "No span begins in this range."),
    ]);
  }

  async _load(title, path, params, draw) {
    this._turn += 1;
    const turn = this._turn;
    if (this.element.hidden) this._show(title, [h("p", { class: "note" }, "Reading …")]);
    try {
      const answer = await get(path, params);
      if (turn === this._turn) this._show(title, draw(answer), false);
    } catch (error) {
      if (turn === this._turn) this._show(title, [problem(error)], false);
    }
  }

  _show(title, parts, turns = true) {
    if (turns) this._turn += 1;
    const turn = this._turn;
    this.element.hidden = false;
    this.element.scrollTop = 0;
    fill(this.element,
      this._head = h("header", {}, h("h2", {}, cut(title, 200)), h("button", { type: "button", class: "quiet icon", "aria-label": "Close details", title: "Close (Esc)", on: { click: () => this._on.closed() } }, "✕")),
      h("div", { class: "body" }, parts));
    this._turn = turn;
  }

  _row(answer) {
    const { title, columns, raw, parent, children, where } = rowFacts(answer);
    fill(this._head.firstChild, cut(title, 200));
    queueMicrotask(() => fill(this._head.firstChild, cut(title, 200)));
    return [
      where ? h("div", {}, h("button", { type: "button", on: { click: () => this._on.shown(where.from, where.to) } }, "Zoom to it")) : null,
      facts(columns),
      this._family("Parent", parent ? [parent] : []),
      this._family(children.length > MOST_CHILDREN ? `Children (the first ${MOST_CHILDREN} of ${count(children.length)})` : "Children", children.slice(0, MOST_CHILDREN)),
      h("section", {}, h("h3", {}, "Raw bytes"), raw.bytes ? h("pre", { class: "raw", tabindex: "0" }, hexLines(raw.bytes)) : h("p", { class: "note" }, raw.why)),
    ];
  }

  _family(title, rows) {
    if (!rows.length) return null;
    return h("section", {}, h("h3", {}, title), h("ul", { class: "family" }, rows.map((row) => h("li", {},
      h("button", { type: "button", on: { click: () => this._on.opened(row.place) } }, `${cut(row.name ?? row.kind, 40)}${row.duration ? ` · ${row.duration}` : ""}`)))));
  }
}

/** Return a list of names and values; what has no value is left out. */
function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [
    h("dt", {}, name),
    h("dd", String(value).length > 200 ? { class: "long mono", tabindex: "0" } : {}, cut(String(value), 20_000)),
  ]));
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
