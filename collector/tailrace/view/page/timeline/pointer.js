// Gestures on the timeline: the wheel and two fingers zoom, dragging moves, dragging with Shift or on the axis selects.

import { AXIS_HEIGHT } from "./axis.js";

const CLICK = 4;
const LINE = 16;

export class Gestures {
  /** `on` has `moved()`, `hovered(x, y)`, `picked(x, y)` and `selected(from, to, done)`. */
  constructor(canvas, on) {
    this._canvas = canvas;
    this._on = on;
    this._fingers = new Map();
    this._mode = null;
    const { element } = canvas;
    element.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
    element.addEventListener("pointerdown", (event) => this._down(event));
    element.addEventListener("pointermove", (event) => this._move(event));
    element.addEventListener("pointerup", (event) => this._up(event));
    element.addEventListener("pointercancel", (event) => this._end(event));
    element.addEventListener("pointerleave", () => on.hovered(-1, -1));
    element.addEventListener("dblclick", (event) => this._zoom(0.4, event.offsetX));
  }

  _wheel(event) {
    event.preventDefault();
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
    const [across, down] = [event.deltaX * unit, event.deltaY * unit];
    const { view, left, scroll } = this._canvas;
    if (event.offsetX < left && !event.ctrlKey) this._canvas.scrollTo(scroll + down);
    else if (event.shiftKey) view.pan(across || down);
    else if (Math.abs(across) > Math.abs(down)) view.pan(across);
    else view.zoom(Math.exp(Math.max(-120, Math.min(120, down)) * 0.0022), event.offsetX - left);
    this._on.moved();
  }

  _zoom(factor, x) {
    this._canvas.view.zoom(factor, x - this._canvas.left);
    this._on.moved();
  }

  _down(event) {
    if (event.button !== 0) return;
    this._canvas.element.setPointerCapture(event.pointerId);
    this._fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this._began = { x: event.offsetX, y: event.offsetY };
    const selecting = event.shiftKey || (event.offsetY < AXIS_HEIGHT && event.offsetX > this._canvas.left);
    this._mode = this._fingers.size > 1 ? "pinch" : selecting ? "select" : "press";
  }

  _move(event) {
    const finger = this._fingers.get(event.pointerId);
    if (!finger) {
      this._on.hovered(event.offsetX, event.offsetY);
      return;
    }
    const before = { ...finger };
    const far = Math.hypot(event.offsetX - this._began.x, event.offsetY - this._began.y) > CLICK;
    if (this._mode === "press" && far) this._mode = "drag";
    if (this._mode === "press") return;
    finger.x = event.offsetX;
    finger.y = event.offsetY;
    if (this._mode === "pinch") this._pinch(before, finger);
    else if (this._mode === "select") this._select(false);
    else this._drag(before, finger);
  }

  _drag(before, finger) {
    this._canvas.element.classList.add("dragged");
    this._canvas.view.pan(before.x - finger.x);
    this._canvas.scrollTo(this._canvas.scroll + before.y - finger.y);
    this._on.moved();
  }

  _pinch(before, finger) {
    const other = [...this._fingers.values()].find((each) => each !== finger);
    if (!other) return;
    const distance = (one) => Math.max(24, Math.abs(one.x - other.x));
    const { view, left } = this._canvas;
    view.zoom(distance(before) / distance(finger), (finger.x + other.x) / 2 - left);
    view.pan((before.x - finger.x) / 2);
    this._on.moved();
  }

  _select(done) {
    const [finger] = this._fingers.values();
    const { view, left } = this._canvas;
    const [one, other] = [this._began.x - left, finger.x - left].sort((a, b) => a - b);
    if (other - one < CLICK && done) this._on.selected(null, null, true);
    else this._on.selected(view.at(one), view.at(other), done);
  }

  _up(event) {
    if (!this._fingers.has(event.pointerId)) return;
    if (this._mode === "press") this._on.picked(event.offsetX, event.offsetY);
    if (this._mode === "select") this._select(true);
    this._end(event);
  }

  _end(event) {
    this._fingers.delete(event.pointerId);
    this._canvas.element.classList.remove("dragged");
    this._mode = this._fingers.size ? "drag" : null;
    const [finger] = this._fingers.values();
    if (finger) this._began = { ...finger };
  }
}
