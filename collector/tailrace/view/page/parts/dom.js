// Elements from descriptions. Texts become text nodes, so that no name in a trace is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return a new element. `attributes` may hold `on` (listeners by event), `data` and properties such as `value`. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...there(children));
  return element;
}

const there = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

/** Return an icon of one stroke: `path` is the `d` of an SVG path in a box of 24 by 24. */
export function icon(path) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "glyph");
  const stroke = document.createElementNS(SVG, "path");
  stroke.setAttribute("d", path);
  svg.append(stroke);
  return svg;
}

/** Replace an element's children. */
export function fill(element, ...children) {
  element.replaceChildren(...there(children));
  return element;
}

/** Choose a value, which becomes an option if it is none yet. */
export function choose(select, value, label = value) {
  if (![...select.options].some((each) => each.value === value)) select.append(h("option", { value }, label));
  select.value = value;
}

/** Give a canvas the pixels of its size on the screen; its context draws in CSS pixels. */
export function scale(canvas, pen) {
  const ratio = devicePixelRatio;
  const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.textBaseline = "middle";
}

/** Call a function at most once a frame, with the latest arguments. */
export function eachFrame(call) {
  let waiting = 0;
  let latest = [];
  return (...values) => {
    latest = values;
    if (waiting) return;
    waiting = requestAnimationFrame(() => {
      waiting = 0;
      call(...latest);
    });
  };
}

/** Call a function once no further call has come for some milliseconds. */
export function afterRest(milliseconds, call) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
}
