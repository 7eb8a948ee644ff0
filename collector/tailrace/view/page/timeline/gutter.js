// The lanes' names, left of time, and the headings of sessions across.

import { colours, font } from "../parts/theme.js";
import { count, fit } from "../parts/text.js";
import { HEADING, ROW } from "./layout.js";

const INSET = 12;

/** Return how wide the names are drawn on a canvas of some width. */
export const gutterWidth = (width) => (width < 560 ? 84 : 184);

/** Draw the heading of a session: its source, id, and what it lacks. */
export function drawHeading(pen, { lane, subtitle }, { y, left, width }) {
  const palette = colours();
  pen.fillStyle = palette.raised;
  pen.fillRect(0, y, left + width, HEADING);
  pen.fillStyle = palette.line;
  pen.fillRect(0, y, left + width, 1);
  pen.font = font(12.5, 600);
  pen.fillStyle = palette.ink;
  const title = `${lane.source} · ${lane.title}`;
  const shown = fit(pen, title, left + width - 2 * INSET);
  pen.fillText(shown, INSET, y + HEADING / 2 + 1);
  const end = INSET + pen.measureText(shown).width + 14;
  pen.font = font(12);
  pen.fillStyle = palette.soft;
  pen.fillText(fit(pen, subtitle, left + width - end - INSET), end, y + HEADING / 2 + 1);
}

/** Draw the name of a lane, over what time drew below it. */
export function drawName(pen, { lane, height, rows }, { y, left, focused }) {
  const palette = colours();
  pen.fillStyle = focused ? palette["accent-wash"] : palette.surface;
  pen.fillRect(0, y, left, height);
  pen.fillStyle = palette.line;
  pen.fillRect(left - 1, y, 1, height);
  pen.font = font(12, focused ? 600 : 400);
  pen.fillStyle = focused ? palette.accent : palette.ink;
  const lacks = lane.missing !== 0;
  pen.fillText(fit(pen, lane.name, left - INSET - (lacks ? 14 : 4)), INSET, y + ROW / 2 + 2);
  if (lacks) {
    pen.fillStyle = palette["loss-stripe"];
    pen.fillRect(left - 7, y + 2, 3, height - 4);
  }
  if (lacks && rows > 1 && left > 120) {
    pen.font = font(11);
    pen.fillStyle = palette.loss;
    pen.fillText(fit(pen, lane.missing === null ? "unknown missing" : `${count(lane.missing)} missing`, left - INSET - 14), INSET, y + ROW * 1.5 + 2);
  }
}
