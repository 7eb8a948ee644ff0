// The two runs that are compared, as forms: a session, a range of time, or another store.

import { choose, h } from "../../parts/dom.js";
import { Places } from "../../parts/places.js";
import { cut, moment } from "../../parts/text.js";
import { MomentField } from "./moment.js";

/** A title that names the second at which its session was opened, as those of equal programs do. */
const DATED = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/;
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
    this._sessions = [];
    this._certified = store.certified.some((each) => each.length);
    this._forms = ["a", "b"].map((name) => this._form(name));
    this.element = h("div", { class: "sides" }, this._forms.map((each) => each.element));
  }

  /** Offer sessions to choose from, by their names. A name without a time is followed by the time of the first event. */
  offer(sessions) {
    this._sessions = sessions;
    for (const { session } of this._forms) {
      session.append(...sessions.map((each) => h("option", { value: each.session }, cut(nameOf(each), 300))));
    }
  }

  show(params) {
    for (const form of this._forms) {
      const side = sideOf(form.name, params[form.name]);
      form.store.value = side[`${form.name}_store`] ?? (form.name === "b" && this._stores.length > 1 ? "1" : "0");
      choose(form.session, side[`${form.name}_session`] ?? "");
      this._offerTimes(form);
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
    return { a, b, ...Object.fromEntries(places) };
  }

  /** Return whether all times can be read. If not, let the browser show which one cannot. */
  valid() {
    return this._forms.every(({ from, to }) => from.valid() && to.valid());
  }

  /** Offer the times of the chosen session, or of all. Those of sessions in other stores are not known. */
  _offerTimes({ store, session, from, to }) {
    const chosen = (store.value === "0" ? this._sessions : []).filter((each) => each.begins && (!session.value || session.value === each.session));
    const first = outermost(chosen.map((each) => each.begins), (one, other) => one < other);
    const last = outermost(chosen.map((each) => each.ends), (one, other) => one > other);
    from.offer(first, last, first);
    to.offer(first, last, last);
  }

  _form(name) {
    const offer = { change: () => this._offerTimes(form) };
    const store = h("select", { on: offer }, this._stores.map((each, index) => h("option", { value: String(index) }, each)));
    const session = h("select", { on: offer }, h("option", { value: "" }, this._certified ? "All sessions, or those of the certificate" : "All sessions"));
    const [from, to] = ["From", "To"].map((label) => new MomentField(label));
    const known = this._stores.length > 1 ? { ranks: [], nodes: [], jobs: [] } : this._store;  // those of another store are not
    const places = new Places(known, {}, () => {});
    const element = h("fieldset", {},
      h("legend", {}, name === "a" ? "A, the run before" : "B, the run after"),
      this._stores.length > 1 ? h("label", {}, "Store", store) : null,
      h("label", {}, "Session", session),
      places.element,
      h("div", { class: "sides" }, from.element, to.element));
    const form = { name, element, store, session, from, to, places };
    return form;
  }
}

/** Return the first or the last of some times, or null if one of them is unknown. */
function outermost(times, isBeyond) {
  if (!times.length || times.includes(null)) return null;
  return times.map(BigInt).reduce((one, other) => (isBeyond(one, other) ? one : other));
}

function nameOf({ source, title, begins }) {
  const time = DATED.test(title) ? [] : [begins ? moment(begins).slice(0, 19) : "no wall time"];
  return [source, title, ...time].join(" · ");
}
