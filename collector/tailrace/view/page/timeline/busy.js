// The busy time of lanes: the time in which at least one stored span of the lane with a known end runs. The server must
// read all spans to compute it, so the page asks for it only while lanes are sorted by it.

import { get } from "../api.js";
import { Again } from "../parts/again.js";
import { laneId } from "./lanes.js";

const BY = ["source", "session", "stream", "substream"];
const MOST_LANES = 10_000;

export class Busy {
  /** `filters()` returns the parameters that select the lanes. `changed()` is called after each answer. */
  constructor(filters, changed) {
    this._filters = filters;
    this._changed = changed;
    this._times = null;
    this._again = new Again(() => this._read());
    /** Text for users about the order of the lanes; "" if all lanes are sorted. */
    this.words = "";
  }

  close() {
    this._again.close();
    this._closed = true;
  }

  /** Request the busy times, also if they were read before. */
  want() {
    if (!this._times) this.words = "reading busy times …";
    this._again.want();
  }

  /** Return the busy time of a lane (ns or ticks), or null if it is unknown. */
  of(lane) {
    return this._times?.get(lane.id) ?? null;
  }

  async _read() {
    try {
      const { groups, total } = await get("statistics", { by: BY, self: true, limit: MOST_LANES, ...this._filters() });
      this._times = new Map();
      for (const { group: [source, session, stream, substream], self } of groups) {
        const id = laneId({ source, session, stream, substream });
        this._times.set(id, (this._times.get(id) ?? 0) + Number(self ?? 0));
      }
      this.words = total > groups.length ? `sorted by the busy times of ${groups.length} lanes; those of the others were not read` : "";
    } catch (error) {
      this._times = null;
      this.words = `not sorted, because the busy times cannot be read: ${error.message}`;
    }
    if (!this._closed) this._changed();
  }
}
