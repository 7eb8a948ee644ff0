// Do something again when there is news: one at a time, and with rests, so that a busy server gets no busier.

const LEAST_MILLISECONDS = 500;
const REST = 1.5;

export class Again {
  /** `work` returns a promise. After it has taken some time, it rests for `REST` times as long. */
  constructor(work) {
    this._work = work;
    this._running = false;
    this._wanted = false;
    this._timer = 0;
    this._closed = false;
  }

  /** Do the work now or, if it is being done or rests, once more afterwards. */
  want() {
    if (this._closed) return;
    if (this._running || this._timer) this._wanted = true;
    else this._run();
  }

  close() {
    this._closed = true;
    clearTimeout(this._timer);
  }

  async _run() {
    this._running = true;
    this._wanted = false;
    const began = performance.now();
    try {
      await this._work();
    } finally {
      this._running = false;
    }
    if (this._closed) return;
    const took = performance.now() - began;
    this._timer = setTimeout(() => {
      this._timer = 0;
      if (this._wanted) this._run();
    }, Math.max(LEAST_MILLISECONDS, took * REST));
  }
}
