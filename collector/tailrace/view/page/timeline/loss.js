// What a gap of a frame lacks, in words. One mark may stand for several gaps, and some may lack an unknown number of events.

import { count, short } from "../parts/text.js";

/** Return how many events are missing, as a label that is short. */
export function label({ missing, unknown }) {
  if (missing === null) return "? missing";
  return `${unknown ? "≥ " : ""}${short(missing)} missing`;
}

/** Return how many events are missing, as the beginning of a sentence. */
export function amount({ missing, unknown }) {
  if (missing === null) return "an unknown number of events";
  const known = `${count(missing)} ${missing === 1 ? "event" : "events"}`;
  return unknown ? `${known}, and an unknown number besides,` : known;
}

/** Return what the gap is called: its reason, or how many gaps the mark stands for. */
export function title({ count: number, reason }) {
  if (number === 1) return reason;
  return `${count(number)} gaps, ${reason ?? "of several reasons"}`;
}
