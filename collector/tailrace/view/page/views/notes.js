// Notes: what people wrote about ranges of time. They are kept in the store and travel with exports.

import { format } from "../address.js";
import { get, send } from "../api.js";
import { fill, h } from "../parts/dom.js";
import { problem } from "../parts/problem.js";
import { duration, moment, visible } from "../parts/text.js";

class Notes {
  constructor(root, frame, params) {
    this._frame = frame;
    this._params = params;
    this._list = h("ul", { class: "notes" });
    this._box = h("section", { class: "panel", "aria-label": "Notes" }, h("header", {}, h("h2", {}, "All notes"), this._count = h("span", { class: "note" })), this._list);
    this._form = h("section", { class: "panel", "aria-label": "New note" });
    root.append(h("div", { class: "page" }, h("h1", {}, "Notes"), this._form, this._box));
    this.update(params);
  }

  update(params) {
    this._params = params;
    this._draw();
    this._load();
  }

  close() {
    this._closed = true;
  }

  _draw() {
    const { from, to } = this._params;
    const why = this._frame.store.notes;
    if (why !== null) {
      fill(this._form, h("div", { class: "body note" }, `No note can be kept here: ${visible(why)}`));
      return;
    }
    if (!from || !to) {
      fill(this._form, h("div", { class: "body note" }, "Select a range in the ", h("a", { href: format("timeline") }, "timeline"), " and press b to write a note about it."));
      return;
    }
    const text = h("textarea", { "aria-label": "Note", placeholder: "What happened here?", maxlength: "10000" });
    fill(this._form,
      h("header", {}, h("h2", {}, `About ${duration(BigInt(to) - BigInt(from))} from ${moment(from)}`)),
      h("div", { class: "body form" }, text, h("div", {}, h("button", { type: "button", class: "primary", on: { click: () => this._add(text.value) } }, "Keep the note"))));
    text.focus();
  }

  async _load() {
    try {
      const answer = await get("notes");
      if (this._closed) return;
      this._count.textContent = `${answer.notes.length}`;
      fill(this._list, answer.notes.length ? answer.notes.map((note) => this._item(note)) : h("li", { class: "note" }, "No note yet."));
    } catch (error) {
      fill(this._list, h("li", {}, problem(error)));
    }
  }

  _item(note) {
    const link = format("timeline", { from: note.from, to: note.to, sel: `${note.from},${note.to}`, session: note.session, source: note.source });
    return h("li", {},
      h("div", {},
        h("p", { class: "text" }, visible(note.text)),
        h("p", { class: "note" }, `${moment(note.made)} · about ${duration(BigInt(note.to) - BigInt(note.from))} from ${moment(note.from)}`)),
      h("div", { class: "row" },
        h("a", { class: "button", href: link }, "Timeline"),
        h("button", { type: "button", class: "quiet", on: { click: () => this._remove(note.id) } }, "Delete")));
  }

  async _add(text) {
    if (!text.trim()) return;
    const { from, to, source = "", session = "" } = this._params;
    await this._do(send("POST", "notes", { text, from, to, source, session }));
  }

  async _remove(id) {
    await this._do(send("DELETE", `notes?id=${encodeURIComponent(id)}`));
  }

  async _do(doing) {
    try {
      await doing;
      this._draw();
      await this._load();
    } catch (error) {
      this._form.append(h("div", { class: "body" }, problem(error)));
    }
  }
}

export function open(root, frame, params) {
  return new Notes(root, frame, params);
}
