// The overlay that lists keys, and what the marks mean.

import { h } from "./dom.js";

const KEYS = [
  ["Everywhere", [["1 … 6", "the views, from Overview to Notes"], ["t", "dark or light"], ["?", "this help"], ["Esc", "close, or clear the selection"]]],
  ["Timeline: move", [["← → a d", "earlier, later"], ["+ − w s", "closer, wider; the wheel and two fingers, too"], ["↑ ↓", "the lane above, below"], ["Home 0", "the whole range"], ["c", "fold or open the process of the lane"], ["C", "fold or open all"], ["i", "names and ids of the lane"], ["p", "pin the lane on top, or unpin it"], ["l o", "filter, order lanes"], ["e", "fold or show empty time"], ["f", "follow what arrives"]]],
  ["Timeline: find", [["/", "search a name"], ["n N", "next, previous match"], ["g G", "next, previous gap"], [", .", "previous, next span of the lane"]]],
  ["Timeline: select", [["Shift + drag", "select a range, and measure it"], ["m", "select what is in sight"], ["z", "zoom to the selection"], ["Enter", "statistics of the selection"], ["b", "write a note on the selection"]]],
];

/** Show the overlay; the browser returns the focus when it closes. */
export function showHelp() {
  const close = h("button", { class: "quiet icon", type: "button", "aria-label": "Close help", on: { click: () => dialog.close() } }, "✕");
  const dialog = h("dialog", { "aria-labelledby": "help-title", class: "help" },
    h("header", {}, h("h2", { id: "help-title" }, "Keys and marks"), close),
    h("div", { class: "body" },
      h("div", { class: "keys" }, KEYS.map(([title, keys]) => h("section", {},
        h("h3", {}, title),
        h("dl", {}, keys.map(([key, meaning]) => [h("dt", {}, key.split(" ").map((each) => each.length > 1 || !"…+".includes(each) || key.length === 1 ? [h("kbd", {}, each), " "] : `${each} `)), h("dd", {}, meaning)]))))),
      h("p", { class: "row" }, h("span", { class: "hatch", "aria-hidden": "true" }), "Events are missing here. A gap is drawn at every zoom, at least three pixels wide."),
      h("p", { class: "note" }, "The address bar holds what you see: send the link, and others see the same.")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
