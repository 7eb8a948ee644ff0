// Overview: what is missing comes first, then what arrives, how the collector is, and all streams.

import { get } from "../api.js";
import { Again } from "../parts/again.js";
import { fill, h } from "../parts/dom.js";
import { problem } from "../parts/problem.js";
import { bytes, duration, plural } from "../parts/text.js";
import { Arriving } from "./overview/arriving.js";
import { health } from "./overview/health.js";
import { StreamTable } from "./overview/streams.js";
import { verdict } from "./overview/verdict.js";

class Overview {
  constructor(root, frame, params) {
    this._frame = frame;
    this._again = new Again(() => this._load());
    this._version = null;
    this._verdict = h("section", { class: "panel", "aria-live": "off" }, h("h1", { class: "body" }, "Counting what is here …"));
    this._health = h("section", { class: "panel" });
    this._arriving = new Arriving();
    this._streams = new StreamTable(frame, params);
    root.append(h("div", { class: "page" },
      h("div", { class: "head" }, h("p", { class: "note mono" }, frame.store.root), this._size = h("p", { class: "note" })),
      this._verdict,
      h("div", { class: "split" }, this._arriving.element, this._health),
      this._streams.element));
    this._streams.begin();
    this._stop = frame.live.listen((live) => this._news(live));
    this._again.want();
  }

  update(params) {
    this._streams.update(params);
  }

  close() {
    this._stop();
    this._again.close();
    this._arriving.close();
    this._streams.close();
  }

  _news({ latest, state }) {
    this._arriving.news(latest);
    fill(this._health, health(latest, state));
    if (!latest) return;
    this._showSize(latest);
    if (latest.version !== this._version) this._again.want();
  }

  async _load() {
    try {
      const answer = await get("overview");
      this._version = answer.version;
      fill(this._verdict, verdict(answer));
      this._arriving.sources(answer.sources);
      await this._streams.refresh(answer.version);
      this._showSize(this._frame.live.latest);
    } catch (error) {
      fill(this._verdict, h("div", { class: "body" }, problem(error)));
    }
  }

  _showSize(latest) {
    const { rows, files, file_bytes, version } = latest?.version ? latest : this._frame.store;
    this._size.textContent = `${plural(rows, "row")} in ${plural(files, "file")}, ${bytes(file_bytes)} · version ${version}`;
    const [first] = latest?.collectors ?? [];
    if (first) this._size.title = `the collector runs since ${duration(first.uptime_seconds * 1e9)}`;
  }
}

export function open(root, frame, params) {
  return new Overview(root, frame, params);
}
