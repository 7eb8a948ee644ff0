// The state of the timeline in the address: window, selection, scroll and row.

/** Return the state of an address: `window` and `selection` are null where it has none. */
export function stateOf({ from, to, sel, row, y }) {
  const [begin, end] = (sel ?? "").split(",");
  return { window: range(from, to), selection: range(begin, end), row, scroll: Number(y) };
}

function range(from, to) {
  return isTime(from) && isTime(to) ? { from: BigInt(from), to: BigInt(to) } : null;
}

function isTime(text) {
  return /^-?\d+$/.test(text ?? "");
}
