// Whether an answer is a line: its first column rises and is a number or a time, and numbers follow.

const NUMBER = /INT|DOUBLE|FLOAT|DECIMAL|REAL/;
const TIME = /^(TIMESTAMP|DATE)/;
const MOST_LINES = 6;

/** Return `x`, `ys`, their `labels`, whether x is a time in `seconds`, and a title; or null. */
export function plotOf({ columns, rows }) {
  const [first, ...others] = columns;
  if (rows.length < 2 || !first || !(NUMBER.test(first.type) || TIME.test(first.type))) return null;
  const lines = others.map((column, index) => ({ column, index: index + 1 })).filter(({ column }) => NUMBER.test(column.type)).slice(0, MOST_LINES);
  if (!lines.length) return null;
  const seconds = TIME.test(first.type);
  const x = rows.map((row) => (seconds ? Date.parse(utc(row[0])) / 1000 : Number(row[0])));
  if (x.some((value, index) => !Number.isFinite(value) || (index > 0 && value <= x[index - 1]))) return null;
  return {
    x,
    ys: lines.map(({ index }) => rows.map((row) => (row[index] === null ? null : Number(row[index])))),
    labels: lines.map(({ column }) => column.name),
    seconds,
    title: `${lines.map(({ column }) => column.name).join(", ")} over ${first.name}`,
  };
}

function utc(text) {
  return /[zZ]|[+-]\d\d(:?\d\d)?$/.test(text) ? String(text).replace(" ", "T").replace(/([+-]\d\d)$/, "$1:00") : `${String(text).replace(" ", "T")}Z`;
}
