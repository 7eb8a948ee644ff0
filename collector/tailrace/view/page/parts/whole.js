// How complete an answer is. Nothing selected is not complete, and unknown is not zero.

import { h } from "./dom.js";
import { count, plural } from "./text.js";

/** Return one of `complete`, `lacking`, `unsure` and `nothing` for the `whole` of an answer. */
export function state(whole) {
  if (missing(whole) > 0 || whole.unknown > 0) return "lacking"; // even if no event arrived at all
  if (!whole.selected) return "nothing";
  return whole.complete ? "complete" : "unsure";
}

/** Return the number of events that are known to be missing. */
export function missing(whole) {
  return Object.values(whole.missing).reduce((sum, each) => sum + each, 0);
}

/** Return a short sentence: what is missing, or that nothing is. */
export function sentence(whole) {
  const lacking = missing(whole);
  switch (state(whole)) {
    case "nothing": return "No event selected";
    case "complete": return "Complete";
    case "unsure": return whole.awaited > 0 ? `${count(whole.awaited)} awaited` : "Completeness unknown";
    default:
      if (lacking === 0) return `Missing: an unknown number, in ${plural(whole.unknown, "gap")}`;
      return `${count(lacking)} missing${whole.unknown ? `, and ${plural(whole.unknown, "gap")} of unknown size` : ""}`;
  }
}

/** Return how many events a stream lacks, as text. Its completeness is null if more may be missing. */
export function missingOf({ missing: known, completeness }) {
  if (completeness !== null) return count(known);
  return known ? `${count(known)} + unknown` : "unknown";
}

/** Return a mark that stands beside figures. */
export function mark(whole, prefix = "") {
  const now = state(whole);
  return h("span", { class: "whole", data: { state: now }, title: whole.text },
    now === "lacking" ? h("span", { class: "hatch", "aria-hidden": "true" }) : null,
    prefix + sentence(whole));
}
