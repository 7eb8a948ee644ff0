// What lies under the pointer: a gap on the foot of the lane before all else; then a span, an instant, a counter, and a
// gap behind these.

import { AXIS_HEIGHT } from "./axis.js";
import { extent } from "./gaps.js";
import { COUNTER, firstWhere, ROW } from "./layout.js";
import { title } from "./words.js";

const NEAR = 4;
const SLACK = 2;

/** Return what a canvas shows at a place: an item with its `lane`, or null. Times of items are BigInt. */
export function itemAt(canvas, x, y) {
  const { layout, frame, left } = canvas;
  if (!layout || !frame || x < left || y < AXIS_HEIGHT) return null;
  const sight = canvas.sightAt(x);
  const place = canvas.placeAt(y);
  if (!place || !sight) return null;
  const inside = y - canvas.topOf(place.y) - 2;
  const foot = y > canvas.foot(place) - canvas.band(place) - SLACK && canvas.carriers().has(place);
  return (foot ? gapAt(canvas, place, sight, x) : null)
    ?? spanAt(place, sight, x, inside) ?? instantAt(place, sight, x, inside) ?? counterAt(place, sight, x, inside)
    ?? gapAt(canvas, place, sight, x);
}

function gapAt(canvas, { lane }, sight, x) {
  for (const gap of canvas.lossOf(lane, sight.part).gaps) {
    const seen = extent(gap, sight);
    if (seen && x >= seen.x - 1 && x <= seen.x + seen.length + 1) return item(sight.part, lane, { gap, start: gap.start, end: gap.end, name: title(gap) });
  }
  return null;
}

function spanAt({ lane }, { part, shift, scale, left }, x, y) {
  const depth = Math.floor(y / ROW);
  const row = part.lanes.get(lane.id)?.depths[depth];
  if (!row) return null;
  const time = (x - left) / scale - shift;
  const slack = 1.5 / scale;
  for (let index = lastBefore(row.start, time + slack); index >= 0; index -= 1) {
    if (row.start[index] + row.longest < time - slack) break;
    if (row.open[index] || row.end[index] >= time - slack) return spanItem(part, lane, depth, row, index);
  }
  return null;
}

/** Return the item of one span of a part of a frame. */
export function spanItem(part, lane, depth, row, index) {
  return item(part, lane, {
    depth, index, start: row.start[index], end: row.end[index], name: row.name[index], count: row.count[index],
    place: row.place[index], open: Boolean(row.open[index]),
  });
}

function instantAt({ lane }, { part, shift, scale, left }, x, y) {
  if (y > ROW) return null;
  const instants = part.lanes.get(lane.id)?.instants;
  if (!instants) return null;
  const time = (x - left) / scale - shift;
  const index = lastBefore(instants.time, time + NEAR / scale);
  if (index < 0 || instants.time[index] < time - NEAR / scale) return null;
  return item(part, lane, {
    depth: 0, start: instants.time[index], end: instants.time[index], name: instants.name[index],
    count: instants.count[index], place: instants.place[index], instant: true,
  });
}

function counterAt(place, { part, shift, scale, left }, x, y) {
  const name = place.counters[Math.floor((y - place.rows * ROW) / COUNTER)];
  const counter = y < place.rows * ROW ? undefined : part.lanes.get(place.lane.id)?.counters.find((each) => each.name === name);
  if (!counter) return null;
  const index = lastBefore(counter.time, (x - left) / scale - shift);
  if (index < 0) return null;
  return item(part, place.lane, { name, start: counter.time[index], value: counter.last[index], least: counter.min[index], most: counter.max[index], counter: true });
}

function item(part, lane, facts) {
  const time = (offset) => (offset === undefined ? undefined : part.from + BigInt(Math.round(offset)));
  return { ...facts, about: part.oneIn > 1, lane: lane.id, start: time(facts.start), end: time(facts.end) };
}

/** Return the index of the last of ascending values that is at most `most`, or -1. */
function lastBefore(values, most) {
  return firstWhere(values.length, (index) => values[index] > most) - 1;
}
