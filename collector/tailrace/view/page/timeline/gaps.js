// Gaps, at every zoom, in colours that nothing else has. A gap that is wide enough is a hatched area: nothing is left
// there. All others are a band, whose height in each column of pixels is the share of events that is missing.

import { colours, font } from "../parts/theme.js";
import { label } from "./words.js";

const NARROWEST = 3;
const WIDE = 12;
const LOWEST = 2;
export const BAND = 6;
const LEGIBLE = 54;
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

/** Draw for each column which share of events is missing, as bars on a foot at `y`, or hanging from it. `here` counts the
 * events of each column, and `column(time)` is the column of a time. Where a gap of unknown size or place may be, the
 * whole height is hatched. */
export function drawShares(pen, gaps, { here, column, x, step, y, height, hanging = false }) {
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
  const lowest = Math.max(LOWEST, Math.round(height / 10));
  const bar = (index, tall) => pen.fillRect(Math.round(x + index * step), hanging ? y : y - tall, step, tall);
  for (let index = 0; index < here.length; index += 1) {
    if (!lost[index] && !unknown[index]) continue;
    if (unknown[index]) {
      pen.fillStyle = pattern(pen);
      bar(index, height);
    }
    pen.fillStyle = colours()["loss-stripe"];
    bar(index, Math.max(lowest, Math.round((height * lost[index]) / (lost[index] + here[index] || 1))));
  }
}

/** Draw one gap over the whole height of its lane. */
export function drawGap(pen, gap, place, y, height) {
  const palette = colours();
  pen.fillStyle = pattern(pen);
  pen.fillRect(place.x, y, place.length, height);
  pen.fillStyle = palette["loss-stripe"];
  pen.fillRect(place.x, y, 1, height);
  pen.fillRect(place.x + place.length - 1, y, 1, height);
  if (place.length < LEGIBLE || height < 14) return;
  const text = label(gap);
  pen.font = font(11, 600);
  const room = pen.measureText(text).width + 10;
  if (room > place.length - 8) return;
  const x = place.x + (place.length - room) / 2;
  pen.fillStyle = palette.surface;
  pen.fillRect(x, y + height / 2 - 8, room, 16);
  pen.fillStyle = palette.loss;
  pen.fillText(text, x + 5, y + height / 2 + 0.5);
}
