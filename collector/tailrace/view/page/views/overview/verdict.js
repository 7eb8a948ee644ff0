// The first thing one sees: whether anything is missing, for which reason, and where most.

import { h, icon } from "../../parts/dom.js";
import { count, share, visible } from "../../parts/text.js";
import { gaps, missing, sentence, state } from "../../parts/whole.js";

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
  if (now === "complete") return `All ${count(events)} events are here`;
  if (now === "unsure") return `${count(events)} events; ${sentence(overview.whole).toLowerCase()}`;
  const lacking = missing(overview.whole);
  return lacking ? `${count(lacking)} ${lacking === 1 ? "event is" : "events are"} missing${overview.whole.unknown ? `, and more in ${gaps(overview.whole.unknown)} of unknown size` : ""}` : sentence(overview.whole);
}

/** Return which part of all events is here. An unknown number of missing events leaves only an upper bound, or none. */
function here(events, lacking, unknown) {
  const part = share(events / (events + lacking));
  if (!unknown) return `${part} of ${count(events + lacking)} events are here`;
  if (!lacking) return `${count(events)} events are here, of an unknown number`;
  return `at most ${part} of all events are here: ${count(events)} of ${count(events + lacking)} or more`;
}

function reasons(overview) {
  const most = Math.max(...overview.missing.map((each) => each.missing), 1);
  return h("div", { class: "losses", role: "list", "aria-label": "Missing events by source and reason" }, overview.missing.map((each) => {
    const part = h("span", { class: "part" });
    part.style.width = `${Math.max(2, (each.missing / most) * 100)}%`;
    const number = each.unknown ? `${each.missing ? `${count(each.missing)} + ` : ""}${count(each.unknown)} unknown` : count(each.missing);
    return h("span", { role: "listitem" }, h("a", { href: `#/overview?search=${encodeURIComponent(each.source)}&sort=missing`, title: "show these streams" },
      h("span", { class: "name" }, `${visible(each.source)} · ${each.reason}`),
      h("span", { class: "track", "aria-hidden": "true" }, part),
      h("span", { class: "number" }, number)));
  }));
}

function worst(streams) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Streams that lack most" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, ["Streams that lack most", "Stream", "Events", "Missing", "Completeness"].map((each, index) => h("th", { scope: "col", class: index > 1 ? "number" : "" }, each)))),
    h("tbody", {}, streams.slice(0, 5).map((each) => h("tr", {},
      h("th", { scope: "row", title: `session ${each.session}` }, `${visible(each.source)} · ${visible(each.title)}`),
      h("td", { title: `stream ${each.stream || "unknown"}` }, visible(each.thread)),
      h("td", { class: "number" }, count(each.events)),
      h("td", { class: "number loss" }, count(each.missing)),
      h("td", { class: "number" }, share(each.completeness)))))));
}
