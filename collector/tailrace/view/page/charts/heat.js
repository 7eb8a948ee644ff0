// A heat map: how long spans took (up, on a logarithmic scale) over when they began (to the right). A strip at the foot is
// hatched where events are missing.

import { fill, h } from "../parts/dom.js";
import { colours, font } from "../parts/theme.js";
import { count, cut, duration, moment, plural, short } from "../parts/text.js";
import { roundStep, ticks } from "../timeline/axis.js";
import { WALL_CLOCK } from "../timeline/clock.js";
import { pattern } from "../timeline/gaps.js";
import { Surface } from "./surface.js";

const LEFT = 72;
const TOP = 8;
const PLOT = 232;
const STRIP = 8;
const FOOT = TOP + PLOT + STRIP + 4;
const HEIGHT = FOOT + 34;
/** Height of the row of spans without a duration, which has no place on a logarithmic scale. */
const ZERO = 12;
const LABEL = 18;
const FAINTEST = 0.16;
const SHADES = 5;
/** Up to this ratio of the longest to the shortest duration, labels have equal steps. */
const LINEAR = 4;
const MINUTE = 60e9;
const LONG = [1, 2, 5, 10, 30, 60, 120, 300, 720, 1440, 2880, 7200, 14_400].map((minutes) => minutes * MINUTE);

export class Heat {
  /** A click on a column of time calls `picked(from, to)`. */
  constructor({ picked }) {
    this._map = null;
    this.surface = new Surface({
      label: "Durations over time",
      height: () => HEIGHT,
      paint: (pen, width, height) => this._draw(pen, width, height),
      tip: (x, y) => this._describe(x, y),
      picked: (x) => {
        const column = this._columnAt(x);
        if (column !== null) picked(this._map.time(column), this._map.time(column + 1));
      },
    });
    this._legend = h("ul", { class: "legend", "aria-label": "Colours of the heat map" });
    this.element = h("div", {}, this.surface.element, this._legend);
  }

  /** Show an answer about the spans with a name. Return whether it has any span. */
  set(answer, name) {
    if (!answer.counts.length) return false;
    const map = (this._map = new Cells(answer));
    const isUsed = (row) => row.size > 0;
    const lost = map.lossy.size ? `; events are missing in ${count(map.lossy.size)} of ${count(map.columns)} columns` : "";
    this.surface.label = `Durations of ${cut(name, 60)} over time, ${plural(map.total, "span")} of ${map.lengths(map.rows.findIndex(isUsed), map.rows.findLastIndex(isUsed))}${lost}`;
    this._explain(map);
    this.surface.draw();
    return true;
  }

  close() {
    this.surface.close();
  }

  _explain({ most, lossy, elsewhere, open }) {
    const shades = [...new Set(Array.from({ length: SHADES }, (_, index) => Math.round(most ** (index / (SHADES - 1)))))];
    fill(this._legend,
      h("li", { class: "note" }, "Spans in a cell:"),
      shades.map((number) => h("li", {}, swatch(shade(number, most)), short(number))),
      h("li", {}, swatch(0), "none"),
      lossy.size ? h("li", {}, h("span", { class: "hatch", "aria-hidden": "true" }), "events are missing") : null,
      elsewhere ? h("li", { class: "note" }, `${plural(elsewhere, "gap")} at other or unknown times`) : null,
      open ? h("li", { class: "note" }, `${count(open)} without an end, in no cell`) : null);
  }

  _draw(pen, width, height) {
    const palette = colours();
    pen.fillStyle = palette.surface;
    pen.fillRect(0, 0, width, height);
    if (!this._map) return;
    this._width = width;
    this._drawDurations(pen, palette);
    this._drawCells(pen, palette);
    this._drawTimes(pen, palette);
  }

  /** Draw labels of durations, with a line from each across the map. */
  _drawDurations(pen, palette) {
    pen.font = font(11);
    pen.textAlign = "right";
    for (const mark of this._map.marks()) {
      const y = mark ? Math.round(this._map.y(mark)) : TOP + PLOT - ZERO / 2;
      pen.fillStyle = palette.line;
      if (mark) pen.fillRect(LEFT - 4, y, this._width - LEFT + 4, 1);
      pen.fillStyle = palette.soft;
      pen.fillText(duration(mark), LEFT - 8, Math.max(y, 7));
    }
    pen.textAlign = "left";
  }

  _drawCells(pen, palette) {
    const { rows, edges, most, columns, lossy } = this._map;
    const x = Array.from({ length: columns + 1 }, (_, column) => Math.round(LEFT + ((this._width - LEFT) * column) / columns));
    const y = edges.map((edge) => Math.round(this._map.y(edge)));
    pen.fillStyle = palette.accent;
    for (const [row, line] of rows.entries()) {
      for (const [column, number] of line) {
        pen.globalAlpha = shade(number, most);
        pen.fillRect(x[column], y[row + 1], Math.max(x[column + 1] - x[column], 1), Math.max(y[row] - y[row + 1], 1));
      }
    }
    pen.globalAlpha = 1;
    pen.fillStyle = pattern(pen);
    for (const column of lossy) pen.fillRect(x[column], TOP + PLOT + 2, Math.max(x[column + 1] - x[column], 1), STRIP);
    pen.fillStyle = palette["line-strong"];
    pen.fillRect(LEFT, TOP + PLOT, this._width - LEFT, 1);
  }

