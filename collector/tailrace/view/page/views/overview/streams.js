// All streams: thousands, sorted and searched by the server.

import { get } from "../../api.js";
import { afterRest, h } from "../../parts/dom.js";
import { Grid } from "../../parts/grid.js";
import { Places, placesOf } from "../../parts/places.js";
import { clock, count, plural, share } from "../../parts/text.js";
import { mark, missingOf } from "../../parts/whole.js";

const PAGE = 200;
const MOST_PAGES = 50;
const COLUMNS = [
  { name: "source", label: "Source", sort: true },
  { name: "session", label: "Session", sort: true, whole: true, text: (_, row) => row.title, title: (row) => `session ${row.session}` },
  { name: "stream", label: "Stream", sort: true, whole: true, text: (_, row) => row.thread, title: (row) => `stream ${row.stream || "unknown"}` },
  { name: "events", label: "Events", sort: true, number: true, text: count },
  { name: "missing", label: "Missing", sort: true, number: true, loss: true, text: (_, row) => missingOf(row), lossy: (row) => row.missing > 0 || row.completeness === null },
  { name: "completeness", label: "Completeness", sort: true, number: true, text: share },
  { name: "open_spans", label: "Open spans", sort: true, number: true, text: count },
  { name: "last_time", label: "Newest event", sort: true, number: true, text: clock },
  { name: "state", label: "State", sort: true },
  { name: "format", label: "Format", sort: true },
];

export class StreamTable {
  constructor(frame, params) {
    this._frame = frame;
    this._pages = new Map();
    this._version = null;
    this._search = h("input", { type: "search", placeholder: "Search process, host, file, thread, id, state", "aria-label": "Search streams", value: params.search ?? "", on: { input: afterRest(200, () => this._searched()) } });
    this._whole = h("span");
    this._filters = placesOf(params);
    this._places = new Places(frame.store, params, (changes) => {
      this._filters = { ...this._filters, ...changes };
      this._note(changes);
    });
    this._grid = new Grid({
      columns: COLUMNS,
      label: "Table of streams",
      empty: "No stream matches.",
      rows: (from, to) => this._rows(from, to),
      sorted: (order) => this._note({ sort: order.name, down: order.descending ? "" : "no" }),
      picked: (row) => frame.address.go("timeline", { session: row.session, source: row.source }),
    });
    this._grid.order = order(params);
    this.element = h("section", { class: "panel", "aria-label": "Streams" },
      h("header", {}, h("h2", {}, "Streams"), this._whole, this._places.element, this._search),
      this._grid.element);
  }

  begin() {
    this._grid.refresh();
  }

  close() {}

  update(params) {
    this._search.value = params.search ?? "";
    this._filters = placesOf(params);
    this._places.show(params);
    this._grid.order = order(params);
    this._forget();
  }

  /** Show the streams of another version of the table. */
  async refresh(version) {
    if (version !== this._version) await this._forget();
  }

  _searched() {
    this._note({ search: this._search.value });
  }

  _note(changes) {
    this._frame.address.note(changes);
    this._forget();
  }

  async _forget() {
    this._pages = new Map();
    await this._grid.refresh();
  }

  /** Return the rows of some places, from pages of which each is asked for once. Ask again if the question became another
   * meanwhile: its answer is awaited by the same table. */
  async _rows(from, to) {
    const first = Math.floor(from / PAGE);
    const last = Math.max(first, Math.floor((to - 1) / PAGE));
    const known = this._pages;
    const pages = [];
    for (let page = first; page <= last; page += 1) pages.push(await this._page(known, page));
    if (known !== this._pages) return this._rows(from, to);
    const { total } = pages.at(-1);
    const rows = pages.flatMap((page) => page.streams).slice(from - first * PAGE, to - first * PAGE);
    return { total, rows };
  }

  async _page(known, page) {
    if (known.has(page)) return known.get(page);
    const { name, descending } = this._grid.order;
    const answer = await get("streams", { ...this._filters, search: this._search.value, sort: name, descending, offset: page * PAGE, limit: PAGE });
    if (known === this._pages) {
      this._version = answer.version;
      this._whole.replaceChildren(mark(answer.whole, `${plural(answer.total, "stream")} · `));
    }
    if (known.size >= MOST_PAGES) known.clear();
    known.set(page, answer);
    return answer;
  }
}

function order(params) {
  return { name: COLUMNS.some((each) => each.name === params.sort) ? params.sort : "missing", descending: params.down !== "no" };
}
