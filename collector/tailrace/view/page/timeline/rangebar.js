// All of time as a bar: how much happens when, where events are missing, and which part is in sight.

import { get } from "../api.js";
import { h, scale } from "../parts/dom.js";
import { colours, font, onChange } from "../parts/theme.js";
import { decodeFrame, eachEvent } from "./decode.js";
import { columnWidth, drawShares } from "./gaps.js";

/** How many lanes one question names: its address stays shorter than the server allows. */
const LANES_ASKED = 400;
const EDGE = 7;
const FRAME = 3;
const LOWEST = 6;
const INSET = 4;
const LABEL = "The whole range, and the part in sight";
const WORDS = { reading: "Reading …", read: "", failed: "Not read: " };

export class RangeBar {
  /** `moved()` is called after the bar has changed the viewport. */
  constructor(view, moved) {
    this._view = view;
    this._moved = moved;
    this._turn = 0;
    this.element = h("canvas", { class: "rangebar", role: "img" });
    this._pen = this.element.getContext("2d", { alpha: false });
    this._become("reading", null);
    this._size = new ResizeObserver(() => this.draw());
    this._size.observe(this.element);
    this._stop = onChange(() => this.draw());
    this.element.addEventListener("pointerdown", (event) => this._down(event));
    this.element.addEventListener("pointermove", (event) => this._move(event));
    this.element.addEventListener("pointerup", () => (this._held = null));
    this.element.addEventListener("pointercancel", () => (this._held = null));
  }

  close() {
    this._turn += 1;
    this._stop();
    this._size.disconnect();
  }

  /** Forget what was read: other lanes are to come. */
  clear() {
    this._turn += 1;
    this._become("reading", null);
  }

  /** Return one in how many events the bar was computed from. */
  get oneIn() {
    return this._frame?.oneIn ?? 1;
  }

  /** Read the whole range of lanes, and show it. A later call supersedes this one. */
  async load(lanes) {
    const turn = (this._turn += 1);
    const { from, to } = this._view.bounds;
    const pixels = Math.max(50, Math.ceil(this.element.clientWidth / 2));
    const parts = [];
    try {
      for (let first = 0; first < lanes.length; first += LANES_ASKED) {
        const asked = lanes.slice(first, first + LANES_ASKED).map((each) => each.id);
        const answer = await get("frame", { from, to: to + 1n, pixels, lanes: asked });
        if (turn !== this._turn) return;
        parts.push(decodeFrame(answer));
      }
      this._become("read", parts.length ? joined(parts) : null);
    } catch (error) {
      if (turn === this._turn) this.failed(error);
    }
  }

  /** Show that the range could not be read. */
  failed(error) {
    this._become("failed", null, error.message);
  }

