// A range of time as a form: what the address names, or all of the store.

import { h } from "./dom.js";
import { placesText } from "./places.js";
import { duration, moment } from "./text.js";

/** Return a line that states the range, with a link to the timeline and a button that clears it. */
export function rangeLine({ from, to, session, source, ...places }, names, { cleared, timeline }) {
  const parts = [];
  if (from && to) parts.push(`${moment(from)} + ${duration(BigInt(to) - BigInt(from))}`);
  else if (from || to) parts.push(from ? `from ${moment(from)}` : `to ${moment(to)}`);
  if (source) parts.push(source);
  if (session) parts.push(source ? names.session({ source, session }) : names.sessionOf(session));
  if (placesText(places)) parts.push(placesText(places));
  return h("div", { class: "row" },
    h("span", {}, parts.length ? parts.join(" · ") : "The whole store"),
    parts.length ? h("button", { type: "button", class: "quiet", on: { click: cleared } }, "Clear") : null,
    h("a", { class: "button", href: timeline }, "Timeline"));
}
