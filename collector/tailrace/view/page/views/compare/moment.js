// A time as a field: typed in UTC or as nanoseconds since 1970, or picked in the browser's calendar.

import { h, icon } from "../../parts/dom.js";
import { moment } from "../../parts/text.js";

const CALENDAR = "M5 6h14v14H5zM5 10h14M9 3v4M15 3v4";
const TIME = /^(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)? ?Z?$/;
const MILLION = 1_000_000n;

/** Return the nanoseconds since 1970 of a text, as a text; empty for an empty one, null for one that is no time. */
export function nanoseconds(text) {
  const given = text.trim();
  if (!given || /^-?\d+$/.test(given)) return given;
  const [, ...parts] = TIME.exec(given) ?? [];
  if (!parts.length) return null;
  const [year, month, day, hour, minute, second] = parts.slice(0, 6).map((part) => Number(part ?? 0));
  const milliseconds = Date.UTC(year, month - 1, day, hour, minute, second);
  // Date.UTC takes 31 February for 3 March.
  if (!new Date(milliseconds).toISOString().startsWith(`${given.slice(0, 10)}T${parts[3] ?? "00"}:${parts[4] ?? "00"}:${parts[5] ?? "00"}`)) return null;
  return String(BigInt(milliseconds) * MILLION + BigInt((parts[6] ?? "").padEnd(9, "0")));
}

/** Return what a field of the type `datetime-local` takes: UTC to the millisecond. */
const local = (time) => moment(time).slice(0, 23).replace(" ", "T");

export class MomentField {
  constructor(label) {
    this._label = label;
    this._text = h("input", { type: "text", on: { input: () => this._text.setCustomValidity("") } });
    this._calendar = h("input", { type: "datetime-local", step: "0.001", tabindex: "-1", "aria-hidden": "true", on: { change: () => this._picked() } });
    this._button = h("button", { type: "button", class: "icon quiet", "aria-label": `Pick the time: ${label}`, on: { click: () => this._pick() } }, icon(CALENDAR));
    this.element = h("div", {}, h("label", {}, `${label} (UTC)`, this._text), h("span", { class: "moment" }, this._calendar, this._button));
  }

  /** Offer the times between `begins` and `ends` (nanoseconds), of which `hint` stands in the empty field; null if unknown. */
  offer(begins, ends, hint) {
    this._text.placeholder = hint ? moment(hint).slice(0, 23) : "not known";
    this._calendar.min = begins ? local(begins) : "";
    this._calendar.max = ends ? local(BigInt(ends) + MILLION) : "";
    this._hint = hint;
  }

  get value() {
    return nanoseconds(this._text.value) ?? "";
  }

  set value(time) {
    this._text.value = time ? moment(time) : "";
  }

  /** Return whether the text is a time. If not, let the browser say what is. */
  valid() {
    this._text.setCustomValidity(nanoseconds(this._text.value) === null ? "Write a time in UTC, such as 2026-11-30 18:13:03.5, or nanoseconds since 1970." : "");
    return this._text.reportValidity();
  }

  _pick() {
    const time = this.value || this._hint;
    this._calendar.value = time ? local(time) : "";
    this._calendar.showPicker();
  }

  _picked() {
    this._text.value = this._calendar.value.replace("T", " ");
    this._text.setCustomValidity("");
  }
}
