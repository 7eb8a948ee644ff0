// Questions to the server. An error has what is wrong, where, and what to do, in the words of the server.

const ROOT = "api/v1/";
const ahead = new Map();

export class Problem extends Error {
  constructor({ what, where = "", todo = "" }) {
    super(what);
    this.where = where;
    this.todo = todo;
  }
}

/** Return the address of a question. A parameter may be a list; null is left out. */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") query.append(name, String(each));
    }
  }
  const text = query.toString();
  return `${ROOT}${path}${text ? `?${text}` : ""}`;
}

/** Ask, and return the answer. `signal` aborts the question. Raise `Problem`. */
export async function get(path, params = {}, signal = undefined) {
  const target = address(path, params);
  const begun = ahead.get(target);
  ahead.delete(target);
  return begun ?? answer(await reach(target, { signal }));
}

/** Ask before the part of the page that needs the answer is loaded. The next `get` of the same question returns it. */
export function getAhead(path, params = {}) {
  const begun = get(path, params);
  begun.catch(() => {}); // That `get` raises the problem.
  ahead.set(address(path, params), begun);
}

/** Send a body, if given, and return the answer. Raise `Problem`. */
export async function send(method, path, body = undefined) {
  return answer(await reach(ROOT + path, request(method, body)));
}

/** Send a body, and return the answer's text. Raise `Problem`. */
export async function sendForText(path, body) {
  const response = await reach(ROOT + path, request("POST", body));
  if (!response.ok) await answer(response);
  return response.text();
}

function request(method, body) {
  return body === undefined ? { method } : { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

async function reach(target, options) {
  try {
    return await fetch(target, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ what: "the viewer does not answer", where: location.host, todo: "see whether `tailrace view` still runs" });
  }
}

async function answer(response) {
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  throw new Problem(body?.error ?? { what: `the viewer answers ${response.status}`, where: response.url });
}

/** Questions of one kind, among which only the latest counts: a new one aborts the one before. */
export class Latest {
  constructor() {
    this._controller = null;
  }

  /** Return the answer, or undefined when a later question has come. Raise `Problem`. */
  async ask(path, params = {}) {
    this.cancel();
    const controller = new AbortController();
    this._controller = controller;
    try {
      const body = await get(path, params, controller.signal);
      return controller.signal.aborted ? undefined : body;
    } catch (error) {
      if (controller.signal.aborted) return undefined;
      throw error;
    }
  }

  cancel() {
    this._controller?.abort();
    this._controller = null;
  }
}
