// What is under the pointer, or picked, in one sentence: in the status line, and for screen readers.

import { count, cut, short } from "../parts/text.js";
import { amount, title } from "./loss.js";

/** Return a sentence about an item of a lane. */
export function describe(item, lane, clock) {
  const where = `${lane.source} · ${lane.name}`;
  const when = `at ${clock.moment(item.start)}`;
  if (item.gap) {
    return `${amount(item.gap)} missing (${title(item.gap)}) · ${where} · ${when}`;
  }
  const name = cut(item.name, 80);
  if (item.counter) return `${name} = ${short(item.value)} (${short(item.least)} to ${short(item.most)} near) · ${where} · ${when}`;
  if (item.count > 1) return `${count(item.count)} ${item.instant ? "instants" : "spans"}, mostly ${name} · ${where} · ${when}`;
  if (item.instant) return `${name} · ${where} · ${when}`;
  return `${name} · ${item.open ? "still open" : clock.length(item.end - item.start)} · ${where} · ${when}`;
}
