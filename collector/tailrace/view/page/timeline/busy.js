// How long lanes are busy: the time in which at least one of their stored spans with a known end runs. The server reads all
// spans in order to sum it up, so this page asks only while lanes are sorted by it.

import { get } from "../api.js";
import { Again } from "../parts/again.js";
import { laneId } from "./lanes.js";

const BY = ["source", "session", "stream", "substream"];
const MOST_LANES = 10_000;

export class Busy {
  /** `filters()` returns the parameters that select the lanes. `changed()` is called when anything is known anew. */
  constructor(filters, changed) {
    this._filters = filters;
    this._changed = changed;
    this._times = null;
    this._again = new Again(() => this._read());
    /** What to say of the order of lanes, or "" if they stand in it. */
    this.words = "";
  }

  close() {
    this._again.close();
    this._closed = true;
  }

  /** Read the busy times, or read them again. */
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
      this.words = total > groups.length ? `sorted by the busy times of ${groups.length} lanes, those of the others are not read` : "";
    } catch (error) {
      this._times = null;
      this.words = `not sorted, because the busy times cannot be read: ${error.message}`;
    }
    if (!this._closed) this._changed();
  }
}
