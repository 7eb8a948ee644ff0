// The lanes' names, left of time, and the headings of their groups across.

import { colours, font } from "../parts/theme.js";
import { fit, fitEnds } from "../parts/text.js";
import { HEADING, ROW } from "./layout.js";
import { PINNED } from "./order.js";

const INSET = 12;
const STEP = 14;
const WIDEST = 20;

/** Return how wide names are drawn on a canvas of some width: as the longest name, within limits. */
export function gutterWidth(pen, width, lanes) {
  if (width < 560) return 84;
  pen.font = font(12, 600);
  const longest = [...new Set(lanes.map(({ name }) => name))].sort((one, other) => other.length - one.length).slice(0, WIDEST);
  const wanted = Math.max(0, ...longest.map((name) => pen.measureText(name).width)) + INSET + STEP + 14;
  return Math.ceil(Math.min(Math.max(184, wanted), Math.max(184, Math.min(360, width * 0.3))));
}

/** Draw the heading of a group: whether it is folded, its title, how much it has, and what it lacks. */
export function drawHeading(pen, { title, subtitle, lacks, level, folded }, { y, left, width }) {
  const palette = colours();
  const middle = y + HEADING / 2 + 1;
  const begin = INSET + level * STEP;
  pen.fillStyle = level ? palette.raised : palette.sunken;
  pen.fillRect(0, y, left + width, HEADING);
  pen.fillStyle = palette.line;
  pen.fillRect(0, y, left + width, 1);
  drawFold(pen, begin, middle, folded, palette.soft);
  let x = begin + STEP;
  const parts = [[title, 12.5, 600, palette.ink, fitEnds], [lacks, 12, 600, palette.loss, fit], [subtitle, 12, 400, palette.soft, fit]];
  for (const [text, size, weight, colour, fitting] of parts) {
    pen.font = font(size, weight);
    pen.fillStyle = colour;
    const shown = fitting(pen, text, left + width - x - INSET);
    pen.fillText(shown, x, middle);
    x += shown ? pen.measureText(shown).width + 14 : 0;
  }
}

/** Draw a triangle that points down at what is open, and right at what is folded. */
function drawFold(pen, x, y, folded, colour) {
  const corners = folded ? [[1, -4], [6, 0], [1, 4]] : [[-1, -2], [7, -2], [3, 3]];
  pen.fillStyle = colour;
  pen.beginPath();
  for (const [right, down] of corners) pen.lineTo(x + right, y - 1 + down);
  pen.closePath();
  pen.fill();
}

/** Draw the name of a lane, over what time drew below it. */
export function drawName(pen, { lane, height, strip }, { y, left, focused }) {
  const palette = colours();
  pen.fillStyle = focused ? palette["accent-wash"] : palette.surface;
  pen.fillRect(0, y, left, height);
  pen.fillStyle = palette.line;
  pen.fillRect(left - 1, y, 1, height);
  pen.font = font(12, focused ? 600 : 400);
  pen.fillStyle = focused ? palette.accent : palette.ink;
  const begin = left < 120 ? INSET : INSET + lane.groups.length * STEP;
  const name = lane.groups[0] === PINNED ? `${lane.process} · ${lane.name}` : lane.name;
  pen.fillText(fitEnds(pen, name, left - begin - 4), begin, y + ROW / 2 + 2);
  if (!strip) return;
  pen.font = font(11);
  pen.fillStyle = palette.loss;
  pen.fillText(fit(pen, `${lane.lacks}${left < 120 ? "" : " missing"}`, left - begin - 4), begin, y + height - strip / 2 - 1);
}
