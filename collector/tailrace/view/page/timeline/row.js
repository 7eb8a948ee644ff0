// Answers about one row: its columns, its bytes, its relatives; and places of rows as texts for the address.

import { h } from "../parts/dom.js";
import { count, cut, duration, moment } from "../parts/text.js";

const WIDE = 8;
const MOST_BYTES = 4096;
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

/** Return the bytes of a record in hexadecimal and as text, or why there are none. */
export function bytesOf({ raw }) {
  if (raw.bytes === null) return h("p", { class: "note" }, raw.why);
  const bytes = Uint8Array.from(atob(raw.bytes), (each) => each.charCodeAt(0));
  const more = bytes.length > MOST_BYTES ? `\n… ${count(bytes.length - MOST_BYTES)} more bytes` : "";
  return h("pre", { class: "raw", tabindex: "0", "aria-label": `${count(bytes.length)} bytes` }, hex(bytes.subarray(0, MOST_BYTES)) + more);
}

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += WIDE) {
    const part = [...bytes.subarray(at, at + WIDE)];
    const numbers = part.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(WIDE * 3 - 1);
    const letters = part.map((each) => (each > 0x20 && each < 0x7f ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${numbers}  ${letters}`);
  }
  return lines.join("\n");
}
