// What went wrong, where, and what to do.

import { h } from "./dom.js";
import { visible } from "./text.js";

/** Return a box for an error. An error of the page itself shows its message, too. */
export function problem(error) {
  return h("div", { class: "problem", role: "alert" },
    h("strong", {}, visible(error.message)),
    error.where ? h("p", { class: "mono" }, visible(error.where)) : null,
    error.todo ? h("p", {}, visible(error.todo)) : null);
}
