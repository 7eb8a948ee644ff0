// SQL: an editor with the views and their columns, answers as a table and as lines.

import { send, sendForText } from "../api.js";
import { Lines } from "../parts/chart.js";
import { fill, h } from "../parts/dom.js";
import { Grid, listed } from "../parts/grid.js";
import { problem } from "../parts/problem.js";
import { bytes, count, plural, visible } from "../parts/text.js";
import { mark } from "../parts/whole.js";
import { Editor } from "./sql/editor.js";

const FIRST = "SELECT name, count(*) AS spans, max(duration) AS longest\nFROM spans\nGROUP BY name\nORDER BY spans DESC\nLIMIT 100";
const NUMBERS = /INT|DOUBLE|FLOAT|DECIMAL|REAL/;
const TIME = /^(TIMESTAMP|DATE)/;
const MOST_LINES = 6;

class Sql {
  constructor(root, frame, params) {
    this._frame = frame;
    const { store } = frame;
    this._editor = new Editor({
      text: params.sql ?? FIRST,
      views: store.views,
      ran: () => this._run(),
      changed: (text) => frame.address.note({ sql: text }),
    });
    this._state = h("p", { class: "note", role: "status" }, `Reads only; at most ${store.sql_seconds} s, ${bytes(store.sql_memory)} of memory, ${plural(store.sql_rows, "row")}.`);
    this._runButton = h("button", { type: "button", class: "primary", title: "Run (Ctrl + Enter)", on: { click: () => this._run() } }, "Run");
    this._csv = h("button", { type: "button", on: { click: () => this._download() } }, "CSV");
    this._answer = h("section", { "aria-label": "Answer", class: "panel", hidden: true });
    root.append(h("div", { class: "page" },
      h("h1", { class: "spoken" }, "SQL"),
      h("div", { class: "split" },
        h("section", { class: "panel" },
          h("header", {}, h("h2", {}, "Statement"), this._csv, this._runButton),
          h("div", { class: "body form" }, this._editor.element, this._state)),
        h("section", { class: "panel", "aria-label": "Views and columns" },
          h("header", {}, h("h2", {}, "Views")),
          h("div", { class: "body views-list", tabindex: "0" }, store.views.map(described)))),
      this._answer));
    if (params.sql) this._run();
  }

  update(params) {
    if (params.sql !== undefined && params.sql !== this._editor.text) {
      this._editor.text = params.sql;
      this._run();
    }
  }

  close() {
    this._plot?.close();
    this._editor.close();
  }

  async _run() {
    const sql = this._editor.text;
    if (!sql.trim()) return;
    this._runButton.disabled = true;
    this._status("Running …");
    this._frame.address.note({ sql });
    try {
      this._show(await send("POST", "sql", { sql }));
    } catch (error) {
      this._plot?.close();
      this._plot = null;
      this._answer.hidden = false;
      fill(this._answer, h("div", { class: "body" }, problem(error)));
      this._status("Refused.");
    } finally {
      this._runButton.disabled = false;
    }
  }

  _show(answer) {
    this._plot?.close();
    this._plot = null;
    const columns = answer.columns.map((each) => ({ name: each.name, number: NUMBERS.test(each.type) }));
    const grid = new Grid({ columns, label: "Rows of the answer", empty: "The answer has no rows.", rows: listed(() => answer.rows) });
    const more = answer.more ? ", and more that are not shown" : "";
    this._answer.hidden = false;
    const plot = plotOf(answer);
    const chart = plot ? h("div", { class: "chart" }) : null;
    fill(this._answer,
      h("header", {}, h("h2", {}, `${plural(answer.rows.length, "row")}${more}`), mark(answer.whole, "Store: "), h("span", { class: "note" }, `${answer.seconds.toFixed(2)} s · version ${answer.version}${answer.cut ? ` · ${plural(answer.cut, "long text")} cut` : ""}`)),
      chart ? h("div", {}, h("p", { class: "note body" }, plot.title), chart) : null,
      grid.element);
    grid.refresh();
    if (chart) {
      this._plot = new Lines(chart, { labels: plot.labels, title: plot.title, seconds: plot.seconds });
      this._plot.set(plot.x, plot.ys);
    }
    this._status(`${plural(answer.rows.length, "row")}.`);
  }

  async _download() {
    try {
      save("answer.csv", "text/csv", await sendForText("sql", { sql: this._editor.text, format: "csv" }));
    } catch (error) {
      this._answer.hidden = false;
      fill(this._answer, h("div", { class: "body" }, problem(error)));
    }
  }

  _status(text) {
    this._state.textContent = text;
  }
}

function described(view) {
  return h("details", {},
    h("summary", {}, view.name),
    h("p", { class: "note" }, visible(view.meaning)),
    h("ul", {}, view.columns.map((column) => h("li", {}, h("code", { title: column.type }, column.name), h("span", {}, visible(column.meaning ?? ""))))));
}

/** Return an answer as lines, if its first column rises and is a number or a time, and numbers follow: `x`, `ys`, their `labels`, whether x is a time in `seconds`, and a title; or null. */
function plotOf({ columns, rows }) {
  const [first, ...others] = columns;
  if (rows.length < 2 || !first || !(NUMBERS.test(first.type) || TIME.test(first.type))) return null;
  const lines = others.map((column, index) => ({ column, index: index + 1 })).filter(({ column }) => NUMBERS.test(column.type)).slice(0, MOST_LINES);
  if (!lines.length) return null;
  const seconds = TIME.test(first.type);
  const x = rows.map((row) => (seconds ? Date.parse(utc(row[0])) / 1000 : Number(row[0])));
  if (x.some((value, index) => !Number.isFinite(value) || (index > 0 && value <= x[index - 1]))) return null;
  return {
    x,
    ys: lines.map(({ index }) => rows.map((row) => (row[index] === null ? null : Number(row[index])))),
    labels: lines.map(({ column }) => column.name),
    seconds,
    title: `${lines.map(({ column }) => column.name).join(", ")} over ${first.name}`,
  };
}

function utc(text) {
  return /[zZ]|[+-]\d\d(:?\d\d)?$/.test(text) ? String(text).replace(" ", "T").replace(/([+-]\d\d)$/, "$1:00") : `${String(text).replace(" ", "T")}Z`;
}

/** Hand a text to the browser as a file. */
function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function open(root, frame, params) {
  return new Sql(root, frame, params);
}
