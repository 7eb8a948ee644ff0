// Ranks, nodes and jobs as filters: what the address names, and the choices for it.

import { choose, h } from "./dom.js";
import { cut } from "./text.js";

const KINDS = [["rank", "ranks", "Rank"], ["node", "nodes", "Node"], ["job", "jobs", "Job"]];

/** Return the parameters of an address that name ranks, nodes and jobs: those of questions and of other views. */
export function placesOf(params) {
  return Object.fromEntries(KINDS.map(([name]) => [name, params[name] || null]));
}

/** Return the same of one side of a comparison, `a` or `b`, whose parameters begin with its name. */
export function placesOfSide(side, params) {
  return Object.fromEntries(KINDS.map(([name]) => [`${side}_${name}`, params[`${side}_${name}`] || null]));
}

/** Return the parameters of an address that narrow questions to some lanes: a session, and places. */
export function filtersOf(params) {
  return { session: params.session || null, source: params.source || null, ...placesOf(params) };
}

/** Return the ranks, nodes and jobs of parameters as a text; empty if there are none. */
export function placesText(params) {
  return KINDS.filter(([name]) => params[name]).map(([name]) => `${name} ${cut(params[name], 40)}`).join(" · ");
}

export class Places {
  /** `chosen(changes)` is called with the parameter that a person has changed. A store without jobs shows nothing. */
  constructor(store, params, chosen) {
    this._selects = KINDS.map(([name, many, title]) => {
      const select = h("select", { "aria-label": title, on: { change: () => chosen({ [name]: select.value || null }) } },
        h("option", { value: "" }, `All ${many}`),
        store[many].map((each) => h("option", { value: String(each) }, cut(`${name} ${each}`, 60))));
      return [name, select, store[many].length];
    });
    this.element = h("span", { class: "places" }, this._selects.map(([, select]) => select));
    this.show(params);
  }

  /** Return what is chosen, as parameters. */
  get params() {
    return Object.fromEntries(this._selects.map(([name, select]) => [name, select.value || null]));
  }

  show(params) {
    for (const [name, select, choices] of this._selects) {
      const value = params[name] ?? "";
      choose(select, value, cut(`${name} ${value}`, 60));
      select.hidden = !choices && !value;
    }
    this.element.hidden = this._selects.every(([, select]) => select.hidden);
  }
}
