// Draw spans, instants and counters of lanes. A frame's times are numbers of units from the frame's `from`.

import { colours, font, lineColour, spanColour } from "../parts/theme.js";
import { fit, short } from "../parts/text.js";
import { BAR, COUNTER, firstWhere, ROW } from "./layout.js";

const LEGIBLE = 26;
const INSET = 5;
const STEPPED_BACK = 0.25;
const NARROW = 3;
const FAINTEST = 0.45;
const SHADES = 16;
const TOOTH = 4;

/** Draw the spans of a lane. `y` is where the lane's first row begins. Add to `sight.names` the pixels of each name, and note in
 * `sight.several` whether a mark stands for several spans. If one
 * name shall stand out (`only`), all others step back. Return whether there are any in sight. */
export function drawSpans(pen, content, { shift, scale, left, width, y }, { sight, only }) {
  const { names } = sight;
  const right = left + width;
  let drawn = false;
  for (const [depth, row] of content.depths.entries()) {
    if (!row) continue;
    const top = y + depth * ROW + 1;
    let edge = -Infinity;
    for (let index = firstAt(row, shift, scale); index < row.start.length; index += 1) {
      const begin = left + (row.start[index] + shift) * scale;
      if (begin >= right) break;
      const end = row.open[index] ? right + 8 : left + (row.end[index] + shift) * scale;
      if (end <= left) continue;
      // What would lie on the pixel before is not drawn again.
      if (end - edge < 0.5) continue;
      // A narrow bar fills its pixels: the colours of bars side by side would mix with the surface.
      const narrow = end - begin <= NARROW;
      const isSeveral = row.count[index] > 1;
      // Faint marks must not overlap, or the pixel that they share would be less faint.
      const from = Math.max(narrow ? Math.floor(begin) : begin, left - 4, isSeveral ? edge : -Infinity);
      const length = Math.max((narrow ? Math.ceil(end) : Math.min(end, right + 8)) - from, 1);
      // Where narrow spans are dense, both they and marks for several are as faint as they leave time free.
      const part = isSeveral ? coverage(row, index) : narrow && begin - edge < TOOTH ? Math.min(1, (end - begin) / length) : 1;
      edge = from + length;
      const name = row.name[index];
      names.set(name, (names.get(name) ?? 0) + Math.min(end, right) - Math.max(begin, left));
      const shade = only !== null && only !== name ? STEPPED_BACK : 1;
      pen.globalAlpha = shade * (FAINTEST + (1 - FAINTEST) * part);
      sight.several ||= isSeveral;
      drawBar(pen, row, index, { x: from, y: top, length, left });
      pen.globalAlpha = 1;
      drawn = true;
    }
  }
  return drawn;
}

/** Return which part of its time a mark for several spans is covered by them, rounded up to one of few shades. */
const coverage = (row, index) => Math.min(1, Math.ceil((SHADES * row.busy[index]) / Math.max(row.end[index] - row.start[index], 1)) / SHADES);

function drawBar(pen, row, index, { x, y, length, left }) {
  const palette = colours();
  const name = row.name[index];
  const several = row.count[index] > 1;
  pen.fillStyle = palette[spanColour(name)];
  pen.fillRect(x, y, length > NARROW + 1 ? length - 0.75 : length, BAR);
  if (several) drawComb(pen, x, y, length, palette.surface);
  if (row.open[index]) drawOpen(pen, x, y, length, palette);
  if (length < LEGIBLE) return;
  pen.fillStyle = palette["span-ink"];
  const from = Math.max(x, left) + INSET;
  const text = several ? `${name} × ${short(row.count[index])}` : name;
  const fitting = fit(pen, text, x + length - from - 2);
  if (fitting) pen.fillText(fitting, from, y + BAR / 2 + 0.5);
}

/** Cut a mark for several spans into teeth, so that it does not look like one span. The teeth of marks side by side are
 * one comb. */
