// Items of the timeline in words: in the status line, in the panel, and for screen readers. One mark may stand for several
// gaps, of which some may lack an unknown number of events.

import { count, cut, plural, share, short } from "../parts/text.js";

/** Return how many events are missing, as a label that is short. */
export function label({ missing, unknown }) {
  if (missing === null) return "? missing";
  return `${unknown ? "≥ " : ""}${short(missing)} missing`;
}

/** Return how many events are missing, as the beginning of a sentence. */
export function amount({ missing, unknown }) {
  if (missing === null) return "an unknown number of events";
  const known = plural(missing, "event");
  return unknown ? `${known}, and an unknown number besides,` : known;
}

/** Return what the gap is called: its reason, or how many gaps the mark stands for. */
export function title({ count: number, reason }) {
  if (number === 1) return reason;
  return `${count(number)} gaps, ${reason ?? "of several reasons"}`;
}

/** Return where a lane is: its source, session and name. */
export const placeOf = (lane) => [lane.source, lane.title, lane.title.endsWith(lane.name) ? "" : lane.name].filter(Boolean).join(" · ");

/** Return a sentence about a break. Events may be missing from it. */
export const emptiness = ({ from, to }, clock) => `no event here for ${clock.length(to - from)} · from ${clock.moment(from)} to ${clock.moment(to)} · a click shows this time to scale`;

/** Return a sentence about a column of the band at the foot of a lane: which share of its events is missing. */
export function describeShare({ here, lost, unknown }, lane) {
  const number = lost < 1 ? "fewer than 1" : `about ${count(lost)} of ${count(lost + here)}`;  // a gap may be wider than a column
  const known = lost ? `${unknown ? "at least " : ""}${share(lost / (lost + here))} of the events missing here, ${number}` : "";
  return `${[known, unknown ? "an unknown number missing" : ""].filter(Boolean).join("; ")} · ${placeOf(lane)}`;
}

/** Return a sentence about an item of a lane. */
export function describe(item, lane, clock) {
  const where = placeOf(lane);
  const when = `at ${clock.moment(item.start)}`;
  if (item.gap) {
    return `${amount(item.gap)} missing (${title(item.gap)}) · ${where} · ${when}`;
  }
  const name = cut(item.name, 80);
  if (item.counter) return `${name} = ${short(item.value)} (${short(item.least)} to ${short(item.most)} near) · ${where} · ${when}`;
  if (item.count > 1) return `${item.about ? "about " : ""}${count(item.count)} ${item.instant ? "instants" : "spans"}, mostly ${name} · ${where} · ${when}`;
  if (item.instant) return `${name} · ${where} · ${when}`;
  return `${name} · ${item.open ? "still open" : clock.length(item.end - item.start)} · ${where} · ${when}`;
}
