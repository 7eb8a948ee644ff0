// Tables of any length: regular-table asks for the rows that are seen.

import "./trusted.js";
import "../vendor/regular-table.js";
import { fill, h } from "./dom.js";
import { problem } from "./problem.js";
import { cut } from "./text.js";

const CHARACTERS = 200;
const ROW = 31;
const MOST_HEIGHT = 380;
const NOTHING = { num_rows: 0, num_columns: 0, column_headers: [], data: [] };

/**
 * A table. Each of `columns` has `name` and may have `label`, `number` (right-aligned), `sort` (may be sorted),
 * `loss` (draw what is not zero as a loss), `whole` (show it whole, however long), `text(value, row)` and `title(row)` (shown at
 * the pointer). `rows(from, to)` returns `{ total, rows }` or a promise of these;
 * a row is an object by the columns' names, or an array in their order. An error of `rows` is shown above the table.
 */
export class Grid {
  constructor({ columns, rows, label, empty = "nothing here", picked = null, sorted = null }) {
    this.columns = columns;
    this._rows = rows;
    this._picked = picked;
    this._sorted = sorted;
    this.order = null;
    this._shown = new Map();
    this._table = h("regular-table", { tabindex: "0", role: "region", "aria-label": label });
    this._problem = h("div");
    this.element = h("div", {}, this._problem, this._frame = h("div", { class: "grid", data: { empty } }, this._table));
    this._table.addStyleListener(() => this._style());
    this._table.addEventListener("scroll", () => this._edge());
    new ResizeObserver(() => this._resized()).observe(this._table);
    this._table.addEventListener("click", (event) => this._click(event));
    this._table.addEventListener("keydown", (event) => this._key(event));
    this._listen();
  }

  /** Ask for the rows anew. */
  async refresh() {
    if (!this.element.isConnected) return;
    await this._table.draw();
  }

  /** Draw anew at another width, or columns behind the new right edge could not be scrolled to. */
  _resized() {
    const { clientWidth: width } = this._table;
    if (this._width && width !== this._width) this.refresh();
    this._width = width;
  }

  /** Show other columns and rows, from the first row on. */
  async replace(columns, rows) {
    this.columns = columns;
    this._rows = rows;
    this._table.scrollTop = 0;
    this._table.scrollLeft = 0;
    this._listen();
    await this.refresh();
  }

  _listen() {
    this._table.setDataListener((x0, y0, x1, y1) => this._slice(x0, y0, x1, y1));
  }

  /** Return what is seen. A table whose view was left meanwhile has no height, so no row's number can be told. */
  async _slice(x0, y0, x1, y1) {
    if (!this.element.isConnected) return NOTHING;
    try {
      const answer = await this._rows(y0, Math.max(y1, y0 + 1));
      fill(this._problem);
      return this._seen(answer, x0, y0, x1, y1);
    } catch (error) {
      fill(this._problem, h("div", { class: "body" }, problem(error)));
      this._frame.classList.remove("empty");
      return NOTHING;
    }
  }

  _seen({ total, rows }, x0, y0, x1, y1) {
    this._frame.classList.toggle("empty", total === 0);
    this._fit(total);
    rows.forEach((row, index) => this._shown.set(y0 + index, row));
    const shown = this.columns.slice(x0, x1);
    const seen = rows.slice(0, Math.max(0, y1 - y0));
    return {
      num_rows: total,
      num_columns: this.columns.length,
      column_headers: shown.map((column) => [this._heading(column)]),
      data: shown.map((column, index) => seen.map((row) => this._text(column, row, x0 + index))),
    };
  }

  /** Be as high as the rows, up to a height from which on they scroll. */
  _fit(total) {
    const height = `${Math.min(MOST_HEIGHT, Math.max(4, total + 1) * ROW + 18)}px`;
    if (this._frame.style.height === height) return;
    this._frame.style.height = height;
    requestAnimationFrame(() => this.refresh());
  }

  _heading(column) {
    const name = cut(column.label ?? column.name, CHARACTERS);
    if (this.order?.name !== column.name) return name;
    return `${name} ${this.order.descending ? "↓" : "↑"}`;
  }

  _text(column, row, index) {
    const value = cellValue(row, column, index);
    const text = column.text ? column.text(value, row) : value === null ? "null" : String(value);
    return cut(text, CHARACTERS) || " ";
  }

  _style() {
    this._edge();
    for (const cell of this._table.querySelectorAll("th, td")) {
      const meta = this._table.getMeta(cell);
      const column = meta?.x === undefined ? undefined : this.columns[meta.x];
      if (!column) continue;
      toggle(cell, "number", column.number);
      if (cell.tagName === "TH") {
        toggle(cell, "sortable", column.sort);
        toggle(cell, "sorted", this.order?.name === column.name);
        cell.setAttribute("aria-sort", this.order?.name !== column.name ? "none" : this.order.descending ? "descending" : "ascending");
        continue;
      }
      const row = this._shown.get(meta.y);
      const value = row === undefined ? undefined : cellValue(row, column, meta.x);
      toggle(cell, "null", value === null);
      toggle(cell, "loss", column.loss && (column.lossy ? column.lossy(row) : value !== 0 && value !== null));
      toggle(cell, "whole", column.whole);
      const text = cell.textContent.length > 30 ? cell.textContent : "";
      cell.title = row !== undefined && column.title ? column.title(row) : text;
    }
  }

  /** Mark whether columns lie behind the right edge: the scroll bars of many systems are drawn only while one scrolls. */
  _edge() {
    const { scrollLeft, clientWidth, scrollWidth } = this._table;
    toggle(this._frame, "more", scrollLeft + clientWidth < scrollWidth - 1);
  }

  _click(event) {
    const cell = event.target.closest("th, td");
    const meta = cell && this._table.getMeta(cell);
    if (!meta || meta.x === undefined) return;
    const column = this.columns[meta.x];
    if (cell.tagName === "TH") {
      if (column.sort) this.sort(column.name);
    } else {
      const row = this._shown.get(meta.y);
      if (row !== undefined) this._picked?.(row, column);
    }
  }

  /** Sort by a column; a second time, the other way around. */
  sort(name) {
    const column = this.columns.find((each) => each.name === name);
    const again = this.order?.name === name;
    this.order = { name, descending: again ? !this.order.descending : Boolean(column?.number) };
    this._sorted?.(this.order);
    this.refresh();
  }

  _key(event) {
    const step = { ArrowDown: 30, ArrowUp: -30, PageDown: 300, PageUp: -300 }[event.key];
    if (step === undefined) return;
    this._table.scrollTop += step;
    event.preventDefault();
  }
}

/** Return the `rows` of a table that shows the list which a function returns. */
export const listed = (list) => async (from, to) => ({ total: list().length, rows: list().slice(from, to) });

function cellValue(row, column, index) {
  const value = Array.isArray(row) ? row[index] : row[column.name];
  return value === undefined ? null : value;
}

function toggle(cell, name, on) {
  if (on) cell.dataset[name] = "";
  else delete cell.dataset[name];
}
