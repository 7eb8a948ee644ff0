// Answers of `frame`, by lane: what the canvas draws. Each answer is a part of the canvas's frame, with a range of time of
// its own: the answers follow each other without a break. Times are numbers of nanoseconds from the part's `from`.

import { laneId, streamId } from "./lanes.js";

const SEVERAL = "several";

/** Return the frame of parts that follow each other. A gap that reaches into several parts counts once in `gaps`. */
export function joined(parts) {
  carry(parts);
  const gaps = parts.flatMap((part, index) => [...part.losses.values()].flatMap((loss) => loss.gaps.filter(({ begin }) => index === 0 || (begin !== null && begin >= 0))));
  return {
    parts,
    from: parts[0].from,
    to: parts.at(-1).to,
    oneIn: Math.max(...parts.map((part) => part.oneIn)),
    gaps: gaps.reduce((sum, gap) => sum + gap.count, 0),
  };
}

/** Give the counters of each part the value with which they begin, as an earlier part has it, and all parts one range. */
function carry(parts) {
  const known = new Map();
  for (const { lanes } of parts) {
    for (const [lane, { counters }] of lanes) {
      if (!known.has(lane)) known.set(lane, new Map());
      const ofLane = known.get(lane);
      for (const { name, min, max } of counters) {
        const range = ofLane.get(name)?.range ?? { low: 0, high: 0 };
        range.low = min.reduce((low, each) => Math.min(low, each), range.low);
        range.high = max.reduce((high, each) => Math.max(high, each), range.high);
        ofLane.set(name, { range, last: null });
      }
    }
  }
  for (const { lanes } of parts) {
    for (const [lane, { counters }] of lanes) {
      for (const [name, counter] of known.get(lane)) {
        if (!counters.some((each) => each.name === name)) counters.push({ name, time: [], count: [], min: [], max: [], last: [] });
        const own = counters.find((each) => each.name === name);
        Object.assign(own, { before: counter.last, range: counter.range });
        counter.last = own.last.at(-1) ?? counter.last;
      }
    }
  }
}

/** Return the part of an answer. `lanes` is a map by the ids of lanes, `losses` by those of streams. A bucket at an edge of
 * the part may have events of the next part; if the part is `broken`, no event is near, and such buckets are left out. */
export function decodePart(answer, broken = null) {
  const ids = answer.lanes.map(laneId);
  const lanes = new Map(ids.map((id) => [id, { depths: [], instants: { time: [], count: [], name: [], place: [] }, updates: { time: [], count: [] }, counters: [] }]));
  const content = (number) => lanes.get(ids[number]);
  const from = BigInt(answer.from);
  const { bucket } = answer;
  const length = Number(BigInt(answer.to) - from);
  const has = (time, count) => !broken || count === 1 || (time >= 0 && time + bucket <= length);
  addSpans(answer, content, has);
  addInstants(answer, content, has);
  addCounters(answer, content, has);
  return { from, to: BigInt(answer.to), version: answer.version, lanes, losses: lossesOf(answer, ids), bucket: answer.bucket, oneIn: answer.one_in };
}

/** Call `add(time, count)` for all that happens in a lane: each span, instant and update of counters, or several of them
    at once. */
export function eachEvent({ depths, instants, updates }, add) {
  for (const row of depths) row?.start.forEach((time, index) => add(time, row.count[index]));
  for (const { time: times, count } of [instants, updates]) times.forEach((time, index) => add(time, count[index]));
}

function place(answer, lane, offset) {
  const { source, session } = answer.lanes[lane];
  return offset === null ? null : `${source}/${session}/${offset}`;
}

function addSpans(answer, content, has) {
  const { lane, depth, begin, end, name, count, busy, offset, open } = answer.spans;
  for (let index = 0; index < lane.length; index += 1) {
    if (!has(begin[index], count[index])) continue;
    const { depths } = content(lane[index]);
    const row = (depths[depth[index]] ??= { start: [], end: [], name: [], count: [], busy: [], place: [], open: [], longest: 0 });
    const finish = end[index] ?? begin[index];
    row.start.push(begin[index]);
    row.end.push(finish);
    row.name.push(answer.names[name[index]]);
    row.count.push(count[index]);
    row.busy.push(busy[index]);
    row.place.push(place(answer, lane[index], offset[index]));
    row.open.push(open[index]);
    row.longest = Math.max(row.longest, open[index] ? Infinity : finish - begin[index]);
  }
}

function addInstants(answer, content, has) {
  const { lane, time, count, name, offset } = answer.instants;
  for (let index = 0; index < lane.length; index += 1) {
    if (!has(time[index], count[index])) continue;
    const { instants } = content(lane[index]);
    instants.time.push(time[index]);
    instants.count.push(count[index]);
    instants.name.push(name[index] === null ? SEVERAL : answer.names[name[index]]);
    instants.place.push(place(answer, lane[index], offset[index]));
  }
}

function addCounters(answer, content, has) {
  const { lane, label, name, time, count, least, most, latest } = answer.counters;
  const known = new Map();
  for (let index = 0; index < lane.length; index += 1) {
    if (!has(time[index], count[index])) continue;
    const { counters, updates } = content(lane[index]);
    addUpdates(updates, known, `${lane[index]} ${label[index]} ${time[index]}`, time[index], count[index]);
    const text = answer.names[name[index]];
    let counter = counters.find((each) => each.name === text);
    if (!counter) {
      counter = { name: text, time: [], count: [], min: [], max: [], last: [] };
      counters.push(counter);
    }
    counter.time.push(time[index]);
    counter.count.push(count[index]);
    counter.min.push(least[index]);
    counter.max.push(most[index]);
    counter.last.push(latest[index]);
  }
}

/** Add events that update counters. The members of one event come as counters of one label: these events count once.
    `known` has the place of each `key` in `updates`. */
function addUpdates(updates, known, key, time, count) {
  if (!known.has(key)) {
    known.set(key, updates.time.push(time) - 1);
    updates.count.push(0);
  }
  const place = known.get(key);
  updates.count[place] = Math.max(updates.count[place], count);
}

/** Return `losses`: by stream, its `gaps` in a frame, and the `lanes` whose events may be missing. These are the lanes of
    the stream, or all of the session if the stream is unknown. A gap without times fills the frame. */
function lossesOf(answer, ids) {
  const losses = new Map();
  const length = Number(BigInt(answer.to) - BigInt(answer.from));
  const shown = new Set(answer.lanes.map(streamId));
  for (const gap of answer.gaps) {
    const stream = streamId(gap);
    if (!shown.has(stream)) continue;
    if (!losses.has(stream)) losses.set(stream, { gaps: [], lanes: ids.filter((_, index) => concerns(gap, answer.lanes[index])) });
    losses.get(stream).gaps.push({
      ...gap,
      missing: gap.remaining,
      partly: isPartly(gap),
      start: gap.begin ?? Math.min(-length, gap.end ?? 0),
      end: gap.end ?? Math.max(2 * length, gap.begin ?? 0),
    });
  }
  return losses;
}

/** Return whether only a part of the numbers from a gap's first to its last is missing. */
function isPartly({ first, last, remaining }) {
  return first !== null && last !== null && remaining !== null && BigInt(last) - BigInt(first) >= BigInt(remaining);
}

function concerns({ source, session, stream }, lane) {
  return source === lane.source && session === lane.session && (!stream || stream === lane.stream);
}