  _drawTimes(pen, palette) {
    const { from, to } = this._map;
    const piece = { from, to, scale: (this._width - LEFT) / Number(to - from) };
    const { ticks: all, base } = ticks(piece, WALL_CLOCK);
    for (const { time, label } of all) {
      const x = LEFT + Number(time - from) * piece.scale;
      pen.fillStyle = palette["line-strong"];
      pen.fillRect(Math.round(x), FOOT - 2, 1, 5);
      pen.fillStyle = palette.soft;
      const room = pen.measureText(label).width;
      pen.fillText(label, Math.min(Math.max(x - room / 2, LEFT), this._width - room), FOOT + 11);
    }
    pen.fillText(base, LEFT, FOOT + 27);
  }

  _columnAt(x) {
    if (!this._map || x < LEFT || x >= this._width) return null;
    return Math.floor(((x - LEFT) / (this._width - LEFT)) * this._map.columns);
  }

  _describe(x, y) {
    const column = this._columnAt(x);
    if (column === null || y < TOP || y > FOOT) return null;
    const { rows, edges, lossy } = this._map;
    const lost = lossy.has(column) ? "; events are missing here" : "";
    const when = `from ${moment(this._map.time(column))} on${lost}`;
    const row = rows.findIndex((_, index) => y >= this._map.y(edges[index + 1]));
    if (y >= TOP + PLOT || row < 0) return `Spans that began ${when}`;
    const number = rows[row].get(column) ?? 0;
    return `${plural(number, "span")} of ${this._map.lengths(row)}, ${when}`;
  }
}

/** The cells of an answer, and where durations (ns) are drawn. */
class Cells {
  constructor(answer) {
    const { width, edges, columns, rows, counts, lossy, elsewhere, open } = answer;
    this.from = BigInt(answer.from);
    this.to = BigInt(answer.to);
    this.width = BigInt(width);
    this.columns = Number((this.to - this.from) / this.width);
    this.edges = edges.map(Number);
    this.rows = this.edges.slice(1).map(() => new Map());
    counts.forEach((number, index) => this.rows[rows[index]].set(columns[index], number));
    this.most = counts.reduce((most, number) => Math.max(most, number), 1);
    this.total = counts.reduce((sum, number) => sum + number, 0);
    this.lossy = new Set(lossy);
    this.elsewhere = elsewhere;
    this.open = open;
    this.zero = this.edges[0] === 0;
    this.low = this.edges[this.zero ? 1 : 0];
    this.high = this.edges.at(-1);
  }

  time(column) {
    return this.from + this.width * BigInt(column);
  }

  /** Return which durations the rows from `first` to `last` have, as text. */
  lengths(first, last = first) {
    const [low, high] = [this.edges[first], this.edges[last + 1] - 1];
    return low === high ? duration(low) : `${duration(low)} to ${duration(high)}`;
  }

  /** Return the y of a duration. */
  y(nanoseconds) {
    if (nanoseconds <= 0) return TOP + PLOT;
    const tall = PLOT - (this.zero ? ZERO : 0);
    return TOP + tall * (1 - Math.log(nanoseconds / this.low) / Math.log(this.high / this.low));
  }

  /** Return round durations that are far enough from one another to be labelled. */
  marks() {
    const found = this.zero ? [0] : [];
    for (const each of this._round()) {
      if (each < this.low || each > this.high) continue;
      if (found.every((other) => Math.abs(this.y(each) - this.y(other)) >= LABEL)) found.push(each);
    }
    return found;
  }

  /** Yield round durations in sight, the roundest first. */
  *_round() {
    if (this.high <= LINEAR * this.low) {
      const step = Number(roundStep(((this.high - this.low) * LABEL * 1.5) / PLOT, WALL_CLOCK));
      for (let each = Math.ceil(this.low / step) * step; each <= this.high; each += step) yield each;
      return;
    }
    for (const factor of [1, 2, 5, 3, 7, 1.5]) for (let power = 1; power < MINUTE; power *= 10) if (factor * power < MINUTE) yield factor * power;
    yield* LONG;
  }
}

/** Return the opacity of a cell with a number of spans. */
function shade(number, most) {
  return FAINTEST + (1 - FAINTEST) * (most > 1 ? Math.log(number) / Math.log(most) : 1);
}

function swatch(opacity) {
  const found = h("span", { class: "swatch", "aria-hidden": "true" });
  found.style.background = `color-mix(in srgb, var(--accent) ${Math.round(opacity * 100)}%, var(--surface))`;
  if (!opacity) found.style.outline = "1px solid var(--line-strong)";
  return found;
}
