// Statistics: how many spans there are and how long they took, by what one likes; whose time it is; when they were slow.

import { format } from "../address.js";
import { address, Latest } from "../api.js";
import { Flame } from "../charts/flame.js";
import { Heat } from "../charts/heat.js";
import { choose, fill, h } from "../parts/dom.js";
import { Grid, listed } from "../parts/grid.js";
import { Places, placesOf } from "../parts/places.js";
import { problem } from "../parts/problem.js";
import { rangeLine } from "../parts/range.js";
import { count, cut, figureOf, figureWords, isWide, length, plural } from "../parts/text.js";
import { mark } from "../parts/whole.js";

const LIMIT = 5000;
/** What stands in the column of self times, unless they are read. */
const SELVES = { reading: "reading …", failed: "not read", read: "" };
const BOUNDS = "Spans are missing: ≥ and ≤ are bounds, true whatever the missing spans were. A figure is unknown if they leave no bound.";
const FIGURES = [["count", "Spans"], ["open", "Open"], ["total", "Total"], ["self", "Self"], ["min", "Min"], ["p50", "p50"], ["p90", "p90"], ["p95", "p95"], ["p99", "p99"], ["max", "Max"]];

class Statistics {
  constructor(root, frame, params) {
    this._frame = frame;
    this._params = params;
    this._asks = { table: new Latest(), flame: new Latest(), heat: new Latest() };
    this._groups = [];
    this._flame = new Flame({ picked: (name) => this._pick(name) });
    this._heat = new Heat({ picked: (from, to) => frame.address.go("timeline", { ...this._filters, from, to, q: this._params.name }) });
    this._range = h("div");
    this._places = new Places(frame.store, params, (changes) => frame.address.go("statistics", { ...this._params, ...changes }));
    this._mark = h("span");
    this._csv = h("a", { class: "button", download: "statistics.csv" }, "CSV");
    this._keys = [0, 1].map((index) => this._select(index));
    this._grid = new Grid({
      columns: this._columns(["name"]), label: "Statistics of spans", empty: "No span here.",
      rows: listed(() => this._groups),
      picked: (row) => this._pick(row.name),
      sorted: (order) => this._sort(order),
    });
    this._table = h("div", {}, this._grid.element);
    this._flameBox = h("div", {}, h("p", { class: "body note" }, "Reading …"));
    this._heatBox = h("div", {}, h("p", { class: "body note" }, "Choose a name in the table or the flame graph."));
    this._heatTitle = h("h2", {}, "Durations over time");
    root.append(h("div", { class: "page" },
      h("div", { class: "head" }, h("h1", {}, "Statistics"), this._range, this._places.element),
      h("section", { class: "panel", "aria-label": "By group" },
        h("header", {}, h("h2", {}, "Spans"), h("label", { class: "field" }, "by ", this._keys[0]), h("label", { class: "field" }, "and ", this._keys[1]), this._mark, this._csv),
        this._table),
      h("section", { class: "panel", "aria-label": "Flame graph" }, h("header", {}, h("h2", {}, "Whose time it is"), h("span", { class: "note" }, "callers above, callees below; click to look closer")), this._flameBox),
      h("section", { class: "panel", "aria-label": "Durations" }, h("header", {}, this._heatTitle, h("span", { class: "note" }, "click a column to see it in the timeline")), this._heatBox)));
    this.update(params);
  }

  update(params) {
    this._params = params;
    const filters = this._filters;
    this._places.show(params);
    this._showRange();
    this._by = (params.by ?? "name").split(",").filter(Boolean).slice(0, 2);
    this._keys.forEach((select, index) => choose(select, this._by[index] ?? ""));
    this._csv.href = address("statistics", { ...filters, by: this._by, format: "csv" });
    this._load();
  }

  close() {
    for (const ask of Object.values(this._asks)) ask.cancel();
    this._flame.close();
    this._heat.close();
  }

  _showRange() {
    const { by } = this._params;
    fill(this._range, rangeLine(this._params, this._frame.names, { cleared: () => this._frame.address.go("statistics", { by }), timeline: format("timeline", this._filters) }));
  }

  get _filters() {
    const { from, to, session, source } = this._params;
    return { from, to, session, source, ...placesOf(this._params) };
  }

  /** Load what is quick first. Self times and the flame graph need all spans in order. */
  async _load() {
    const turn = (this._turn = (this._turn ?? 0) + 1);
    this._selves = SELVES.reading;
    for (const step of [this._loadTable, this._loadHeat, this._loadSelves, this._loadFlame]) {
      if (turn !== this._turn) return;
      await step.call(this);
    }
  }

