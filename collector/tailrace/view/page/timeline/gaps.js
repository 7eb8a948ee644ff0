// Gaps, at every zoom, in colours that nothing else has. A gap that is wide enough is hatched behind the spans: where the
// hatch shows, nothing is left. All others are a band, whose height in each column of pixels is the share of events that
// is missing.

import { colours, font } from "../parts/theme.js";
import { label } from "./words.js";

const NARROWEST = 3;
const WIDE = 3;
/** From this width on, a gap in which nothing is left is hatched in the band, too, instead of being a part of a share. */
export const APART = 12;
const LOWEST = 1;
export const BAND = 6;
const ENOUGH = 16;
const WIDEST = 24;
const TILE = 8;
let hatch = null;

/** Return the hatch as a pattern, made anew when colours have changed. */
export function pattern(pen) {
  const palette = colours();
  if (hatch?.palette === palette) return hatch.made;
  const ratio = devicePixelRatio;
  const tile = new OffscreenCanvas(TILE * ratio, TILE * ratio);
  const brush = tile.getContext("2d");
  brush.scale(ratio, ratio);
  brush.fillStyle = palette["loss-ground"];
  brush.fillRect(0, 0, TILE, TILE);
  brush.strokeStyle = palette["loss-stripe"];
  brush.lineWidth = 3;
  brush.beginPath();
  for (const begin of [-TILE, 0, TILE]) {
    brush.moveTo(begin - 2, TILE + 2);
    brush.lineTo(begin + TILE + 2, -2);
  }
  brush.stroke();
  const made = pen.createPattern(tile, "repeat");
  made.setTransform(new DOMMatrix().scale(1 / ratio));
  hatch = { palette, made };
  return made;
}

/** Return where a gap is drawn: its left edge and width in pixels, and whether it is `wide`; null when it is out of sight.
 * Several gaps in one mark begin in one bucket and end in one bucket: nothing is left only between these two. A gap row
 * of a range of which only a part is missing has events between its ends. */
export function extent(gap, { shift, scale, left, width, bucket }) {
  let begin = left + (gap.start + shift) * scale;
  let length = (gap.end - gap.start) * scale;
  const empty = gap.count === 1 ? length : length - 2 * bucket * scale;
  const wide = gap.begin !== null && !gap.partly && empty >= WIDE;
  if (length < NARROWEST) {
    begin -= (NARROWEST - length) / 2;
    length = NARROWEST;
  }
  if (begin + length <= left || begin >= left + width) return null;
  const from = Math.max(begin, left);
  return { x: from, length: Math.max(Math.min(begin + length, left + width) - from, Math.min(NARROWEST, left + width - from)), wide };
}

/** Return the width of the columns for which shares are told apart, in pixels: at least that of a bucket. */
export function columnWidth({ bucket }, scale) {
  return Math.max(NARROWEST, Math.ceil(bucket * scale));
}

/** Return the columns that `gaps` are counted in: how many events each one has (`here`, as given), how many are missing
 * (`lost`), and whether a gap of unknown size or place may be in it (`unknown`). `column(time)` is the column of a time. */
export function sharesOf(gaps, { here, column }) {
  const lost = new Float64Array(here.length);
  const unknown = new Uint8Array(here.length);
  for (const gap of gaps) {
    const [first, last] = [column(gap.start), column(gap.end)];
    const each = gap.begin === null ? 0 : (gap.missing ?? 0) / (last - first + 1);
    for (let index = Math.max(0, first); index <= Math.min(last, here.length - 1); index += 1) {
      lost[index] += each;
      unknown[index] ||= Number(gap.begin === null || gap.missing === null || gap.unknown > 0);
    }
  }
  return { here, lost, unknown };
}

/** Return how many columns of `step` pixels must be joined so that a share means something: those with events have
 * `ENOUGH` on average, as far as they stay narrow. */
function joining({ here, lost }, step) {
  let [events, columns] = [0, 0];
  for (let index = 0; index < here.length; index += 1) {
    events += here[index] + lost[index];
    columns += Number(here[index] + lost[index] > 0);
  }
  return Math.max(1, Math.min(Math.floor(WIDEST / step), Math.ceil((ENOUGH * columns) / Math.max(events, 1))));
}

/** Return shares with their columns joined, and the width of these. */
export function joinedShares(shares, step) {
  const number = joining(shares, step);
  const length = Math.ceil(shares.here.length / number);
  const found = { here: new Float64Array(length), lost: new Float64Array(length), unknown: new Uint8Array(length) };
  for (let index = 0; index < shares.here.length; index += 1) {
    const place = Math.floor(index / number);
    found.here[place] += shares.here[index];
    found.lost[place] += shares.lost[index];
    found.unknown[place] ||= shares.unknown[index];
  }
  return { shares: found, step: number * step };
}

/** Draw for each column which share of events is missing, as bars on a foot at `y`, or hanging from it. A standing bar has
 * a ground as high as all events, the darker the larger the share. Where a gap of unknown size or place may be, the whole
 * height is hatched. */
export function drawShares(pen, { here, lost, unknown }, { x, step, y, height, hanging = false }) {
  const lowest = Math.max(LOWEST, Math.round(height / 10));
  const stripe = colours()["loss-stripe"];
  const bar = (index, tall, fill, alpha = 1) => {
    pen.globalAlpha = alpha;
    pen.fillStyle = fill;
    pen.fillRect(Math.round(x + index * step), hanging ? y : y - tall, step, tall);
  };
  for (let index = 0; index < here.length; index += 1) {
    if (!lost[index] && !unknown[index]) continue;
    const part = lost[index] / (lost[index] + here[index] || 1);
    if (unknown[index]) bar(index, height, pattern(pen));
    else if (!hanging) bar(index, height, stripe, 0.6 * Math.sqrt(part));
    bar(index, Math.max(lowest, Math.round(height * part)), stripe);
  }
}

/** Hatch the bars of a lane in which a gap leaves nothing: `bars` has their heights on the canvas. */
export function drawGap(pen, { x, length }, bars) {
  for (const { y, height } of bars) {
    pen.fillStyle = pattern(pen);
    pen.fillRect(x, y, length, height);
    pen.fillStyle = colours()["loss-stripe"];
    pen.fillRect(x, y, 1, height);
    pen.fillRect(x + length - 1, y, 1, height);
  }
}

/** Write how many events a gap lacks on its hatch at the foot `y` of the lane, if there is room. */
export function drawLabel(pen, gap, { x, length }, { y, height }) {
  const palette = colours();
  const text = label(gap);
  pen.font = font(11, 600);
  const room = pen.measureText(text).width + 10;
  if (room >= length) return;
  const begin = x + (length - room) / 2;
  pen.fillStyle = palette.surface;
  pen.fillRect(begin, y - height, room, height);
  pen.fillStyle = palette.loss;
  pen.fillText(text, begin + 5, y - height / 2 + 0.5);
}
