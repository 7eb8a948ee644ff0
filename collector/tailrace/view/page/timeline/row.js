// Answers about one row: its columns and its relatives; and places of rows as texts for the address.

import { count, cut, duration, moment } from "../parts/text.js";

const TIMES = new Set(["time", "end_time"]);
const FIRST = ["name", "kind", "category", "time", "duration", "stream", "substream", "depth"];

/** Return a place as a text; a source's name may hold any character. */
export const placeText = ({ source, session, offset }) => `${source}/${session}/${offset}`;

/** Return the parameters that ask for the row of a place. */
export function placeParams(text) {
  const parts = text.split("/");
  const [session, offset] = parts.splice(-2);
  return { source: parts.join("/"), session, offset };
}

/** Return a row's name, its columns as pairs, and its `times` if these are known. */
export function columnsOf({ rows }) {
  const [row] = rows;
  if (!row) return { name: "no row", columns: [], times: null };
  const { columns } = row;
  const known = Object.entries(columns).filter(([name, value]) => value !== null && name !== "attributes");
  const place = ([name]) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  known.sort((one, other) => place(one) - place(other));
  const attributes = Object.entries(row.attributes ?? {}).map(([name, value]) => [`· ${cut(name, 60)}`, typeof value === "string" ? value : JSON.stringify(value)]);
  const time = columns.time ?? null;
  const length = columns.duration ?? "0";
  return {
    name: columns.name ?? columns.kind,
    columns: [...known.map(([name, value]) => [name, shown(name, value)]), ...attributes],
    times: time === null ? null : { from: BigInt(time), to: BigInt(time) + BigInt(length) },
  };
}

function shown(name, value) {
  if (TIMES.has(name)) return `${moment(value)} (${value})`;
  if (name === "duration") return `${duration(value)} (${count(value)} ns)`;
  return typeof value === "object" ? JSON.stringify(value) : value;
}

/** Return parent and children as texts and places. */
export function relativesOf({ parent, children, more_children: more }) {
  const text = (each) => `${cut(each.name ?? each.kind, 40)}${each.duration === null ? (each.open ? " · open" : "") : ` · ${duration(each.duration)}`}`;
  const relative = (each) => ({ text: text(each), place: placeText(each.place) });
  return { parent: parent ? [relative(parent)] : [], children: children.map(relative), more };
}
