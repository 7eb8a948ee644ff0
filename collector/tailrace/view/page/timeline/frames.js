// Frames of the window in sight and half as much on both sides: a question for each piece of the window, so that a break
// takes no detail from the others. While the next frame is on its way the last one is drawn, moved and stretched, so that
// each move shows at once.

import { get } from "../api.js";
import { decodePart, joined } from "./decode.js";

const SIDE = 0.5;
const MOST_STRETCHED = 1.3;

export class Frames {
  /** `asked()` is called with each question, `arrived(frame)` or `failed(error)` with its answer, and `rests()` if no
   * lane is in sight. */
  constructor(canvas, { asked, arrived, failed, rests }) {
    this._canvas = canvas;
    this._asked = asked;
    this._arrived = arrived;
    this._failed = failed;
    this._rests = rests;
    this._asking = null;
    this._stale = false;
    this._closed = false;
    /** Settled when the latest question has been answered, or has failed. */
    this.answered = Promise.resolve();
  }

  close() {
    this._closed = true;
    this._asking?.abort();
  }

  /** Forget that the last frame is good: the table has changed. */
  expire() {
    this._stale = true;
    this.want();
  }

  /** Ask for a frame unless the last one has all that is in sight. */
  want() {
    if (this._asking || this._closed || !this._canvas.layout || this._canvas.view.width < 2) return;
    const lanes = this._lanes();
    if (!lanes.length) {
      this._stale = false;
      this._rests();
      return;
    }
    if (!this._stale && this._covers()) return;
    this.answered = this._ask(lanes);
  }

  /** Return ids of the lanes in sight, and of a screen above and below. */
  _lanes() {
    return this._canvas.seen(1).map((place) => place.lane.id);
  }

  _covers() {
    const { frame, view } = this._canvas;
    if (!this._canvas.whole) return false;
    const stretched = frame.unitsPerPixel * view.scale;
    return frame.breaks === view.breaks && stretched < MOST_STRETCHED && stretched > 0.5 / MOST_STRETCHED;
  }

  async _ask(lanes) {
    const { view, clock } = this._canvas;
    const side = view.width * SIDE;
    const pieces = view.pieces(-side, view.width + side);
    const about = { asked: new Set(lanes), breaks: view.breaks, unitsPerPixel: 1 / view.scale, clock };
    this._stale = false;
    const controller = new AbortController();
    this._asking = controller;
    this._asked();
    let good = false;
    try {
      const answers = await Promise.all(pieces.map(({ from, to, x, end }) => get("frame", { from, to, pixels: Math.max(1, Math.ceil(end - x)), lanes }, controller.signal)));
      if (this._closed) return;
      this._arrived({ ...joined(answers.map((answer, index) => decodePart(answer, pieces[index].broken))), ...about });
      good = true;
    } catch (error) {
      controller.abort();
      this._stale = true;
      if (!this._closed) this._failed(error);
    } finally {
      this._asking = null;
    }
    // What came meanwhile: another window, other lanes, a new version. What failed waits for a move or for news.
    if (good) this.want();
  }
}
