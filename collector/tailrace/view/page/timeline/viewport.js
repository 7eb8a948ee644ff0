// Which part of time a canvas shows. Times are BigInt; what lies in sight is a number of units from the left edge, so
// that a window of nanoseconds is as exact as one of days. A unit is a nanosecond, or a tick of a logical clock.

const SHORTEST = 20;
const MARGIN = 0.02;

export class Viewport {
  /** `bounds` has the times `from` and `to` between which there is anything. */
  constructor(bounds) {
    this.bounds = bounds;
    this.width = 1;
    this.whole();
  }

  get to() {
    return this.from + BigInt(Math.ceil(this.part + this.length));
  }

  /** Return pixels per unit. */
  get scale() {
    return this.width / this.length;
  }

  /** Return where a time is, in pixels from the left edge. */
  x(time) {
    return (Number(time - this.from) - this.part) * this.scale;
  }

  /** Return the time of a place. */
  at(x) {
    return this.from + BigInt(Math.round(this.part + x / this.scale));
  }

  show(from, to) {
    this.from = from;
    this.part = 0;
    this.length = Math.max(Number(to - from), SHORTEST);
    this._keep();
  }

  /** Show everything, or a range, with a little room on both sides. */
  whole({ from, to } = this.bounds) {
    const room = BigInt(Math.ceil(Math.max(Number(to - from), SHORTEST) * MARGIN));
    this.from = from - room;
    this.part = 0;
    this.length = Math.max(Number(to - from + 2n * room), SHORTEST);
  }

  pan(pixels) {
    this._shift(pixels / this.scale);
    this._keep();
  }

  /** Show `factor` times as much time; the time at `x` stays where it is. */
  zoom(factor, x) {
    const most = Math.max(Number(this.bounds.to - this.bounds.from) * (1 + 4 * MARGIN), SHORTEST * 2);
    const length = Math.min(Math.max(this.length * factor, SHORTEST), most);
    this._shift((x / this.width) * (this.length - length));
    this.length = length;
    this._keep();
  }

  /** Put a time in the middle; show no more than `length` units, if given. */
  centre(time, length = this.length) {
    this.length = Math.max(length, SHORTEST);
    this.from = time;
    this.part = 0;
    this._shift(-this.length / 2);
    this._keep();
  }

  _shift(units) {
    const whole = Math.floor(this.part + units);
    this.part = this.part + units - whole;
    this.from += BigInt(whole);
  }

  /** Keep a part of what there is in sight. */
  _keep() {
    const reach = BigInt(Math.ceil(this.length * 0.9));
    const least = this.bounds.from - reach;
    const most = this.bounds.to - BigInt(Math.floor(this.length * 0.1));
    if (this.from < least) [this.from, this.part] = [least, 0];
    if (this.from > most && most > least) [this.from, this.part] = [most, 0];
  }
}
