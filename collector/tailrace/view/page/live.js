// One stream of news from the server for the whole page. A hidden page closes it: browsers allow few at a time.

export class Live {
  constructor() {
    this._listeners = new Set();
    this._source = null;
    this.latest = null;
    this.state = "waiting";
    document.addEventListener("visibilitychange", () => (document.hidden ? this._close() : this._open()));
    window.addEventListener("pagehide", () => this._close());
    this._open();
  }

  /** Call a function with each message, and at once with the latest. Return a function that ends this. */
  listen(listener) {
    this._listeners.add(listener);
    listener(this);
    return () => this._listeners.delete(listener);
  }

  _open() {
    if (this._source || document.hidden) return;
    this._source = new EventSource("api/v1/live");
    this._source.addEventListener("news", (event) => {
      this.latest = JSON.parse(event.data);
      this._become(this.latest.collectors.length ? "live" : "still");
    });
    this._source.addEventListener("error", () => this._become("away"));
  }

  _close() {
    this._source?.close();
    this._source = null;
  }

  _become(state) {
    this.state = state;
    for (const listener of this._listeners) listener(this);
  }
}
