// The axis: ticks at round times, labelled so that no two labels in sight are equal.

import { colours, font } from "../parts/theme.js";
import { floor, split } from "../parts/text.js";

export const AXIS_HEIGHT = 40;
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

/** Return ticks, each with its time and label, and a text that all labels have in common. */
export function ticks(view, clock, least = 96) {
  const step = roundStep(least / view.scale, clock);
  const found = [];
  const first = clock.zero + (floor(view.from - clock.zero, step) + 1n) * step;
  for (let time = first; time < view.to; time += step) {
    found.push({ time, label: clock.wall ? label(time, step) : clock.label(time, step) });
  }
  return { step, ticks: found, base: clock.wall ? base(view, step) : "from the begin of this clock" };
}

function label(time, step) {
  const parts = split(time);
  if (step >= DAY || (step >= SECOND && time % DAY === 0n)) return day(parts.date);
  if (step >= 60n * SECOND) return parts.time.slice(0, 5);
  if (step >= SECOND || time % SECOND === 0n) return parts.time;
  const digits = Math.max(1, 9 - (String(step).length - 1));
  return `.${grouped(parts.fraction.slice(0, digits))}`;
}

function base(view, step) {
  const parts = split(view.from);
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
  const { ticks: all, base: common } = ticks(view, clock);
  pen.font = font(11.5);
  for (const { time, label: text } of all) {
    const x = Math.round(left + view.x(time)) + 0.5;
    pen.fillStyle = line;
    pen.fillRect(x - 0.5, AXIS_HEIGHT - 7, 1, height - AXIS_HEIGHT + 7);
    pen.fillStyle = soft;
    pen.fillText(text, x + 5, AXIS_HEIGHT - 11);
  }
  pen.fillStyle = ink;
  pen.font = font(14, 600);
  pen.fillText(clock.length(Math.round(view.length)), 12, 15);
  pen.font = font(11.5);
  pen.fillStyle = soft;
  pen.fillText("in sight", 12, 30);
  pen.fillStyle = ink;
  pen.fillText(common, left + 6, 11);
  pen.fillStyle = line;
  pen.fillRect(0, AXIS_HEIGHT - 1, left + width, 1);
}
