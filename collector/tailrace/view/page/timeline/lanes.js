// Lanes as the server lists them, by the axes on which they stand.

import { count, shortIds } from "../parts/text.js";

export const WALL = "wall";
const NATURAL = new Intl.Collator("en", { numeric: true });

/** Return what names a lane on this page. */
export function laneId({ source, session, stream, substream = null }) {
  return JSON.stringify([source, session, stream, substream === null ? null : String(substream)]);
}

/** Return what names the stream of a lane or of a gap on this page. */
export function streamId({ source, session, stream }) {
  return JSON.stringify([source, session, stream]);
}

/** Return the lanes of an answer of `lanes`, each with texts to show and times as BigInt. */
export function decodeLanes(answer) {
  const titles = shortIds(answer.lanes.map((lane) => lane.session));
  return answer.lanes.map((lane) => ({
    ...lane,
    id: laneId(lane),
    first: lane.first === null ? null : BigInt(lane.first),
    last: lane.last === null ? null : BigInt(lane.last),
    missing: lane.unknown ? null : lane.missing,
    name: `${lane.stream || "(no stream)"}${lane.substream === null ? "" : ` / ${lane.substream}`}`,
    title: titles.get(lane.session),
  })).sort((one, other) => order(one, other));
}

function order(one, other) {
  return NATURAL.compare(one.source, other.source) || NATURAL.compare(one.session, other.session)
    || NATURAL.compare(one.stream, other.stream) || NATURAL.compare(String(one.substream ?? ""), String(other.substream ?? ""));
}

/** Return the axes of lanes, as choices: wall time first. */
export function axesOf(lanes) {
  const known = new Map();
  for (const lane of lanes) known.set(lane.axis, lane);
  const own = [...known].filter(([axis]) => axis !== WALL).map(([axis, lane]) => ({ id: axis, title: `Clock of ${lane.source} · ${lane.title}`, words: lane.clock }));
  return known.has(WALL) ? [{ id: WALL, title: "Wall time" }, ...own] : own;
}

/** Return sessions of lanes, as choices. */
export function sessionsOf(lanes) {
  const known = new Map();
  for (const lane of lanes) known.set(`${lane.source}/${lane.session}`, `${lane.source} · ${lane.title}`);
  return [...known].map(([id, title]) => ({ id, title }));
}

/** Return, for the headings of sessions, how much these have: a text by source and session. */
export function subtitlesOf(lanes) {
  const sums = new Map();
  for (const lane of lanes) {
    const key = `${lane.source}\n${lane.session}`;
    const sum = sums.get(key) ?? { format: lane.format, events: 0, missing: 0, unknown: false };
    sum.events += lane.events;
    sum.missing += lane.missing ?? 0;
    sum.unknown ||= lane.missing === null;
    sums.set(key, sum);
  }
  return new Map([...sums].map(([key, { format, events, missing, unknown }]) => {
    const lacks = missing || unknown ? ` · ${missing ? `${count(missing)} missing` : ""}${unknown ? `${missing ? " and " : ""}an unknown number missing` : ""}` : "";
    return [key, `${format} · ${count(events)} events${lacks}`];
  }));
}

const SPARSE = 0.9;

/** Return what to look at first: the range of the newest lanes, if most of the time before is empty; else all of it.
 * `skipped` says whether there is more. `bounds` has the times between which lanes have anything. */
export function firstLook(lanes, bounds) {
  const ranges = lanes.filter((lane) => lane.first !== null && lane.last !== null).sort((one, other) => (one.first < other.first ? -1 : 1));
  let from = bounds.from;
  let reached = bounds.from;
  for (const { first, last } of ranges) {
    if (Number(first - reached) > SPARSE * Number(bounds.to - from)) from = first;
    if (last > reached) reached = last;
  }
  return { from, to: bounds.to > from ? bounds.to : from + 1n, skipped: from > bounds.from };
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
