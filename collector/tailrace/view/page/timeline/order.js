// Which lanes stand where: pinned lanes first, the others in groups, sorted, and only those that a text selects.

import { count } from "../parts/text.js";
import { hash } from "../parts/theme.js";

export const PINNED = "pinned";
const NAME = "name";
/** How lanes can be sorted: a group stands where its first lane stands. */
export const ORDERS = [[NAME, "by name"], ["first", "by first event"], ["events", "by events"], ["busy", "by busy time"], ["loss", "by loss"]];
const VALUES = {
  first: (lane) => (lane.first === null ? Infinity : Number(lane.first)),
  events: (lane) => -lane.events,
  busy: (lane) => -(lane.busy ?? -1),
  loss: (lane) => (lane.missing === null ? -Infinity : -lane.missing),
};

/** Return a short text for the address that stands for a lane. */
export const markOf = (lane) => hash(lane.id).toString(36);

/** Return lanes, which come by name, as an address wants them: pinned (`pins`), sorted (`sort`), selected (`lanes`). Pinned lanes
 * are shown whatever the text selects. */
export function arranged(all, { pins, sort, lanes: text }) {
  const marks = new Set((pins ?? "").split(",").filter(Boolean));
  const isPinned = (lane) => marks.has(markOf(lane));
  const words = (text ?? "").toLowerCase();
  const rest = all.filter((lane) => !isPinned(lane) && has(lane, words));
  return [...all.filter(isPinned).map((lane) => ({ ...lane, groups: [PINNED] })), ...sorted(rest, VALUES[sort])];
}

const has = (lane, words) => [lane.source, lane.process, lane.name, lane.title, lane.node ?? ""].some((each) => each.toLowerCase().includes(words));

/** Return lanes by a value, the least first. Those of a group stay together. */
function sorted(lanes, value) {
  if (!value) return lanes;
  const least = new Map();
  for (const lane of lanes) {
    for (const key of lane.groups) least.set(key, Math.min(least.get(key) ?? Infinity, value(lane)));
  }
  const place = new Map(lanes.map((lane, index) => [lane, [...lane.groups.map((key) => [least.get(key), key]), [value(lane), index]]]));
  return [...lanes].sort((one, other) => compared(place.get(one), place.get(other)));
}

function compared(some, others) {
  for (const [index, [value, tie]] of some.entries()) {
    const [than, other] = others[index] ?? [value, tie];
    if (value !== than) return value < than ? -1 : 1;
    if (tie !== other) return tie < other ? -1 : 1;
  }
  return 0;
}

/** Return words about lanes of which some are hidden: `of` how many, and what the hidden ones lack. */
export function hiddenWords(all, shown) {
  const known = new Set(shown.map((lane) => lane.id));
  const hidden = all.filter((lane) => !known.has(lane.id));
  if (!hidden.length) return { of: "", lacks: "" };
  const missing = hidden.reduce((sum, lane) => sum + lane.known, 0);
  const lacks = [missing ? count(missing) : null, hidden.some((lane) => lane.missing === null) ? "an unknown number of" : null].filter(Boolean).join(" and ");
  return { of: ` of ${count(all.length)}`, lacks: lacks ? ` · ${lacks} events missing from the others` : "" };
}
