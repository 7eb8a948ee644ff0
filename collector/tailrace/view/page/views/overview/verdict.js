// The first thing one sees: whether anything is missing, for which reason, and where most.

import { h, icon } from "../../parts/dom.js";
import { count, plural, share, visible } from "../../parts/text.js";
import { missing, missingOf, sentence, state } from "../../parts/whole.js";

const SIGNS = { complete: "M5 12.5 10 17 19 7.5", unsure: "M12 7v6M12 16.5v.5", nothing: "M6 12h12", lacking: "M0 0" };

/** Return the parts of the panel for an answer of `overview`. */
export function verdict(overview) {
  const now = state(overview.whole);
  const events = overview.sources.reduce((sum, each) => sum + each.events, 0);
  const lacking = missing(overview.whole);
  return [
    h("div", { class: "verdict", data: { state: now } },
      h("span", { class: "sign", "aria-hidden": "true" }, icon(SIGNS[now])),
      h("h1", { title: overview.whole.text }, title(now, overview, events)),
      h("p", {}, now === "lacking" ? here(events, lacking, overview.whole.unknown) : overview.whole.text)),
    now === "lacking" ? reasons(overview) : null,
    now === "lacking" && overview.worst.length ? worst(overview.worst) : null,
  ];
}

function title(now, overview, events) {
  if (now === "nothing") return "No events yet";
  if (now === "complete") return events === 1 ? "The only event is here" : `All ${count(events)} events are here`;
  if (now === "unsure") return `${plural(events, "event")}; ${sentence(overview.whole).toLowerCase()}`;
  const lacking = missing(overview.whole);
  return lacking ? `${plural(lacking, "event is", "events are")} missing${overview.whole.unknown ? `, and more in ${plural(overview.whole.unknown, "gap")} of unknown size` : ""}` : sentence(overview.whole);
}

/** Return which part of all events is here. An unknown number of missing events leaves only an upper bound, or none. */
function here(events, lacking, unknown) {
  const part = share(events / (events + lacking));
  if (!unknown) return `${part} of ${count(events + lacking)} events are here`;
  if (!lacking) return `${plural(events, "event is", "events are")} here, of an unknown number`;
  return `at most ${part} of all events are here: ${count(events)} of ${count(events + lacking)} or more`;
}

/** Return a table of what is missing by source and cause. Bars compare its rows, so a single row has none. */
function reasons({ missing: lines }) {
  const most = Math.max(...lines.map((each) => each.missing), 1);
  const row = ({ source, reason, because, missing: lost, unknown }) => {
    const part = h("span", { class: "part" });
    part.style.width = `${Math.max(2, (lost / most) * 100)}%`;
    const number = unknown ? `${lost ? `${count(lost)} + ` : ""}${plural(unknown, "gap")} of unknown size` : count(lost);
    return h("tr", {},
      h("th", { scope: "row" }, h("a", { href: `#/overview?search=${encodeURIComponent(source)}&sort=missing`, title: "show these streams" }, visible(source))),
      h("td", { title: reason }, because),
      h("td", { class: "number loss" }, number),
      h("td", { class: "track", "aria-hidden": "true" }, lines.length > 1 && lost ? part : null));
  };
  return h("div", { class: "scroll losses", tabindex: "0", role: "region", "aria-label": "Missing events by source and cause" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Source"), h("th", { scope: "col" }, "Cause"), h("th", { scope: "col", class: "number" }, "Missing events"), h("td", { class: "track", "aria-hidden": "true" }))),
    h("tbody", {}, lines.map(row))));
}

function worst(streams) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Streams that lack most" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, ["Streams that lack most", "Stream", "Events", "Missing", "Completeness"].map((each, index) => h("th", { scope: "col", class: index > 1 ? "number" : "" }, each)))),
    h("tbody", {}, streams.slice(0, 5).map((each) => h("tr", {},
      h("th", { scope: "row", title: `session ${each.session}` }, `${visible(each.source)} · ${visible(each.title)}`),
      h("td", { title: `stream ${each.stream || "unknown"}` }, visible(each.thread)),
      h("td", { class: "number" }, count(each.events)),
      h("td", { class: "number loss" }, missingOf(each)),
      h("td", { class: "number" }, share(each.completeness)))))));
}
