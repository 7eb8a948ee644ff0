// What stands above the timeline: which clock and session, the search, gaps, the zoom, following.

import { afterRest, fill, h, icon } from "../parts/dom.js";
import { Places } from "../parts/places.js";
import { cut } from "../parts/text.js";
import { ORDERS } from "./order.js";

const MOST_SESSIONS = 300;
const PATHS = {
  before: "M14 6 8 12l6 6", after: "m10 6 6 6-6 6", closer: "M12 6v12M6 12h12", wider: "M6 12h12",
  whole: "M4 9V5h4M20 9V5h-4M4 15v4h4M20 15v4h-4",
};

export class Toolbar {
  /** `on` has a function for each button, and `searched(text)`, `chosen(clock)`, `filtered(session)`, `placed(changes)`,
   * `arranged(changes)`. */
  constructor(on, params, store) {
    const { q, follow } = params;
    this.search = h("input", { type: "search", placeholder: "Search a name", "aria-label": "Search a name", value: q ?? "", on: {
      input: afterRest(250, () => on.searched(this.search.value)),
      keydown: (event) => this._enter(event, on),
    } });
    this.clocks = h("select", { "aria-label": "Clock", on: { change: () => on.chosen(this.clocks.value) } });
    this.sessions = h("select", { "aria-label": "Session", on: { change: () => on.filtered(this.sessions.value) } });
    this.places = new Places(store, params, on.placed);
    this.filter = h("input", { type: "search", placeholder: "Filter lanes", "aria-label": "Filter lanes", on: {
      input: afterRest(250, () => on.arranged({ lanes: this.filter.value || null })),
      keydown: (event) => (event.key === "Escape" || event.key === "Enter") && this.filter.blur(),
    } });
    this.order = h("select", { "aria-label": "Order of lanes", on: { change: () => on.arranged({ sort: this.order.value === ORDERS[0][0] ? null : this.order.value }) } },
      ORDERS.map(([value, title]) => h("option", { value }, title)));
    this.arrange(params);
    this.found = h("span", { class: "note", role: "status" });
    this.follow = button("Follow", "Follow what arrives (f)", on.follow);
    this.fold = button("Fold empty time", "Draw long stretches without events a few pixels wide (e)", on.fold);
    this.folding([], true);
    this.following(follow);
    this.element = h("div", { class: "toolbar", role: "toolbar", "aria-label": "Timeline" },
      this.clocks, this.sessions, this.places.element,
      h("div", { class: "group" }, this.filter, this.order),
      h("div", { class: "search" }, this.search, square("before", "Previous match (N)", () => on.match(-1)), square("after", "Next match (n)", () => on.match(1))),
      this.found,
      h("div", { class: "group" }, square("before", "Previous gap (G)", () => on.gap(-1)), h("span", { class: "note" }, "gap"), square("after", "Next gap (g)", () => on.gap(1))),
      h("div", { class: "group" }, square("wider", "Wider (−)", () => on.zoom(1.6)), square("closer", "Closer (+)", () => on.zoom(1 / 1.6)), square("whole", "The whole range (0)", on.whole)),
      this.fold, this.follow);
  }

  /** Show how the lanes of an address are arranged. */
  arrange({ lanes, sort }) {
    this.filter.value = lanes ?? "";
    this.order.value = ORDERS.some(([each]) => each === sort) ? sort : ORDERS[0][0];
  }

  following(on) {
    this.follow.setAttribute("aria-pressed", String(Boolean(on)));
  }

  /** Show whether breaks are folded; without any, there is nothing to fold. */
  folding(breaks, on) {
    this.fold.hidden = !breaks.length;
    this.fold.setAttribute("aria-pressed", String(on));
  }

  /** Offer clocks (`id`, `title`) and sessions (`id`, `title`), with those that are shown. */
  offer(clocks, clock, sessions, session) {
    this.clocks.hidden = clocks.length < 2;
    options(this.clocks, clocks, clock);
    this.sessions.hidden = sessions.length < 2 && !session;
    const shown = sessions.slice(0, MOST_SESSIONS);
    const more = sessions.length > shown.length ? ` (the first ${MOST_SESSIONS} of ${sessions.length} listed)` : "";
    options(this.sessions, [{ id: "", title: `All sessions${more}` }, ...shown], session ?? "");
  }

  _enter(event, on) {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    if (event.key === "Enter") on.match(event.shiftKey ? -1 : 1);
    else this.search.blur();
  }
}

function options(select, choices, chosen) {
  const known = choices.some((each) => each.id === chosen);
  const all = known ? choices : [...choices, { id: chosen, title: chosen }];
  const signature = JSON.stringify([all, chosen]);
  if (select.dataset.signature === signature) return;
  select.dataset.signature = signature;
  fill(select, all.map(({ id, title }) => h("option", { value: id }, cut(title, 300))));
  select.value = chosen;
}

function button(text, title, click) {
  return h("button", { type: "button", title, on: { click: () => click() } }, text);
}

function square(path, title, click) {
  return h("button", { type: "button", class: "quiet icon", title, "aria-label": title, on: { click: () => click() } }, icon(PATHS[path]));
}
