// How the running collectors are, in their own words.

import { h } from "../../parts/dom.js";
import { bytes, duration, visible } from "../../parts/text.js";

/** Return the parts of the panel. `latest` is null before the first message. */
export function health(latest, state) {
  const running = latest?.collectors ?? [];
  if (!running.length) {
    const why = state === "away" ? "The viewer does not answer. This page asks again by itself." : latest?.unasked || "Waiting for the first message …";
    return [header("Collector", "nothing", "not running"), h("div", { class: "body note" }, visible(why))];
  }
  const silent = latest.unasked ? h("div", { class: "body note" }, visible(latest.unasked)) : null;
  return [...running.flatMap((each) => collector(each, running.length > 1)), silent];
}

function collector(now, named) {
  const behind = now.behind_seconds === null ? "unknown" : `${duration(Math.round(now.behind_seconds * 10) * 1e8)} ago`;
  const conditions = Object.entries(now.conditions);
  return [
    header(named ? `Collector ${now.name}` : "Collector", now.state === "ok" ? "complete" : "unsure", now.state),
    conditions.length ? h("div", { class: "body" }, conditions.map(([name, text]) => h("p", {}, h("strong", {}, name), ` ${visible(text)}`))) : null,
    h("dl", { class: "tiles" },
      tile("Heartbeat in the table", behind),
      tile("Not decoded yet", bytes(now.undecoded_bytes)),
      tile("Not committed yet", bytes(now.uncommitted_bytes)),
      tile("Running for", duration(Math.round(now.uptime_seconds) * 1e9)),
      tile("Process", String(now.pid))),
  ];
}

function header(title, kind, text) {
  return h("header", {}, h("h2", {}, title), h("span", { class: "whole", data: { state: kind } }, text));
}

function tile(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
