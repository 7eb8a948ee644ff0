// What arrives now: events a second of each source, as lines and as small ones beside what each source has.

import { Lines, spark } from "../../parts/chart.js";
import { fill, h } from "../../parts/dom.js";
import { lineColour } from "../../parts/theme.js";
import { clock, count, duration, short, visible } from "../../parts/text.js";

/** Rates come each second. After this time without any, nobody knows what arrives. */
const STALE_SECONDS = 5;

export class Arriving {
  constructor() {
    this._chart = h("div", { class: "chart" });
    this._quiet = h("p", { class: "body note" });
    this._body = h("tbody");
    this._note = h("span", { class: "note" });
    this._rates = [];
    this._sources = [];
    this.element = h("section", { class: "panel", "aria-label": "Arriving" },
      h("header", {}, h("h2", {}, "Arriving"), this._note),
      this._chart, this._quiet,
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sources" }, h("table", { class: "plain" },
        h("thead", {}, h("tr", {}, [["Source"], ["Format"], ["Sessions", 1], ["Streams", 1], ["Events", 1], ["Missing", 1], ["Newest", 1], ["Rate"]].map(([name, number]) => h("th", { scope: "col", class: number ? "number" : "" }, name)))),
        this._body)));
  }

  /** Take over the rates of a message; null when there is none yet. */
  news(latest) {
    this._rates = latest?.rates ?? [];
    const known = this._known();
    const rates = this._rates.filter((each) => each.seconds.at(-1) > -STALE_SECONDS);
    const sum = rates.reduce((all, each) => all + (each.events.at(-1) ?? 0), 0);
    const why = this._rates.length ? "no collector reports a rate now" : "no collector has reported a rate yet";
    this._note.textContent = rates.length ? `${short(Math.round(sum))} events/s now` : visible(latest?.unasked || why);
    const quiet = this._rates.every((each) => each.events.every((events) => !events));
    this._chart.hidden = quiet;
    this._quiet.hidden = !quiet || !known;
    if (quiet) this._quiet.textContent = `No event arrived in the last ${duration(Math.round(known) * 1e9)}.`;
    else this._lines();
    this._table();
  }

  /** Return for how many seconds, up to now, rates are known. */
  _known() {
    const ages = this._rates.flatMap((each) => each.seconds).map((second) => -second).sort((one, other) => one - other);
    return ages.reduce((known, age) => (age - known < STALE_SECONDS ? age : known), 0);
  }

  sources(sources) {
    this._sources = sources;
    this._table();
  }

  _colour(source) {
    return lineColour(this._rates.findIndex((each) => each.source === source));
  }

  close() {
    this._plot?.close();
  }

  _lines() {
    const names = this._rates.map((each) => visible(each.source));
    if (this._names?.join("\n") !== names.join("\n")) {
      this._plot?.close();
      this._names = names;
      this._plot = new Lines(this._chart, { labels: names, title: "Events a second by source", legend: false, last: 120 });
    }
    // Seconds are counted back from the message.
    const times = [...new Set(this._rates.flatMap((each) => each.seconds))].sort((one, other) => one - other);
    const now = Date.now() / 1000;
    this._plot.set(times.map((time) => now + time), this._rates.map((each) => {
      const known = new Map(each.seconds.map((second, index) => [second, each.events[index]]));
      return times.map((time) => known.get(time) ?? null);
    }));
  }

  _table() {
    const rates = new Map(this._rates.map((each) => [each.source, each.events]));
    fill(this._body, this._sources.map((each) => {
      const events = rates.get(each.source);
      const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
      if (events) swatch.style.background = `var(--${this._colour(each.source)})`;
      const line = h("canvas", { class: "spark", role: "img", "aria-label": events ? `${short(events.at(-1) ?? 0)} events a second` : "no rate" });
      const missing = `${count(each.missing)}${each.unknown ? " + unknown" : ""}`;
      return h("tr", {},
        h("th", { scope: "row" }, events ? swatch : null, h("a", { href: `#/overview?search=${encodeURIComponent(each.source)}` }, visible(each.source))),
        h("td", {}, each.format),
        h("td", { class: "number" }, each.open_sessions ? `${count(each.sessions)} (${count(each.open_sessions)} open)` : count(each.sessions)),
        h("td", { class: "number" }, count(each.streams)),
        h("td", { class: "number" }, count(each.events)),
        h("td", { class: each.missing || each.unknown ? "number loss" : "number" }, missing),
        h("td", { class: "number" }, clock(each.last_time)),
        h("td", {}, events ? line : h("span", { class: "note" }, "–")));
    }));
    for (const [index, each] of this._sources.entries()) {
      const line = this._body.rows[index].querySelector("canvas");
      if (line) spark(line, rates.get(each.source), this._colour(each.source));
    }
  }
}
