// The page's frame: the bar, the view that the address names, the keys that work everywhere.

import { Address, DEFAULT_VIEW, format, parse } from "./address.js";
import { get, getAhead } from "./api.js";
import { Live } from "./live.js";
import { fill, h, icon } from "./parts/dom.js";
import { showHelp } from "./parts/help.js";
import { Names } from "./parts/names.js";
import { filtersOf } from "./parts/places.js";
import { problem } from "./parts/problem.js";
import { begin, isDark, onChange, toggle } from "./parts/theme.js";

const VIEWS = [
  ["overview", "Overview"],
  ["timeline", "Timeline"],
  ["statistics", "Statistics"],
  ["compare", "Compare"],
  ["sql", "SQL"],
  ["notes", "Notes"],
];
/** For some views, the question that they ask first. */
const FIRST = { overview: () => ["overview"], timeline: (params) => ["lanes", filtersOf(params)] };
const SUN = "M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4M5.6 18.4 7 17M17 7l1.4-1.4M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8";
const MOON = "M20 14.5A8 8 0 1 1 9.5 4a6.5 6.5 0 0 0 10.5 10.5Z";
const STATES = { waiting: "connecting", live: "live", still: "at rest", away: "viewer away" };

/** Return the name of a view, or the default for a name that no view has. */
const known = (name) => (VIEWS.some(([each]) => each === name) ? name : DEFAULT_VIEW);

class Frame {
  constructor() {
    this.main = document.getElementById("main");
    this.spoken = document.getElementById("spoken");
    this._shown = null;
    this._turn = 0;
  }

  async begin() {
    begin();
    this._buttons();
    fill(document.getElementById("views"), VIEWS.map(([name, title]) => h("a", { href: format(name), data: { view: name } }, title)));
    fill(this.main, h("p", { class: "page note", role: "status" }, "Opening the store …"));
    const store = get("store");
    const first = parse(location.hash);
    this._prepare(known(first.view), first.params);
    try {
      this.store = await store;
    } catch (error) {
      fill(this.main, h("div", { class: "page" }, problem(error)));
      return;
    }
    this.names = new Names();
    this.live = new Live();
    this._status();
    this.address = new Address((view, params) => this.show(view, params));
    const { view, params } = this.address.current;
    await this.show(view, params);
  }

  /** Ask a view's first question and load its modules, while the store is being opened. The question comes first, because
   * browsers send few requests at a time. */
  _prepare(view, params) {
    if (FIRST[view]) getAhead(...FIRST[view](params));
    const modules = document.querySelector(`template[data-view="${view}"]`);
    if (modules) document.head.append(modules.content);
    import(`./views/${view}.js`).catch(() => {}); // `show` raises the error.
  }

  /** Show a view, or let the one that is shown take over new parameters. */
  async show(name, params) {
    const view = known(name);
    const turn = (this._turn += 1);
    if (this._shown?.name === view) {
      this._shown.view.update(params);
      return;
    }
    const module = await import(`./views/${view}.js`);
    if (turn !== this._turn) return;
    this._shown?.view.close();
    this.main.replaceChildren();
    this.main.dataset.view = view;
    this._mark(view);
    this._shown = { name: view, view: module.open(this.main, this, params) };
  }

  /** Have screen readers read a text out. */
  announce(text) {
    this.spoken.textContent = text;
  }

  _mark(view) {
    const [, title] = VIEWS.find(([name]) => name === view);
    document.title = `${title} · ${this.store.root.split("/").filter(Boolean).at(-1) ?? "store"} · Tailrace`;
    for (const link of document.querySelectorAll("#views a")) {
      if (link.dataset.view === view) {
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
      } else {
        link.removeAttribute("aria-current");
      }
    }
  }

  _status() {
    const element = document.getElementById("live");
    this.live.listen(({ state, latest }) => {
      element.dataset.state = state;
      if (element.textContent !== STATES[state]) element.textContent = STATES[state];
      element.title = latest?.unasked ?? "";
    });
  }

  _buttons() {
    const theme = document.getElementById("theme");
    const draw = () => fill(theme, icon(isDark() ? SUN : MOON));
    onChange(draw);
    draw();
    theme.addEventListener("click", toggle);
    document.getElementById("help").addEventListener("click", showHelp);
    document.getElementById("skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.main.focus();
    });
    document.addEventListener("keydown", (event) => this._key(event));
  }

  _key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.composedPath()[0];
    if (target.closest?.("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
    if (event.key === "?") showHelp();
    else if (event.key === "t") toggle();
    else if (VIEWS[Number(event.key) - 1]) this.address.go(VIEWS[Number(event.key) - 1][0]);
    else if (!this._shown?.view.key?.(event)) return;
    event.preventDefault();
  }
}

new Frame().begin();
