// How the running collector is, in its own words.

import { h } from "../../parts/dom.js";
import { bytes, duration, visible } from "../../parts/text.js";

/** Return the parts of the panel. `latest` is null before the first message. */
export function health(latest, state) {
  const now = latest?.health;
  const head = h("header", {}, h("h2", {}, "Collector"), h("span", { class: "whole", data: { state: now ? (now.state === "ok" ? "complete" : "unsure") : "nothing" } }, now?.state ?? "not running"));
  if (!now) {
    const why = state === "away" ? "The viewer does not answer. This page asks again by itself." : latest?.unasked || "Waiting for the first message …";
    return [head, h("div", { class: "body note" }, visible(why))];
  }
  const behind = now.behind_seconds === null ? "unknown" : `${duration(Math.round(now.behind_seconds * 10) * 1e8)} ago`;
  const conditions = Object.entries(now.conditions);
  return [
    head,
    conditions.length ? h("div", { class: "body" }, conditions.map(([name, text]) => h("p", {}, h("strong", {}, name), ` ${visible(text)}`))) : null,
    h("dl", { class: "tiles" },
      tile("Heartbeat in the table", behind),
      tile("Not decoded yet", bytes(now.undecoded_bytes)),
      tile("Not committed yet", bytes(now.uncommitted_bytes)),
      tile("Running for", duration(Math.round(now.uptime_seconds) * 1e9)),
      tile("Process", String(now.pid))),
  ];
}

function tile(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
