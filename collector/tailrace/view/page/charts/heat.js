// A heat map: how long spans took (up, by powers of two) over when they began (to the right).

import { colours, font } from "../parts/theme.js";
import { count, duration } from "../parts/text.js";
import { Surface } from "./surface.js";

const LEFT = 64;
const BOTTOM = 20;
const HEIGHT = 210;

export class Heat {
  /** A click on a column of time calls `picked(from, to)`. */
  constructor({ picked }) {
    this._data = null;
    this.surface = new Surface({
      label: "Durations over time",
      height: () => HEIGHT,
      paint: (pen, width, height) => this._draw(pen, width, height),
      tip: (x, y) => this._describe(x, y),
      picked: (x, y) => {
        const cell = this._cell(x, y);
        if (cell) picked(this._time(cell.column), this._time(cell.column + 1));
      },
    });
    this.element = this.surface.element;
  }

  /**
   * Show counts: `counts[row][column]`, rows from short to long. `edges` has durations, one more than rows; `from` and `to`
   * are BigInt; `when(time)` writes a time.
   */
  set(data) {
    this._data = data;
    this._most = Math.max(1, ...data.counts.flat());
    this.surface.label = `Durations of ${data.name} over time, ${count(data.counts.flat().reduce((sum, each) => sum + each, 0))} spans`;
    this.surface.draw();
  }

  close() {
    this.surface.close();
  }

  _sizes(width) {
    const { counts } = this._data;
    return { wide: (width - LEFT) / counts[0].length, tall: (HEIGHT - BOTTOM) / counts.length };
  }

  _draw(pen, width, height) {
    const palette = colours();
    pen.fillStyle = palette.surface;
    pen.fillRect(0, 0, width, height);
    if (!this._data?.counts.length) return;
    this._width = width;
    const { counts, edges, from, to, when } = this._data;
    const { wide, tall } = this._sizes(width);
    for (const [row, line] of counts.entries()) {
      const y = HEIGHT - BOTTOM - (row + 1) * tall;
      for (const [column, number] of line.entries()) {
        if (!number) continue;
        pen.globalAlpha = 0.18 + 0.82 * (Math.log1p(number) / Math.log1p(this._most));
        pen.fillStyle = palette.accent;
        pen.fillRect(LEFT + column * wide, y, Math.max(wide - 0.5, 1), tall - 0.5);
      }
    }
    pen.globalAlpha = 1;
    pen.fillStyle = palette.soft;
    pen.font = font(11);
    pen.textAlign = "right";
    const skip = Math.ceil(16 / tall);
    for (let row = 0; row < edges.length; row += skip) pen.fillText(duration(Math.round(edges[row])), LEFT - 8, Math.max(7, HEIGHT - BOTTOM - row * tall));
    if (width > 520) pen.fillText(when(to), width, HEIGHT - 8);
    pen.textAlign = "left";
    pen.fillText(when(from), LEFT, HEIGHT - 8);
  }

  _cell(x, y) {
    if (!this._data?.counts.length || x < LEFT) return null;
    const { wide, tall } = this._sizes(this._width);
    const column = Math.floor((x - LEFT) / wide);
    const row = Math.floor((HEIGHT - BOTTOM - y) / tall);
    return this._data.counts[row]?.[column] === undefined ? null : { row, column };
  }

  _describe(x, y) {
    const cell = this._cell(x, y);
    if (!cell) return null;
    const { counts, edges, when } = this._data;
    return `${count(counts[cell.row][cell.column])} spans took ${duration(Math.round(edges[cell.row]))} to ${duration(Math.round(edges[cell.row + 1]))}, from ${when(this._time(cell.column))} on`;
  }

  _time(column) {
    const { from, to, counts } = this._data;
    return from + ((to - from) * BigInt(column)) / BigInt(counts[0].length);
  }
}
