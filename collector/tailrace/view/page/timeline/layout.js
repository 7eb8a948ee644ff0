// Where lanes are: a heading for each node and process, below it its lanes, in each lane a row for each depth and counter.

import { PINNED } from "./order.js";

export const ROW = 20;
export const BAR = 17;
export const HEADING = 30;
export const COUNTER = 34;
/** Height of the strip at the foot of a lane that stands for a stream with missing events. */
export const STRIP = 16;
const PADDING = 6;

/** What lanes were seen to need: rows of spans, and counters. It grows as frames come, and never shrinks. */
export class Shapes {
  constructor() {
    this._known = new Map();
  }

  of(lane) {
    return this._known.get(lane.id) ?? { rows: lane.depths, counters: [] };
  }

  /** Take note of what a part of a frame shows. Return whether any lane needs more than before. */
  learn(part, lanes) {
    let grown = false;
    for (const lane of lanes) {
      const content = part.lanes.get(lane.id);
      if (!content) continue;
      const before = this.of(lane);
      const rows = Math.max(before.rows, content.depths.length);
      const added = content.counters.map((each) => each.name).filter((name) => !before.counters.includes(name));
      if (rows === before.rows && !added.length && this._known.has(lane.id)) continue;
      grown ||= rows !== before.rows || added.length > 0;
      this._known.set(lane.id, { rows, counters: [...before.counters, ...added].sort() });
    }
    return grown;
  }
}

export class Layout {
  /** `lanes` in their order; those of a group follow each other. `headings` has the texts of groups, `folds` which of
   * these are folded: their lanes have no place. */
  constructor(lanes, shapes, headings, folds) {
    this.lanes = lanes;
    this.places = [];
    this.headings = [];
    this._byId = new Map();
    let y = 0;
    let above = [];
    for (const lane of lanes) {
      const differs = lane.groups.findIndex((key, level) => key !== above[level]);
      const folded = lane.groups.findIndex((key) => folds.has(key));
      for (let level = differs; differs >= 0 && level < lane.groups.length; level += 1) {
        if (folded >= 0 && level > folded) break;
        const key = lane.groups[level];
        this.headings.push({ ...headings.get(key), key, level, y, lane, folded: folds.has(key) });
        y += HEADING;
      }
      above = lane.groups;
      if (folded >= 0) continue;
      const { rows: needed, counters } = shapes.of(lane);
      const rows = Math.max(needed, counters.length ? 0 : 1);
      const strip = lane.missing === 0 ? 0 : STRIP;
      const height = PADDING + rows * ROW + counters.length * COUNTER + strip;
      const place = { lane, y, rows, counters, strip, height, index: this.places.length };
      this.places.push(place);
      this._byId.set(lane.id, place);
      y += height;
    }
    this.height = y + PADDING;
  }

  of(id) {
    return this._byId.get(id);
  }

  /** Return the height of the heading "pinned" and of as many pinned lanes as fit into `room`. */
  pinned(room) {
    if (this.headings[0]?.key !== PINNED || room < HEADING) return 0;
    let bottom = HEADING;
    for (const { lane, y, height } of this.places) {
      if (lane.groups[0] !== PINNED || y + height > room) break;
      bottom = y + height;
    }
    return bottom;
  }

  /** Return the lanes that lie between two heights. */
  between(top, bottom) {
    return this.places.slice(this._first(top), this._first(bottom - 1) + 1);
  }

  /** Return the lane at a height, or undefined. */
  at(y) {
    const place = this.places[this._first(y)];
    return place && y >= place.y && y < place.y + place.height ? place : undefined;
  }

  /** Return the index of the first lane that ends below a height. */
  _first(y) {
    return firstWhere(this.places.length, (index) => this.places[index].y + this.places[index].height > y);
  }
}

/** Return the first of `length` indices that passes a test, as all behind it do; `length` if none does. */
export function firstWhere(length, test) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
