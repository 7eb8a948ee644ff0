// Search pages that are opened from a disk, where browsers start no workers: run the worker's script in a
// hidden frame. As with a worker, messages arrive later, in a task of their own.
if (location.protocol === "file:") {
  window.Worker = class {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      this.#frame.hidden = true;
      this.#ready = new Promise((ready) => {
        this.#frame.onload = () => {
          const inner = this.#frame.contentWindow;
          inner.postMessage = (data) => {
            const copy = structuredClone(data);
            setTimeout(() => this.onmessage?.({ data: copy }));
          };
          const script = inner.document.createElement("script");
          script.onload = () => ready(inner);
          script.onerror = () => this.onerror?.(new ErrorEvent("error", { message: `${url} cannot be read` }));
          script.src = new URL(url, location.href).href;
          inner.document.body.append(script);
        };
      });
      document.body.append(this.#frame);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      this.#ready.then((inner) => setTimeout(() => inner.onmessage({ data: copy })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
