// Where lanes are: a heading for each session, below it its lanes, in each lane a row for each depth and counter.

export const ROW = 20;
export const BAR = 17;
export const HEADING = 30;
export const COUNTER = 34;
const PADDING = 6;
const ALONE = 1;

export class Layout {
  /** `lanes` as the server lists them; those of one session follow each other. */
  constructor(lanes) {
    this.places = [];
    this.headings = [];
    this._byId = new Map();
    let y = 0;
    let group = null;
    for (const lane of lanes) {
      const key = `${lane.source}\n${lane.session}`;
      if (key !== group) {
        this.headings.push({ y, lane });
        y += HEADING;
        group = key;
      }
      const rows = Math.max(lane.depths, lane.counters.length ? 0 : ALONE);
      const height = PADDING + rows * ROW + lane.counters.length * COUNTER;
      const place = { lane, y, rows, height, index: this.places.length };
      this.places.push(place);
      this._byId.set(lane.id, place);
      y += height;
    }
    this.height = y + PADDING;
  }

  of(id) {
    return this._byId.get(id);
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
    let low = 0;
    let high = this.places.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.places[middle].y + this.places[middle].height <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
