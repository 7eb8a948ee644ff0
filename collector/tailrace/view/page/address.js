// The address bar holds what a page shows: `#/VIEW?name=value&…`. A link to it shows the same again.

export const DEFAULT_VIEW = "overview";

/** Return the view and its parameters (texts by name) of an address. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { view: path || DEFAULT_VIEW, params: Object.fromEntries(new URLSearchParams(query)) };
}

/** Return the address of a view. Parameters that are null, empty or missing are left out. */
export function format(view, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

export class Address {
  /** `changed(view, params)` is called for each new address that this page has not set itself. */
  constructor(changed) {
    this._changed = changed;
    this._waiting = 0;
    window.addEventListener("hashchange", () => this._read());
  }

  get current() {
    return parse(location.hash);
  }

  /** Go to a view: the browser's Back leads to the present one. */
  go(view, params = {}) {
    this._flush();
    location.hash = format(view, params);
  }

  /** Note changed parameters of the view that is shown, in place of the present address. */
  note(changes) {
    const { view, params } = this._pending ?? this.current;
    this._pending = { view, params: { ...params, ...changes } };
    // Browsers refuse more than some hundred changes of the address within seconds.
    this._waiting ||= setTimeout(() => this._flush(), 200);
  }

  _flush() {
    clearTimeout(this._waiting);
    this._waiting = 0;
    if (!this._pending) return;
    const { view, params } = this._pending;
    this._pending = null;
    history.replaceState(null, "", format(view, params));
  }

  _read() {
    this._pending = null;
    const { view, params } = this.current;
    this._changed(view, params);
  }
}
