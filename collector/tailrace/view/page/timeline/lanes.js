// Lanes as the server lists them, by the clocks on whose axes they stand.

import { count, cut } from "../parts/text.js";

export const WALL = "wall";

/** Return the lanes of an answer of `lanes`, each with texts to show and times as BigInt. */
export function decodeLanes(answer) {
  return answer.lanes.map((lane) => {
    const substream = lane.substream === null || lane.substream === undefined ? "" : ` / ${lane.substream}`;
    return {
      ...lane,
      clock: lane.clock === WALL ? WALL : `${lane.source}/${lane.session}`,
      first: lane.first === null ? null : BigInt(lane.first),
      last: lane.last === null ? null : BigInt(lane.last),
      name: `${lane.stream || "(no stream)"}${substream}`,
      title: lane.session.slice(0, 12),
      subtitle: `${count(lane.events)} events`,
    };
  }).sort(byPlace);
}

function byPlace(one, other) {
  return compare(one.source, other.source) || compare(one.session, other.session)
    || compareNumbers(one.stream, other.stream) || compareNumbers(String(one.substream ?? ""), String(other.substream ?? ""));
}

function compare(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}

const NATURAL = new Intl.Collator("en", { numeric: true });

function compareNumbers(one, other) {
  return NATURAL.compare(one, other);
}

/** Return the clocks of lanes: wall time first, then each session that counts ticks of its own. */
export function clocksOf(lanes) {
  const wall = lanes.some((lane) => lane.clock === WALL) ? [{ id: WALL, title: "Wall time" }] : [];
  const own = new Map();
  for (const lane of lanes) if (lane.clock !== WALL) own.set(lane.clock, lane);
  return [...wall, ...[...own.values()].map((lane) => ({ id: lane.clock, title: `Clock of ${lane.source} · ${cut(lane.session, 12)}` }))];
}

/** Return sessions of lanes, as choices. */
export function sessionsOf(lanes) {
  const known = new Map();
  for (const lane of lanes) known.set(`${lane.source}/${lane.session}`, `${lane.source} · ${lane.title}`);
  return [...known].map(([id, title]) => ({ id, title }));
}

/** Return the times between which lanes have anything, or null. */
export function boundsOf(lanes) {
  let from = null;
  let to = null;
  for (const { first, last } of lanes) {
    if (first !== null && (from === null || first < from)) from = first;
    if (last !== null && (to === null || last > to)) to = last;
  }
  return from === null || to === null ? null : { from, to: to > from ? to : from + 1n };
}
