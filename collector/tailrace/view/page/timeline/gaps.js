// Gaps: at every zoom, in front of everything, in a hatch that nothing else has, and never narrower than three pixels.

import { colours, font } from "../parts/theme.js";
import { label } from "./words.js";

const NARROWEST = 3;
const LEGIBLE = 54;
const TILE = 8;
let hatch = null;

/** Return the hatch as a pattern, made anew when colours have changed. */
function pattern(pen) {
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

/** Return where a gap is drawn: its left edge and width in pixels, or null when it is out of sight. */
export function extent(gap, { shift, scale, left, width }) {
  let begin = left + (gap.start + shift) * scale;
  let length = (gap.end - gap.start) * scale;
  if (length < NARROWEST) {
    begin -= (NARROWEST - length) / 2;
    length = NARROWEST;
  }
  if (begin + length <= left || begin >= left + width) return null;
  const from = Math.max(begin, left);
  return { x: from, length: Math.max(Math.min(begin + length, left + width) - from, Math.min(NARROWEST, left + width - from)) };
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
