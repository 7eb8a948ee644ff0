// Which groups of lanes are folded, as a text for the address: `all`, then short marks of the groups that are not as the rest.

import { hash } from "../parts/theme.js";

const ALL = "all";
const mark = (key) => hash(key).toString(36);

export class Folds {
  constructor(text = "") {
    this.read(text);
  }

  read(text) {
    const marks = (text ?? "").split(",").filter(Boolean);
    this._all = marks[0] === ALL;
    this._others = new Set(this._all ? marks.slice(1) : marks);
  }

  has(key) {
    return this._all !== this._others.has(mark(key));
  }

  set(key, folded) {
    if (this._all === folded) this._others.delete(mark(key));
    else this._others.add(mark(key));
  }

  /** Fold all groups, or none. */
  setAll(folded) {
    this._all = folded;
    this._others.clear();
  }

  get text() {
    return [...(this._all ? [ALL] : []), ...this._others].join(",");
  }
}
