// How times of an axis are written: wall time as dates, other clocks as distances from their begin.

import { count, duration, moment, short } from "../parts/text.js";

const UNITS = [[1_000_000_000n, "s"], [1_000_000n, "ms"], [1_000n, "µs"], [1n, "ns"]];

/** The clock whose times are Unix nanoseconds. */
export const WALL_CLOCK = {
  wall: true,
  zero: 0n,
  moment,
  length: (value) => duration(value),
  brief: (value) => duration(value, 2),
};

/** A clock without wall time. Its times count from `zero`, in nanoseconds or, where no tick has a length, in ticks. */
export class OwnClock {
  constructor(zero, words) {
    this.wall = false;
    this.zero = zero;
    this.words = words;
    this.ticks = words.includes("tick");
  }

  moment(time) {
    return this.length(time - this.zero, true);
  }

  length(value, exact = false) {
    if (this.ticks) return `${count(BigInt(Math.round(Number(value))))} ticks`;
    return exact ? `+${count(value)} ns` : duration(value);
  }

  /** Return a length with few digits. */
  brief(value) {
    return this.ticks ? short(Number(value)) : duration(value, 2);
  }

  /** Return the label of a tick of the axis, at a multiple of `step` from zero. */
  label(time, step) {
    const distance = time - this.zero;
    if (this.ticks) return count(distance);
    const [size, unit] = UNITS.find(([each]) => step >= each);
    return `${count(distance / size)} ${unit}`;
  }
}
