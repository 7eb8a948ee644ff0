// All of time as a bar: how much happens when, where events are missing, and which part is in sight. The bar has the breaks of
// the lanes below it.

import { get } from "../api.js";
import { h, scale } from "../parts/dom.js";
import { colours, font, onChange } from "../parts/theme.js";
import { drawBreak } from "./axis.js";
import { decodePart, eachEvent, joined } from "./decode.js";
import { columnWidth, drawShares, sharesOf } from "./gaps.js";
import { sightsOf } from "./sights.js";
import { Viewport } from "./viewport.js";

/** How many lanes one question names: its address stays shorter than the server allows. */
const LANES_ASKED = 400;
const EDGE = 7;
const FRAME = 3;
const LOWEST = 6;
const PIXELS = 50;
const INSET = 4;
const LABEL = "The whole range, and the part in sight. Grey from below: how many events there are. From above: which share of the events is missing";
const HINT = "All of time. Grey, from below: events. Pink, from above: the share of them that is missing. Drag the frame to move.";
const WORDS = { reading: "Reading …", read: "", failed: "Not read: " };

export class RangeBar {
  /** `moved()` is called after the bar has changed the viewport. */
  constructor(view, moved) {
    this._view = view;
    this._all = new Viewport(view.bounds);
    this._moved = moved;
    this._turn = 0;
    this.element = h("canvas", { class: "rangebar", role: "img", title: HINT });
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

  /** Return whether events are missing anywhere in the bar. */
  get isLossy() {
    return Boolean(this._frame?.parts.some((part) => part.losses.size));
  }

  /** Read the whole range of lanes, and show it: a question for each piece of time. A later call supersedes this one. */
  async load(lanes) {
    const turn = (this._turn += 1);
    this._fit();
    const parts = [];
    try {
      for (const { from, to, x, end, broken } of lanes.length ? this._all.pieces() : []) {
        const pixels = Math.max(PIXELS, Math.ceil(((end - x) / this._all.width) * (this.element.clientWidth / 2)));
        const answers = [];
        for (let first = 0; first < lanes.length; first += LANES_ASKED) {
          const asked = lanes.slice(first, first + LANES_ASKED).map((each) => each.id);
          const answer = await get("frame", { from, to, pixels, lanes: asked });
          if (turn !== this._turn) return;
          answers.push(decodePart(answer, broken));
        }
        parts.push(united(answers));
      }
      this._become("read", parts.length ? joined(parts) : null);
    } catch (error) {
      if (turn === this._turn) this.failed(error);
    }
  }

  /** Have the bar's own viewport show the whole range. */
  _fit() {
    const { bounds, breaks } = this._view;
    Object.assign(this._all, { bounds, breaks, width: Math.max(1, this.element.clientWidth - 2 * INSET) });
    this._all.show(bounds.from, bounds.to + 1n);
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
    this._fit();
    const palette = colours();
    pen.fillStyle = palette.sunken;
    pen.fillRect(0, 0, width, height);
    for (const { broken, x, end } of this._all.pieces()) if (broken) drawBreak(pen, INSET + x, end - x, 0, height);
    const counted = this._counts(width);
    if (this._frame) this._density(pen, height, palette, counted);
    else this._say(pen, height, palette);
    this._dim(pen, width, height, palette);
    if (this._frame) this._gaps(pen, height, counted);
    this._window(pen, width, height, palette);
  }

  _say(pen, height, { soft }) {
    pen.font = font(12);
    pen.fillStyle = soft;
    pen.fillText(this._words, 2 * INSET, height / 2);
  }

  _density(pen, height, palette, counted) {
    const most = Math.max(1, ...counted.flatMap(({ here }) => [...here]));
    pen.fillStyle = palette["line-strong"];
    pen.globalAlpha = 0.7;
    for (const { here, left, step } of counted) {
      for (const [index, value] of here.entries()) {
        if (value > 0) {
          const tall = Math.max(LOWEST, (value / most) * (height - 8));
          pen.fillRect(left + index * step, height - tall, step - 0.5, tall);
        }
      }
    }
    pen.globalAlpha = 1;
  }

  /** Draw which share of events is missing when, also out of sight. */
  _gaps(pen, height, counted) {
    for (const { part, here, column, left, step } of counted) {
      const all = [...part.losses.values()].flatMap((loss) => loss.gaps);
      drawShares(pen, sharesOf(all, { here, column }), { x: left, step, y: FRAME, height: height - 2 * FRAME, hanging: true });
    }
  }

  /** Return for each part in sight how many events begin in each column of the bar. They are counted once for a frame, range
   * and width. */
  _counts(width) {
    const { bounds, breaks } = this._view;
    const key = [this._frame, bounds.from, bounds.to, breaks, width];
    if (!key.every((each, index) => each === this._counted?.key[index])) this._counted = { key, counts: sightsOf(this._all, this._frame, INSET).map(counts) };
    return this._counted.counts;
  }

  /** Let what is out of sight step back. */
  _dim(pen, width, height, { paper }) {
    const [from, to] = [this._x(this._view.from), this._x(this._view.to)];
    pen.globalAlpha = 0.6;
    pen.fillStyle = paper;
    pen.fillRect(0, 0, Math.max(0, from), height);
    pen.fillRect(to, 0, Math.max(0, width - to), height);
    pen.globalAlpha = 1;
  }

  _window(pen, width, height, { accent }) {
    const [from, to] = [this._x(this._view.from), this._x(this._view.to)];
    const length = Math.max(6, to - from);
    pen.strokeStyle = accent;
    pen.lineWidth = 2;
    pen.strokeRect(Math.max(1, from), 1, Math.min(length, width - 2 - Math.max(0, from)), height - 2);
  }

  _x(time) {
    return INSET + this._all.x(time);
  }

  _down(event) {
    this.element.setPointerCapture(event.pointerId);
    const [from, to] = [this._x(this._view.from), this._x(this._view.to)];
    const x = event.offsetX;
    if (Math.abs(x - from) < EDGE && to - from > 3 * EDGE) this._held = "from";
    else if (Math.abs(x - to) < EDGE && to - from > 3 * EDGE) this._held = "to";
    else this._held = "all";
    this._move(event);
  }

  _move(event) {
    if (!this._held) return;
    const time = this._all.at(event.offsetX - INSET);
    const { from, to } = this._view;
    if (this._held === "from" && time < to) this._view.show(time, to);
    else if (this._held === "to" && time > from) this._view.show(from, time);
    else if (this._held === "all") this._view.centre(time);
    this._moved();
  }
}

/** Return the answers about one range as one part, with the lanes of all. A stream with lanes in several has its gaps in
 * each. */
function united(answers) {
  return {
    ...answers[0],
    bucket: Math.max(...answers.map((each) => each.bucket)),
    oneIn: Math.max(...answers.map((each) => each.oneIn)),
    lanes: new Map(answers.flatMap((each) => [...each.lanes])),
    losses: new Map(answers.flatMap((each) => [...each.losses])),
  };
}

/** Return a sight with the columns that it has in the bar, and how many events begin in each. */
function counts(sight) {
  const { part, shift, scale: pixels, width } = sight;
  const step = columnWidth(part, pixels);
  const here = new Float64Array(Math.max(1, Math.ceil(width / step)));
  const column = (time) => {
    const index = Math.floor(((time + shift) * pixels) / step);
    return index === here.length ? index - 1 : index;
  };
  for (const content of part.lanes.values()) eachEvent(content, (time, number) => (here[column(time)] += number));
  return { ...sight, step, here, column };
}
