// The axis: ticks at round times, labelled so that no two labels in sight are equal.

import { colours, font } from "../parts/theme.js";
import { fit, floor, split } from "../parts/text.js";

export const AXIS_HEIGHT = 40;
const TEETH = 5;
const SECOND = 1_000_000_000n;
const DAY = 86_400n * SECOND;
const LONG_STEPS = [1n, 2n, 5n, 10n, 15n, 30n, 60n, 120n, 300n, 600n, 900n, 1800n, 3600n, 7200n, 10800n, 21600n, 43200n].map((each) => each * SECOND);
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Return the smallest round step that is at least some units long. */
export function roundStep(least, clock) {
  if (!clock.ticks && least > 5e8) {
    const known = LONG_STEPS.find((each) => Number(each) >= least);
    if (known) return known;
    return DAY * decimal(least / Number(DAY));
  }
  return decimal(least);
}

function decimal(least) {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(least, 1))));
  const factor = [1, 2, 5, 10].find((each) => each * power >= least) ?? 10;
  return BigInt(factor * power);
}

/** Return the ticks of a piece of the view, each with its time and label, and a text that all labels have in common. */
export function ticks(piece, clock, least = 96) {
  const step = roundStep(least / piece.scale, clock);
  const found = [];
  const first = clock.zero + (floor(piece.from - clock.zero, step) + 1n) * step;
  for (let time = first; time < piece.to; time += step) {
    found.push({ time, label: clock.wall ? label(time, step) : clock.label(time, step) });
  }
  return { ticks: found, base: clock.wall ? base(piece, step) : "from the begin of this clock" };
}

function label(time, step) {
  const parts = split(time);
  if (step >= DAY || (step >= SECOND && time % DAY === 0n)) return day(parts.date);
  if (step >= 60n * SECOND) return parts.time.slice(0, 5);
  if (step >= SECOND || time % SECOND === 0n) return parts.time;
  const digits = Math.max(1, 9 - (String(step).length - 1));
  return `.${grouped(parts.fraction.slice(0, digits))}`;
}

function base(piece, step) {
  const parts = split(piece.from);
  if (step >= DAY) return "UTC";
  return step >= SECOND ? `${parts.date} UTC` : `${parts.date} ${parts.time} UTC`;
}

function day(date) {
  const [year, month, number] = date.split("-");
  return MONTHS[Number(month) - 1] ? `${Number(number)} ${MONTHS[Number(month) - 1]} ${year}` : date;
}

function grouped(digits) {
  return digits.replace(/(\d{3})(?=\d)/g, "$1\u2009");
}

/** Draw the axis over a canvas of some width and height, right of `left`. */
export function drawAxis(pen, view, { left, width, height, clock }) {
  const { soft, line, surface, ink } = colours();
  pen.fillStyle = surface;
  pen.fillRect(0, 0, left + width, AXIS_HEIGHT);
  for (const piece of view.pieces()) {
    if (piece.broken) drawLength(pen, piece, left, clock);
    else drawPiece(pen, piece, { left, width, height, clock });
  }
  pen.fillStyle = ink;
  pen.font = font(14, 600);
  pen.fillText(clock.length(view.breaks.length ? view.to - view.from : Math.round(view.length)), 12, 15);
  pen.font = font(11.5);
  pen.fillStyle = soft;
  pen.fillText("in sight", 12, 30);
  pen.fillStyle = line;
  pen.fillRect(0, AXIS_HEIGHT - 1, left + width, 1);
}

/** Draw the ticks of a piece, and above them what their labels have in common. Before a break, a label ends with the piece. */
function drawPiece(pen, piece, { left, width, height, clock }) {
  const { soft, line, ink } = colours();
  const { ticks: all, base: common } = ticks(piece, clock);
  const end = piece.end < width ? left + piece.end : Infinity;
  pen.font = font(11.5);
  for (const { time, label: text } of all) {
    const x = Math.round(left + piece.x + (Number(time - piece.from) - piece.part) * piece.scale) + 0.5;
    pen.fillStyle = line;
    pen.fillRect(x - 0.5, AXIS_HEIGHT - 7, 1, height - AXIS_HEIGHT + 7);
    pen.fillStyle = soft;
    if (x + 5 + pen.measureText(text).width < end) pen.fillText(text, x + 5, AXIS_HEIGHT - 11);
  }
  pen.fillStyle = ink;
  pen.fillText(end === Infinity ? common : fit(pen, common, end - left - piece.x - 8), left + piece.x + 6, 11);
}

/** Draw how long a break is, if there is room. */
function drawLength(pen, { broken, x, end }, left, clock) {
  pen.font = font(11.5, 600);
  pen.fillStyle = colours().soft;
  const text = clock.brief(broken.to - broken.from);
  const room = pen.measureText(text).width;
  if (room <= end - x - 2) pen.fillText(text, left + x + (end - x - room) / 2, AXIS_HEIGHT - 11);
}

/** Draw a break below the axis: a strip with torn edges. */
export function drawBreak(pen, x, width, y, height) {
  const { sunken } = colours();
  pen.fillStyle = sunken;
  pen.fillRect(x, y, width, height);
  pen.strokeStyle = colours()["line-strong"];
  pen.lineWidth = 1;
  for (const edge of [x + TEETH / 2, x + width - TEETH / 2]) {
    pen.beginPath();
    for (let at = 0; at <= height; at += TEETH) pen.lineTo(edge + ((at / TEETH) % 2 ? TEETH : -TEETH) / 2, y + at);
    pen.stroke();
  }
}
