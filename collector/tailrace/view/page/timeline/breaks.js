// Breaks: the long stretches of empty time, which a timeline draws a few pixels wide. In a stretch, no event happens and no
// span with a known end runs. Gaps do not keep a stretch from being a break; they are drawn in it as anywhere.

const ROOM = 50n;
const NEWEST_SHARE = 0.1;

/** Return the breaks of an answer of `lanes/empty`. Beside a break, a little room is left. `known` breaks stay if they are
 * as empty as before, so that time stands still while events come. */
export function breaksOf({ begins, ends }, bounds, known) {
  const found = begins.map((begin, index) => ({ from: BigInt(begin), to: BigInt(ends[index]) }));
  if (known.length === found.length && known.every(({ from, to }) => isWithin(found, from, to))) return known;
  const room = kept(bounds, found) / ROOM + 1n;
  return found.map(({ from, to }) => {
    const beside = room < (to - from) / 4n ? room : (to - from) / 4n;
    return { from: from + beside, to: to - beside };
  });
}

/** Return how much of a range is outside of breaks. */
function kept({ from, to }, breaks) {
  return breaks.reduce((rest, each) => rest - (each.to - each.from), to - from);
}

/** Return whether a range lies within a break. */
export const isWithin = (breaks, from, to) => breaks.some((each) => from >= each.from && to <= each.to);

/** Return what to look at first: all, unless breaks are open (`shown`) or would leave the newest events little of the
 * width; then what follows the last break. `skipped` says whether there is more. */
export function firstLook(breaks, bounds, shown) {
  const from = breaks.at(-1)?.to ?? bounds.from;
  const large = Number(bounds.to - from) >= NEWEST_SHARE * Number(kept(bounds, breaks));
  return breaks.length && (shown || !large) ? { from, to: bounds.to > from ? bounds.to : from + 1n, skipped: true } : { ...bounds, skipped: false };
}
