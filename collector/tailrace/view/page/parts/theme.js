// Light or dark: as the system is set, unless a person has chosen. Canvases ask here for colours.

const KEPT = "tailrace.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();
let palette = null;

/** Apply what was chosen earlier in this browser. */
export function begin() {
  const chosen = localStorage.getItem(KEPT);
  if (chosen) document.documentElement.dataset.theme = chosen;
  system.addEventListener("change", changed);
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

/** Change to the other one. A choice that equals the system's is no longer kept. */
export function toggle() {
  const wanted = isDark() ? "light" : "dark";
  if ((wanted === "dark") === system.matches) {
    localStorage.removeItem(KEPT);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(KEPT, wanted);
    document.documentElement.dataset.theme = wanted;
  }
  changed();
}

/** Call a function after each change. Return a function that ends this. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  palette = null;
  for (const listener of listeners) listener();
}

/** Return the colours of theme.css as `rgb()`, by their names without dashes: `colours().ink`, `colours()["span-1"]`. */
export function colours() {
  palette ??= new Proxy({}, { get: (known, name) => (known[name] ??= resolve(name)) });
  return palette;
}

function resolve(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Return the canvas font of some pixels. */
export function font(pixels, weight = 400) {
  return `${weight} ${pixels}px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
}

const SPANS = 16;
const LINES = 6;

/** Return a number of 32 bits that is the same for the same text, on every page and in every run. */
export function hash(text) {
  let value = 2166136261;
  for (let index = 0; index < text.length; index += 1) value = Math.imul(value ^ text.charCodeAt(index), 16777619);
  return (value ^ (value >>> 15)) >>> 0;
}

export const spanColour = (name) => `span-${(hash(name) % SPANS) + 1}`;
export const lineColour = (index) => `line-${(index % LINES) + 1}`;