  async _loadTable() {
    const turn = this._turn;
    try {
      const answer = await this._figures(false);
      if (!answer) return;
      await this._frame.names.refresh(answer.version, []);
      if (turn !== this._turn) return;
      this._showRange();
      fill(this._mark, mark(answer.whole));
      fill(this._table, this._grid.element,
        answer.total > answer.groups.length ? h("p", { class: "note grid-note" }, `The ${plural(answer.groups.length, "group")} with the longest totals of ${count(answer.total)}; the CSV file has all.`) : null,
        answer.groups.some((each) => Object.values(each.bounds).some(isWide)) ? h("p", { class: "note grid-note" }, BOUNDS) : null);
      await this._grid.replace(this._columns(answer.by), listed(() => this._groups));
      if (!this._params.name && answer.by.includes("name") && answer.groups.length) this._params = { ...this._params, name: this._groups[0].name };
    } catch (error) {
      fill(this._table, h("div", { class: "body" }, problem(error)));
    }
  }

  /** Add the self times to the table, which stays if they cannot be had. */
  async _loadSelves() {
    if (!this._groups.length) return;
    try {
      await this._figures(true);
    } catch (error) {
      this._selves = SELVES.failed;
      this._table.append(h("div", { class: "body" }, "No self times.", problem(error)));
    }
    await this._grid.refresh();
  }

  /** Ask for the groups, sorted as a person wants them. */
  async _figures(self) {
    const answer = await this._asks.table.ask("statistics", { ...this._filters, by: this._by, limit: LIMIT, self });
    if (!answer) return answer;
    this._groups = answer.groups.map((each) => ({ ...Object.fromEntries(answer.by.map((key, index) => [key, each.group[index]])), ...each }));
    if (this._grid.order) this._sort(this._grid.order);
    if (self) this._selves = SELVES.read;
    return answer;
  }

  async _loadFlame() {
    try {
      const answer = await this._asks.flame.ask("flame", this._filters);
      if (!answer) return;
      const root = flameOf(answer);
      fill(this._flameBox, root.children.length ? this._flame.element : h("p", { class: "body note" }, "No span has ended here."));
      if (root.children.length) this._flame.set(root);
    } catch (error) {
      fill(this._flameBox, h("div", { class: "body" }, problem(error)));
    }
  }

  async _loadHeat() {
    const { name } = this._params;
    if (name === undefined || name === null) return;
    this._heatTitle.textContent = `Durations of ${cut(name, 60)} over time`;
    try {
      const answer = await this._asks.heat.ask("durations", { ...this._filters, name });
      if (!answer) return;
      const any = this._heat.set(answer, name);
      fill(this._heatBox, any ? this._heat.element : h("p", { class: "body note" }, "No span of this name has ended on a clock that is tied to wall time."));
    } catch (error) {
      fill(this._heatBox, h("div", { class: "body" }, problem(error)));
    }
  }

  _pick(name) {
    if (!name) return;
    this._params = { ...this._params, name };
    this._frame.address.note({ name });
    this._loadHeat();
  }

  _columns(by) {
    return [
      ...by.map((key) => ({
        name: key, label: key, sort: true, whole: key === "session",
        text: (value) => (value === null ? "(none)" : key === "session" ? this._frame.names.sessionOf(value) : value),
        title: (row) => (key === "session" ? `session ${row.session}` : row[key] ?? ""),
      })),
      ...FIGURES.map(([name, label]) => ({
        name, label, number: true, sort: true, loss: true,
        lossy: (row) => isWide(row.bounds[name]),
        text: (value, row) => name === "self" && this._selves !== SELVES.read ? this._selves : figureOf(value, row.bounds[name], spelled(name, row)),
        title: (row) => figureWords(row.bounds[name], spelled(name, row)),
      })),
    ];
  }

  _sort({ name, descending }) {
    const way = descending ? -1 : 1;
    const figure = FIGURES.some(([each]) => each === name);
    this._groups.sort((one, other) => {
      const [a, b] = [one[name], other[name]];
      if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
      return way * (figure ? Math.sign(Number(a) - Number(b)) : a < b ? -1 : a > b ? 1 : 0);
    });
  }

  _select(index) {
    const none = index ? [h("option", { value: "" }, "(nothing)")] : [];
    return h("select", { on: { change: () => this._frame.address.go("statistics", { ...this._params, by: this._keys.map((each) => each.value).filter(Boolean).join(",") }) } },
      none, this._frame.store.keys.map((key) => h("option", { value: key }, key)));
  }
}

/** Return a function that writes a figure of a group. */
function spelled(figure, { unit }) {
  return (value) => (figure === "count" || figure === "open" ? count(value) : length(value, unit));
}

/** Return the tree of a flame graph. Its root has the time of all. */
function flameOf({ unit, nodes }) {
  const root = { name: "all", total: 0, self: 0, count: 0, unit, children: [] };
  const made = [];
  for (const node of nodes) {
    const each = { name: node.name ?? "(no name)", total: Number(node.total), self: Number(node.self), count: node.count, unit, children: [] };
    made.push(each);
    if (node.parent === null) {
      root.children.push(each);
      root.total += each.total;
      root.count += each.count;
    } else {
      made[node.parent].children.push(each);
    }
  }
  for (const each of [root, ...made]) each.children.sort((one, other) => other.total - one.total);
  return root;
}

export function open(root, frame, params) {
  return new Statistics(root, frame, params);
}
