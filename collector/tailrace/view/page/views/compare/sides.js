// The two runs that are compared, as forms: a session, a range of time, or another store.

import { choose, h } from "../../parts/dom.js";
import { Places } from "../../parts/places.js";
import { cut, moment } from "../../parts/text.js";

const TEXT = /^(?:(\d+):)?(.*?)(?:@(-?\d+)?-(-?\d+)?)?$/s;

/** Return the parameters of a side from its text in the address: `STORE:SESSION@FROM-TO`, each part optional. */
export function sideOf(name, text) {
  const [, store, session, from, to] = TEXT.exec(text ?? "") ?? [];
  return { [`${name}_store`]: store, [`${name}_session`]: session || undefined, [`${name}_from`]: from, [`${name}_to`]: to };
}

export class Sides {
  constructor(store) {
    this._store = store;
    this._stores = store.stores;
    this._certified = store.certified.some((each) => each.length);
    this._forms = ["a", "b"].map((name) => this._form(name));
    this._align = h("input", { type: "text", placeholder: "both begin at the first event of this name", "aria-label": "Align at the first event of this name" });
    this.element = h("div", { class: "form" },
      h("div", { class: "sides" }, this._forms.map((each) => each.element)),
      h("label", { class: "field" }, "Align at ", this._align));
  }

  /** Offer sessions to choose from, by their names and the times at which they begin. */
  offer(sessions) {
    for (const { session } of this._forms) {
      session.append(...sessions.map((each) => h("option", { value: each.session }, cut(`${each.source} · ${each.title} · ${each.begins ? moment(each.begins).slice(0, 19) : "no wall time"}`, 300))));
    }
  }

  show(params) {
    this._align.value = params.align ?? "";
    for (const form of this._forms) {
      const side = sideOf(form.name, params[form.name]);
      form.store.value = side[`${form.name}_store`] ?? (form.name === "b" && this._stores.length > 1 ? "1" : "0");
      choose(form.session, side[`${form.name}_session`] ?? "");
      form.from.value = side[`${form.name}_from`] ?? "";
      form.to.value = side[`${form.name}_to`] ?? "";
      const [rank, node, job] = ["rank", "node", "job"].map((each) => params[`${form.name}_${each}`]);
      form.places.show({ rank, node, job });
    }
  }

  /** Return the contents of the forms, as parameters of the address. */
  get params() {
    const text = ({ store, session, from, to }) => {
      const range = from.value || to.value || session.value.includes("@") ? `@${from.value}-${to.value}` : "";
      return `${store.value}:${session.value}${range}`;
    };
    const [a, b] = this._forms.map(text);
    const places = this._forms.flatMap((form) => Object.entries(form.places.params).map(([name, value]) => [`${form.name}_${name}`, value]));
    return { a, b, align: this._align.value, ...Object.fromEntries(places) };
  }

  /** Return whether all times are numbers. If not, let the browser show which one is not. */
  valid() {
    return this._forms.every(({ from, to }) => from.reportValidity() && to.reportValidity());
  }

  _form(name) {
    const store = h("select", {}, this._stores.map((each, index) => h("option", { value: String(index) }, each)));
    const session = h("select", {}, h("option", { value: "" }, this._certified ? "All sessions, or those of the certificate" : "All sessions"));
    const [from, to] = ["first", "last"].map((word) => h("input", { type: "text", inputmode: "numeric", pattern: "-?[0-9]+", placeholder: `${word} nanosecond` }));
    const known = this._stores.length > 1 ? { ranks: [], nodes: [], jobs: [] } : this._store;  // those of another store are not
    const places = new Places(known, {}, () => {});
    const element = h("fieldset", {},
      h("legend", {}, name === "a" ? "A, the run before" : "B, the run after"),
      this._stores.length > 1 ? h("label", {}, "Store", store) : null,
      h("label", {}, "Session", session),
      places.element,
      h("div", { class: "sides" }, h("label", {}, "From", from), h("label", {}, "To", to)));
    return { name, element, store, session, from, to, places };
  }
}
