// Lanes as the server lists them, by the axes on which they stand.

import { count, plural, share, visible } from "../parts/text.js";
import { PINNED } from "./order.js";

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

/** Return the lanes of an answer of `lanes` in their order, with names and groups to show, and times as BigInt. A lane's
 * `groups` are the keys of its headings: that of its node, if there are several nodes, and that of its process. `lacks` is the
 * share that its stream lacks: "?" if that is not known, "" if nothing is missing. */
export function decodeLanes(answer) {
  const several = new Set(answer.lanes.map(({ place }) => place)).size > 1;
  const events = eventsOf(answer.lanes);
  return byStream(answer.lanes).map(united).flatMap((ofStream) => ofStream.map((lane) => ({
    ...lane,
    id: laneId(lane),
    first: lane.first === null ? null : BigInt(lane.first),
    last: lane.last === null ? null : BigInt(lane.last),
    missing: lane.unknown ? null : lane.missing,
    known: lane.missing,
    lacks: lane.missing || lane.unknown ? missingShare({ ...lane, events: events.get(streamId(lane)) }) || "?" : "",
    name: `${visible(lane.thread)}${lane.substream === null || ofStream.length === 1 ? "" : ` / ${lane.substream}`}`,
    title: visible(lane.title),
    process: visible(lane.process),
    node: lane.place,
    groups: [...(several ? [`node ${lane.place ?? ""}`] : []), `process ${lane.place ?? ""} ${lane.source}\n${lane.process_id}`],
  }))).sort((one, other) => order(one, other));
}

/** Return how many events each stream has, in all its lanes. What a session lacks of unknown streams (`""`) may belong to any
 * of its streams, so that all its events count. */
function eventsOf(lanes) {
  const found = new Map();
  for (const lane of lanes) {
    const keys = new Set([streamId(lane), streamId({ ...lane, stream: "" })]);
    for (const key of keys) found.set(key, (found.get(key) ?? 0) + lane.events);
  }
  return found;
}

/** Return lanes as lists, one for each stream. */
function byStream(lanes) {
  const found = new Map();
  for (const lane of lanes) {
    const key = streamId(lane);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(lane);
  }
  return [...found.values()];
}

/** Return the lanes of a stream. The lane of a stream without events of its own, which has one substream, adds nothing but
 * what is missing: the lane of the substream takes this over. */
function united(lanes) {
  const head = lanes.find(({ substream }) => substream === null);
  const others = lanes.filter((lane) => lane !== head);
  if (!head || head.events || head.first !== null || others.length !== 1) return lanes;
  return [{ ...others[0], missing: head.missing, unknown: head.unknown }];
}

/** Return the lane that stands for the stream of a gap, or undefined: the first one of the stream. */
export function headOf(lanes, gap) {
  return lanes.find((lane) => streamId(lane) === streamId(gap));
}

/** Return which share of the events is missing, over the whole run, as text; "" if that is not known. If more may be missing
 * (`unknown`), the share is a lower bound. */
export function missingShare({ events, missing, unknown }) {
  const part = missing / (events + missing || 1);
  if (!unknown || part === 1) return share(part);
  return part < 0.001 ? "" : `≥ ${share(part)}`;
}

/** Compare two lanes: by node, source, process, and stream. Lanes of no known node come last. */
function order(one, other) {
  if ((one.node === null) !== (other.node === null)) return one.node === null ? 1 : -1;
  const compared = [(lane) => lane.node ?? "", (lane) => lane.source, (lane) => lane.process, (lane) => lane.groups.at(-1),
    (lane) => lane.stream, (lane) => String(lane.substream ?? "")];
  for (const word of compared) {
    const less = NATURAL.compare(word(one), word(other));
    if (less) return less;
  }
  return 0;
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

/** Return the headings of the groups of lanes by their keys: a title, and how much the group has. */
export function headingsOf(lanes) {
  const sums = new Map();
  for (const lane of lanes) {
    for (const key of lane.groups) {
      const process = key === lane.groups.at(-1);
      const title = key === PINNED ? "Pinned" : process ? `${lane.source} · ${lane.process}` : lane.node ?? "no known node";
      const sum = sums.get(key) ?? { title, format: process && key !== PINNED ? lane.format : null, processes: new Set(), lanes: 0, events: 0, missing: 0, unknown: false };
      sum.processes.add(`${lane.source} ${lane.process}`);
      sum.lanes += 1;
      sum.events += lane.events;
      sum.missing += lane.known;
      sum.unknown ||= lane.missing === null;
      sums.set(key, sum);
    }
  }
  return new Map([...sums].map(([key, { title, format, processes, lanes: number, events, missing, unknown }]) => {
    const lacks = [missing ? count(missing) : null, unknown ? "an unknown number" : null].filter(Boolean).join(" and ");
    const part = missing || unknown ? missingShare({ events, missing, unknown }) : "";
    const about = [format ?? plural(processes.size, "process", "processes"), plural(number, "lane"), plural(events, "event")];
    return [key, { title, subtitle: about.join(" · "), lacks: lacks ? `${lacks} missing${part ? ` · ${part} of the whole run` : ""}` : "" }];
  }));
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

/** Note for each lane `until` when the last values of its counters hold: to the last event of its session, or while a
 * collector expects more of it, to the last event of all. */
export function settle(lanes, bounds) {
  const lasts = new Map();
  const key = ({ source, session }) => `${source}\n${session}`;
  for (const lane of lanes) {
    const known = lasts.get(key(lane));
    if (lane.last !== null && (known === undefined || lane.last > known)) lasts.set(key(lane), lane.last);
  }
  for (const lane of lanes) lane.until = (lane.alive ? null : lasts.get(key(lane))) ?? bounds.to;
}
