// Numbers, durations and times as people read them. Times and durations of nanoseconds are BigInt.

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const UNITS = [
  [86_400_000_000_000, "d"],
  [3_600_000_000_000, "h"],
  [60_000_000_000, "min"],
  [1_000_000_000, "s"],
  [1_000_000, "ms"],
  [1_000, "µs"],
  [1, "ns"],
];
const NONE = "–";

/** Return a number in groups of three digits; null is unknown, and no zero. */
export function count(number) {
  return number === null || number === undefined ? NONE : GROUPED.format(typeof number === "string" ? BigInt(number) : number);
}

/** Return a number with its noun: "1 event", "2 events". */
export function plural(number, noun, many = `${noun}s`) {
  return `${count(number)} ${Number(number) === 1 ? noun : many}`;
}

/** Return a number with three digits and a unit: 1.24 M. */
export function short(number) {
  if (number === null || number === undefined) return NONE;
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= size) return `${digits(number / size)} ${unit}`;
  }
  return Number.isInteger(number) ? String(number) : digits(number);
}

function digits(number) {
  const size = Math.abs(number);
  return number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** Return a duration of nanoseconds (BigInt, text or number) with four significant digits, or as many as said. */
export function duration(nanoseconds, significant = 4) {
  if (nanoseconds === null || nanoseconds === undefined) return NONE;
  const number = Number(nanoseconds);
  const size = Math.abs(number);
  if (size === 0) return "0";
  const [scale, unit] = UNITS.find(([each]) => size >= each) ?? UNITS.at(-1);
  const value = number / scale;
  return `${Number(value.toPrecision(significant)).toLocaleString("en", { maximumFractionDigits: 3 })} ${unit}`;
}

/** Return a length of time in a unit of `ns` or `ticks`. */
export function length(value, unit) {
  if (value === null || value === undefined) return NONE;
  return unit === "ns" ? duration(value) : plural(value, "tick");
}

/** Return whether lost spans leave a figure more than one value. */
export function isWide(bounds) {
  return Boolean(bounds) && (bounds.low === null || bounds.low !== bounds.high);
}

const SIGNS = { least: "≥", most: "≤", none: "unknown" };
const WORDS = { least: "at least", most: "at most", none: "cannot be told" };

/** Return a figure as text: the interval in which it lies where spans are missing (`≥ …`, `≤ …`, two values or
 * `unknown`), else its value. */
export function figureOf(value, bounds, spell) {
  return isWide(bounds) ? interval(bounds, spell, SIGNS) : spell(value);
}

/** Return the same in words, with the reason; nothing for a figure that is certain. */
export function figureWords(bounds, spell) {
  return isWide(bounds) ? `${interval(bounds, spell, WORDS)}, because spans are missing` : "";
}

function interval({ low, high }, spell, { least, most, none }) {
  const [lowest, highest] = [low, high].map((each) => (each === null ? null : spell(each)));
  const bounded = low !== null && (Number(low) !== 0 || lowest === highest);
  if (high === null) return bounded ? `${least} ${lowest}` : none;
  if (!bounded) return `${most} ${highest}`;
  if (lowest === highest) return highest;
  const [value, unit] = lowest.split(" ");
  return `${unit && highest.endsWith(` ${unit}`) ? value : lowest}–${highest}`;
}

export function bytes(number) {
  if (number === null || number === undefined) return NONE;
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (number >= size) return `${digits(number / size)} ${unit}`;
  }
  return `${number} B`;
}

/** Return a part of a whole, never rounded up to all of it, nor down to nothing. */
export function share(part) {
  if (part === null || part === undefined) return "unknown";
  if (part >= 1) return "100 %";
  const percent = part * 100;
  if (percent > 0 && percent < 0.05) return "< 0.1 %";
  const shown = percent > 99.9 ? Math.min(percent, 99.999).toFixed(3) : percent.toFixed(1);
  return `${shown} %`;
}

const MILLION = 1_000_000n;

/** Return Unix nanoseconds as date, time of day and nine digits, in UTC. */
export function moment(nanoseconds) {
  if (nanoseconds === null || nanoseconds === undefined) return NONE;
  const { date, time, fraction } = split(BigInt(nanoseconds));
  return `${date} ${time}.${fraction}`;
}

/** Return Unix nanoseconds as a time of day with milliseconds. */
export function clock(nanoseconds) {
  if (nanoseconds === null || nanoseconds === undefined) return NONE;
  const { time, fraction } = split(BigInt(nanoseconds));
  return `${time}.${fraction.slice(0, 3)}`;
}

/** Return the parts of a time: date, time of day to the second, nine digits of its fraction. */
export function split(nanoseconds) {
  const millisecond = floor(nanoseconds, MILLION);
  const date = new Date(Number(millisecond));
  const iso = Number.isNaN(date.getTime()) ? `${nanoseconds} ns` : date.toISOString();
  const [day, rest = ""] = iso.split("T");
  const below = String(nanoseconds - floor(nanoseconds, 1000n * MILLION) * 1000n * MILLION).padStart(9, "0");
  return { date: day, time: rest.slice(0, 8), fraction: below };
}

/** Divide, rounding towards the past also before 1970. */
export function floor(value, divisor) {
  const quotient = value / divisor;
  return value % divisor < 0n ? quotient - 1n : quotient;
}

/** Return a text that draws what does not print: control characters, and marks that turn the direction of text. */
export function visible(text) {
  return text.replace(/[\p{Cc}\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu, (character) => {
    const code = character.codePointAt(0);
    return code < 0x20 ? String.fromCodePoint(0x2400 + code) : code === 0x7f ? "␡" : `⟨${code.toString(16)}⟩`;
  });
}

/** Return the visible text, cut to some characters with a mark of the cut. */
export function cut(text, characters) {
  const shown = visible(text.slice(0, characters * 2));
  return shown.length > characters || text.length > characters * 2 ? `${shown.slice(0, characters - 1)}…` : shown;
}

const widths = new Map();
const MOST_WIDTHS = 20_000;

/** Return as much of a visible text as a canvas can draw in its font on some pixels; nothing if that is less than two letters. */
export function fit(pen, text, room) {
  const shown = cut(text, 200);
  const characters = lettersIn(pen, shown, room);
  return characters === shown.length ? shown : characters < 2 ? "" : `${shown.slice(0, characters)}…`;
}

/** Return the same, but leave out what is in the middle: names that are alike mostly differ at their ends. */
export function fitEnds(pen, text, room) {
  const shown = cut(text, 200);
  const characters = lettersIn(pen, shown, room);
  if (characters === shown.length) return shown;
  const end = Math.floor(characters / 2);
  return characters < 2 ? "" : `${shown.slice(0, characters - end)}…${shown.slice(shown.length - end)}`;
}

/** Return how many letters of a text fit beside a mark of a cut, or all letters. */
function lettersIn(pen, shown, room) {
  if (room < 12) return 0;
  const key = `${pen.font}\n${shown}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > MOST_WIDTHS) widths.clear();
    width = pen.measureText(shown).width;
    widths.set(key, width);
  }
  return width <= room ? shown.length : Math.max(0, Math.floor((shown.length * room) / width) - 1);
}
