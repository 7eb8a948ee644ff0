// All of time as a bar: how much happens when, where events are missing, and which part is in sight.

import { get } from "../api.js";
import { h, scale } from "../parts/dom.js";
import { colours, onChange } from "../parts/theme.js";
import { decodeFrame } from "./decode.js";
import { drawGap } from "./gaps.js";

const MOST_LANES = 400;
const EDGE = 7;
const NARROWEST = 3;

export class RangeBar {
  /** `moved()` is called after the bar has changed the viewport. */
  constructor(view, moved) {
    this._view = view;
    this._moved = moved;
    this._frame = null;
    this._closed = false;
    this.element = h("canvas", { class: "rangebar", role: "img", "aria-label": "The whole range, and the part in sight" });
    this._pen = this.element.getContext("2d", { alpha: false });
    this._size = new ResizeObserver(() => this.draw());
    this._size.observe(this.element);
    this._stop = onChange(() => this.draw());
    this.element.addEventListener("pointerdown", (event) => this._down(event));
    this.element.addEventListener("pointermove", (event) => this._move(event));
    this.element.addEventListener("pointerup", () => (this._held = null));
    this.element.addEventListener("pointercancel", () => (this._held = null));
  }

  close() {
    this._closed = true;
    this._stop();
    this._size.disconnect();
  }

  /** Ask for a frame of the whole range, and show it. */
  async load(lanes) {
    const { from, to } = this._view.bounds;
    const asked = lanes.slice(0, MOST_LANES).map((each) => each.id);
    const pixels = Math.max(50, Math.ceil(this.element.clientWidth / 2));
    if (!asked.length) return;
    const answer = await get("frame", { from, to: to + 1n, pixels, lanes: asked });
    if (this._closed) return;
    this._frame = decodeFrame(answer);
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
    this._dim(pen, width, height, palette);
    if (this._frame) this._gaps(pen, width, height);
    this._window(pen, width, height, palette);
  }

  _density(pen, width, height, palette) {
    const heights = density(this._frame, this._view.bounds, Math.ceil(width / 2));
    const most = Math.max(...heights, 1);
    pen.fillStyle = palette["line-strong"];
    pen.globalAlpha = 0.7;
    for (const [index, value] of heights.entries()) {
      if (value > 0) {
        const tall = Math.max(2, (value / most) * (height - 8));
        pen.fillRect(index * 2, height - tall, 1.5, tall);
      }
    }
    pen.globalAlpha = 1;
  }

  /** Draw all gaps, also those out of sight. */
  _gaps(pen, width, height) {
    for (const gap of [...this._frame.gaps.values()].flat()) {
      const x = this._x(this._frame.from + BigInt(Math.round(gap.start)), width);
      const end = this._x(this._frame.from + BigInt(Math.round(gap.end)), width);
      drawGap(pen, { missing: null }, { x: Math.min(x, width - NARROWEST), length: Math.max(NARROWEST, Math.min(end - x, 50)) }, 0, height);
    }
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
    return (Number(time - from) / Math.max(1, Number(to - from))) * width;
  }

  _time(x) {
    const { from, to } = this._view.bounds;
    return from + BigInt(Math.round((x / this.element.clientWidth) * Number(to - from)));
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

/** Return how many spans and instants begin in each of some equal parts of a range. */
function density(frame, { from, to }, parts) {
  const heights = new Float64Array(parts);
  const shift = Number(frame.from - from);
  const scale = parts / Math.max(1, Number(to - from));
  const add = (time, number) => {
    const part = Math.floor((time + shift) * scale);
    if (part >= 0 && part < parts) heights[part] += number;
  };
  for (const { depths, instants } of frame.lanes.values()) {
    for (const row of depths) row?.start.forEach((time, index) => add(time, row.count[index]));
    instants.time.forEach((time, index) => add(time, instants.count[index]));
  }
  return heights;
}