function drawComb(pen, x, y, length, colour) {
  pen.fillStyle = colour;
  for (let cut = Math.ceil(x / TOOTH) * TOOTH; cut < x + length; cut += TOOTH) pen.fillRect(cut, y, 1, BAR / 2);
}

/** Mark a span that has not ended: a line below that is dashed towards what comes. */
function drawOpen(pen, x, y, length, palette) {
  pen.strokeStyle = palette["span-ink"];
  pen.lineWidth = 1.5;
  pen.setLineDash([4, 3]);
  pen.beginPath();
  pen.moveTo(x, y + BAR - 1);
  pen.lineTo(x + length, y + BAR - 1);
  pen.stroke();
  pen.setLineDash([]);
}

/** Return the index of the first span that may reach into sight. */
function firstAt(row, shift, scale) {
  const least = -shift - row.longest - 8 / scale;
  return firstWhere(row.start.length, (index) => row.start[index] >= least);
}

/** Draw instants as small rhombs on the lane's first row. Return whether there are any in sight. */
export function drawInstants(pen, { instants }, { shift, scale, left, width, y }) {
  const { accent, surface } = colours();
  const middle = y + BAR / 2 + 1;
  pen.lineWidth = 1;
  let edge = -Infinity;
  for (let index = 0; index < instants.time.length; index += 1) {
    const x = left + (instants.time[index] + shift) * scale;
    if (x < left - 5 || x > left + width + 5 || x - edge < 2) continue;
    edge = x;
    const size = instants.count[index] > 1 ? 5.5 : 4.5;
    pen.beginPath();
    pen.moveTo(x, middle - size);
    pen.lineTo(x + size, middle);
    pen.lineTo(x, middle + size);
    pen.lineTo(x - size, middle);
    pen.closePath();
    pen.fillStyle = accent;
    pen.strokeStyle = surface;
    pen.fill();
    pen.stroke();
  }
  return edge > -Infinity;
}

/** Draw a lane's counters below its spans: the range of each pixel, and the last value as a step, which goes on to the
 * pixel `until` at most; `labelled` writes names and ranges beside them. Return whether any has a value near. */
export function drawCounters(pen, content, { shift, scale, left, width, y }, { names, until, labelled }) {
  const palette = colours();
  let drawn = false;
  for (const [index, name] of names.entries()) {
    const counter = content.counters.find((each) => each.name === name);
    const top = y + index * COUNTER + 3;
    const height = COUNTER - 8;
    pen.fillStyle = palette.line;
    pen.fillRect(left, top + height, width, 1);
    if (!counter || (counter.time.length === 0 && counter.before === null)) continue;
    drawn = true;
    const { low, high } = counter.range;
    const room = high - low || 1;
    const at = (value) => top + height - ((value - low) / room) * height;
    drawSteps(pen, counter, { x: (time) => left + (time + shift) * scale, at, left, right: Math.min(left + width, until), colour: palette[lineColour(index)] });
    if (!labelled) continue;
    pen.fillStyle = palette.soft;
    pen.font = font(11);
    pen.fillText(`${fit(pen, name, width / 2)} ${short(low)} … ${short(high)}`, left + 6, top + 6);
  }
  return drawn;
}

function drawSteps(pen, counter, { x, at, left, right, colour }) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  let { before } = counter;
  if (before !== null) pen.moveTo(left, at(before));
  for (let index = 0; index < counter.time.length; index += 1) {
    const place = x(counter.time[index]);
    if (before !== null) pen.lineTo(place, at(before));
    pen.lineTo(place, at(counter.min[index]));
    pen.lineTo(place, at(counter.max[index]));
    pen.lineTo(place, at(counter.last[index]));
    before = counter.last[index];
  }
  if (before !== null && (counter.time.length ? x(counter.time.at(-1)) : left) < right) pen.lineTo(right, at(before));
  pen.stroke();
}