  /** Take over a state of `reading`, `read` or `failed`, and the frame to show, if any. */
  _become(state, frame, reason = "") {
    this._frame = frame;
    this._words = WORDS[state] + reason;
    this.element.dataset.state = state;
    this.element.setAttribute("aria-label", [LABEL, this._words].filter(Boolean).join(". "));
    this.draw();
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width) return;
    const pen = this._pen;
    scale(this.element, pen);
    const palette = colours();
    pen.fillStyle = palette.sunken;
    pen.fillRect(0, 0, width, height);
    if (this._frame) this._density(pen, width, height, palette);
    else this._say(pen, height, palette);
    this._dim(pen, width, height, palette);
    if (this._frame) this._gaps(pen, width, height);
    this._window(pen, width, height, palette);
  }

  _say(pen, height, { soft }) {
    pen.font = font(12);
    pen.fillStyle = soft;
    pen.fillText(this._words, 2 * INSET, height / 2);
  }

  _density(pen, width, height, palette) {
    const step = this._step(width);
    const heights = this._heights(width);
    const most = Math.max(...heights, 1);
    pen.fillStyle = palette["line-strong"];
    pen.globalAlpha = 0.7;
    for (const [index, value] of heights.entries()) {
      if (value > 0) {
        const tall = Math.max(LOWEST, (value / most) * (height - 8));
        pen.fillRect(INSET + index * step, height - tall, step - 0.5, tall);
      }
    }
    pen.globalAlpha = 1;
  }

  /** Draw which share of events is missing when, also out of sight. */
  _gaps(pen, width, height) {
    const step = this._step(width);
    const here = this._heights(width);
    const column = columns(this._frame, this._view.bounds, here.length);
    const all = [...this._frame.losses.values()].flatMap((loss) => loss.gaps);
    drawShares(pen, all, { here, column, x: INSET, step, y: FRAME, height: height - 2 * FRAME, hanging: true });
  }

  _step(width) {
    const { from, to } = this._view.bounds;
    return columnWidth(this._frame, (width - 2 * INSET) / Math.max(1, Number(to - from)));
  }

  /** Return how many events begin in each of the columns of the bar. They are counted once for a frame, range and width. */
  _heights(width) {
    const { bounds } = this._view;
    const key = [this._frame, bounds.from, bounds.to, width];
    if (!key.every((each, index) => each === this._counted?.key[index])) this._counted = { key, heights: this._count(width) };
    return this._counted.heights;
  }

  _count(width) {
    const heights = new Float64Array(Math.ceil((width - 2 * INSET) / this._step(width)));
    const column = columns(this._frame, this._view.bounds, heights.length);
    for (const content of this._frame.lanes.values()) eachEvent(content, (time, number) => (heights[column(time)] += number));
    return heights;
  }

  /** Let what is out of sight step back. */
  _dim(pen, width, height, { paper }) {
    const [from, to] = [this._x(this._view.from, width), this._x(this._view.to, width)];
    pen.globalAlpha = 0.6;
    pen.fillStyle = paper;
    pen.fillRect(0, 0, Math.max(0, from), height);
    pen.fillRect(to, 0, Math.max(0, width - to), height);
    pen.globalAlpha = 1;
  }

  _window(pen, width, height, { accent }) {
    const [from, to] = [this._x(this._view.from, width), this._x(this._view.to, width)];
    const length = Math.max(6, to - from);
    pen.strokeStyle = accent;
    pen.lineWidth = 2;
    pen.strokeRect(Math.max(1, from), 1, Math.min(length, width - 2 - Math.max(0, from)), height - 2);
  }

  _x(time, width) {
    const { from, to } = this._view.bounds;
    return INSET + (Number(time - from) / Math.max(1, Number(to - from))) * (width - 2 * INSET);
  }

  _time(x) {
    const { from, to } = this._view.bounds;
    return from + BigInt(Math.round(((x - INSET) / (this.element.clientWidth - 2 * INSET)) * Number(to - from)));
  }

  _down(event) {
    this.element.setPointerCapture(event.pointerId);
    const width = this.element.clientWidth;
    const [from, to] = [this._x(this._view.from, width), this._x(this._view.to, width)];
    const x = event.offsetX;
    if (Math.abs(x - from) < EDGE && to - from > 3 * EDGE) this._held = "from";
    else if (Math.abs(x - to) < EDGE && to - from > 3 * EDGE) this._held = "to";
    else this._held = "all";
    this._move(event);
  }

  _move(event) {
    if (!this._held) return;
    const time = this._time(event.offsetX);
    const { from, to } = this._view;
    if (this._held === "from" && time < to) this._view.show(time, to);
    else if (this._held === "to" && time > from) this._view.show(from, time);
    else if (this._held === "all") this._view.centre(time);
    this._moved();
  }
}

/** Return frames of one range as one frame, with the lanes of all. A stream with lanes in several has its gaps in each. */
function joined(parts) {
  return {
    from: parts[0].from,
    bucket: Math.max(...parts.map((part) => part.bucket)),
    oneIn: Math.max(...parts.map((part) => part.oneIn)),
    lanes: new Map(parts.flatMap((part) => [...part.lanes])),
    losses: new Map(parts.flatMap((part) => [...part.losses])),
  };
}

/** Return a function that gives the column of a frame's time, of as many equal columns as a range has. */
function columns(frame, { from, to }, count) {
  const shift = Number(frame.from - from);
  const scale = count / Math.max(1, Number(to - from));
  return (time) => Math.min(Math.floor((time + shift) * scale), count - 1);
}
