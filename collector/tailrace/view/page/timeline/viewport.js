// Which part of time a canvas shows. Times are BigInt; what lies in sight is a number of units from the left edge, so
// that a window of nanoseconds is as exact as one of days. A unit is a nanosecond, or a tick of a logical clock. A break
// is a stretch of empty time that is drawn a few pixels wide; all other time is drawn to one scale.

const SHORTEST = 20;
const MARGIN = 0.02;
const BREAK = 48;
const MOST_BROKEN = 0.3;

export class Viewport {
  /** `bounds` has the times `from` and `to` between which there is anything. */
  constructor(bounds) {
    this.bounds = bounds;
    this.breaks = [];
    this.width = 1;
    this.whole();
  }

  get to() {
    const { time, part } = this._walk(this, this.width);
    return part > 0 ? time + 1n : time;
  }

  /** Return pixels per unit, outside of breaks. */
  get scale() {
    return this.width / this.length;
  }

  /** Take another width. The same time stays in sight. */
  resize(width) {
    const { to } = this;
    this.width = width;
    if (this.breaks.length) this.length = this._fit(this.from, to);
  }

  /** Return where a time is, in pixels from the left edge. */
  x(time) {
    const [low, high] = time < this.from ? [time, this.from] : [this.from, time];
    let x = 0;
    for (const { from, to, scale } of this._segments()) {
      const begin = from === null || from < low ? low : from;
      const end = to === null || to > high ? high : to;
      if (end > begin) x += Number(end - begin) * scale;
    }
    return (time < this.from ? -x : x) - this.part * this._scaleAt(this.from);
  }

  /** Return the time of a place. */
  at(x) {
    const { time, part } = this._walk(this, x);
    return time + BigInt(Math.round(part));
  }

  /** Return what lies between two places, as pieces with an even `scale`: from the time `from` and a `part` of a unit to
   * the time `to`, from the pixel `x` to the pixel `end`. `broken` is the break of a piece, or null. */
  pieces(first = 0, last = this.width) {
    const { time: begin, part } = this._walk(this, first);
    const behind = this._walk(this, last);
    const end = behind.part > 0 ? behind.time + 1n : behind.time;
    const found = [];
    for (const { from, to, scale, broken } of this._segments()) {
      if ((to !== null && to <= begin) || (from !== null && from >= end)) continue;
      const inside = from === null || from <= begin;
      found.push({
        from: inside ? begin : from, part: inside ? part : 0, to: to === null || to > end ? end : to,
        x: found.at(-1)?.end ?? first, end: to === null || to >= end ? last : this.x(to), scale, broken,
      });
    }
    return found;
  }

  show(from, to) {
    this.from = from;
    this.part = 0;
    this.length = this._fit(from, to);
    this._keep();
  }

  /** Show everything, or a range, with a little room on both sides. */
  whole({ from, to } = this.bounds) {
    this.length = this._fit(from, to, 1 / (1 + 2 * MARGIN));
    this._begin(from, (-this.width * MARGIN) / (1 + 2 * MARGIN));
  }

  /** Show a time or a range with some room around it. */
  reveal(from, to) {
    this.length = Math.max(this._fit(from, to, 1 / 2), Math.min(this.length, Math.max(this._fit(from, to, 1 / 8), 2000)));
    this._begin(from, 0);
    this._begin(from, (this.x(to) - this.width) / 2);
    this._keep();
  }

  pan(pixels) {
    this._shift(pixels);
    this._keep();
  }

  /** Show `factor` times as much time; the time at `x` stays where it is. */
  zoom(factor, x) {
    const most = Math.max(this._fit(this.bounds.from, this.bounds.to, 1 / (1 + 4 * MARGIN)), SHORTEST * 2);
    const { time, part } = this._walk(this, x);
    this.length = Math.min(Math.max(this.length * factor, SHORTEST), most);
    this._begin(time, -x, part);
    this._keep();
  }

  /** Put a time in the middle. */
  centre(time) {
    this._begin(time, -this.width / 2);
    this._keep();
  }

  /** Return all of time as segments with an even scale; `from` or `to` is null where there is no end. */
  _segments() {
    const segments = [];
    let from = null;
    for (const broken of this.breaks) {
      segments.push({ from, to: broken.from, scale: this.scale, broken: null });
      segments.push({ ...broken, scale: Math.min(this.scale, this._breakWidth / Number(broken.to - broken.from)), broken });
      from = broken.to;
    }
    return [...segments, { from, to: null, scale: this.scale, broken: null }];
  }

  get _breakWidth() {
    return Math.min(BREAK, (this.width * MOST_BROKEN) / this.breaks.length);
  }

  _scaleAt(time) {
    return this._segments().find(({ to }) => to === null || time < to).scale;
  }

  /** Return the place some pixels away from a place, which is a time (`from` or `time`) and a part of a unit. */
  _walk({ from: start, time = start, part }, pixels) {
    const segments = this._segments();
    let index = segments.findIndex(({ to }) => to === null || time < to);
    for (;;) {
      const { from, to, scale } = segments[index];
      const units = part + pixels / scale;
      const back = pixels < 0;
      const edge = back ? from : to;
      const inside = edge === null || (back ? units >= Number(edge - time) : units < Number(edge - time));
      if (inside) {
        const whole = Math.floor(units);
        return { time: time + BigInt(whole), part: units - whole };
      }
      pixels -= (Number(edge - time) - part) * scale;
      index += back ? -1 : 1;
      time = edge;
      part = 0;
    }
  }

  /** Begin some pixels away from a time. */
  _begin(time, pixels, part = 0) {
    const place = this._walk({ time, part }, pixels);
    this.from = place.time;
    this.part = place.part;
  }

  _shift(pixels) {
    this._begin(this.from, pixels, this.part);
  }

  /** Return the `length` at which a range takes a share of the width. A break that would be wider than its time to scale
   * is drawn to scale. */
  _fit(from, to, share = 1) {
    const room = this.width * share;
    let units = Number(to - from);
    let left = room;
    let length = Math.max(units, SHORTEST);
    const widest = this.breaks.map((each) => ({ all: Number(each.to - each.from), inside: Number(min(each.to, to) - max(each.from, from)) }))
      .filter(({ inside }) => inside > 0).sort((one, other) => other.all - one.all);
    for (const { all, inside } of widest) {
      if (all * (left / Math.max(units, 1)) <= this._breakWidth) break;
      units -= inside;
      left = Math.max(left - (this._breakWidth * inside) / all, room / 4);
      length = Math.max(units * (room / left), SHORTEST);
    }
    return length / share;
  }

  /** Keep a part of what there is in sight. */
  _keep() {
    const lead = this.x(this.bounds.from) - this.width * 0.9;
    const lag = this.x(this.bounds.to) - this.width * 0.1;
    if (lead > 0) this._shift(lead);
    else if (lag < 0) this._shift(lag);
  }
}

const min = (one, other) => (one < other ? one : other);
const max = (one, other) => (one > other ? one : other);
