// The canvas of the timeline: draws what a frame has of the lanes in sight, whatever window the frame was asked for.

import { h, scale } from "../parts/dom.js";
import { colours, font, onChange } from "../parts/theme.js";
import { AXIS_HEIGHT, drawAxis, drawBreak } from "./axis.js";
import { WALL_CLOCK } from "./clock.js";
import { eachEvent } from "./decode.js";
import { APART, BAND, columnWidth, drawGap, drawLabel, drawShares, extent, joinedShares, sharesOf } from "./gaps.js";
import { drawHeading, drawName, gutterWidth } from "./gutter.js";
import { streamId } from "./lanes.js";
import { BAR, COUNTER, HEADING, ROW } from "./layout.js";
import { sightAt, sightsOf } from "./sights.js";
import { drawCounters, drawInstants, drawSpans } from "./spans.js";

export const MEASURE = "tailrace.draw";
const MOST_MEASURES = 2000;
const NO_LOSS = { gaps: [], lanes: [] };
/** How faint a gap is in the lanes of its stream that do not carry it. */
const STEPPED_BACK = 0.4;

/** Return what the legend explains, before anything is drawn: the pixels of each name, and whether there are any instants,
 * marks for several spans, gaps in which nothing is left, and shares of missing events. */
const sightOfNothing = () => ({ names: new Map(), instants: false, several: false, gaps: false, shares: false });

/** Return the heights on the canvas of a lane's rows of spans and counters, which begin at `y`. */
function barsOf({ rows, counters }, y) {
  const bars = Array.from({ length: rows }, (_, depth) => ({ y: y + depth * ROW + 1, height: BAR }));
  return counters.length ? [...bars, { y: y + rows * ROW, height: counters.length * COUNTER }] : bars;
}

export class TimeCanvas {
  constructor(view) {
    this.view = view;
    this.layout = null;
    this.frame = null;
    this.clock = WALL_CLOCK;
    this.scroll = 0;
    this.selection = null;
    this.picked = null;
    this.hovered = null;
    this.focused = null;
    this.only = null;
    this.hidden = false;
    this.sight = sightOfNothing();
    this._strips = [];
    this.bare = false;
    this.height = 0;
    this.left = 0;
    this.pinned = 0;
    this._waiting = 0;
    this._measures = 0;
    this.element = h("canvas", { class: "lanes", tabindex: "0", role: "application", "aria-label": "Timeline", "aria-describedby": "timeline-keys" });
    this._pen = this.element.getContext("2d", { alpha: false });
    this._size = new ResizeObserver(() => this.resize());
    this._size.observe(this.element);
    this._stop = onChange(() => this.draw());
  }

  close() {
    cancelAnimationFrame(this._waiting);
    this._stop();
    this._size.disconnect();
  }

  /** Return the height of what lies below the axis. */
  get room() {
    return Math.max(0, this.height - AXIS_HEIGHT);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    scale(this.element, this._pen);
    this.height = height;
    this._pinned();
    this._divide(width);
    this.resized?.();
    this._paint();
  }

  /** Take another layout. */
  show(layout) {
    this.layout = layout;
    this._pinned();
    if (this.height) this._divide(this.element.clientWidth);
  }

  /** Compute the height that pinned lanes keep at the top: at most half of the room. */
  _pinned() {
    this.pinned = this.layout?.pinned(this.room / 2) ?? 0;
  }

  _divide(width) {
    this.left = gutterWidth(this._pen, width, this.layout?.lanes ?? []);
    this.view.resize(Math.max(1, width - this.left));
  }

  /** Draw once before the browser shows its next frame. */
  draw() {
    this._waiting ||= requestAnimationFrame(() => {
      this._waiting = 0;
      this._paint();
    });
  }

  /** Scroll the lanes to a height, as far as there are lanes. */
  scrollTo(y) {
    this.scroll = Math.max(0, Math.min(y, (this.layout?.height ?? 0) - this.room));
    this.draw();
  }

  /** Scroll so that a lane is in sight. */
  bringIn({ lane, y, height }) {
    const { pinned, room, scroll } = this;
    if (y < pinned || (y >= scroll + pinned + lane.groups.length * HEADING && y + height <= scroll + room)) return;
    this.scrollTo(y - pinned - (room - pinned) / 3);
  }

  /** Return the lanes in sight, the pinned ones first, and those of `more` screens above and below. */
  seen(more = 0) {
    const { layout, pinned, room, scroll } = this;
    if (!layout) return [];
    const rest = layout.between(Math.max(pinned, scroll + pinned - more * room), scroll + (1 + more) * room);
    return pinned ? [...layout.between(0, pinned), ...rest] : rest;
  }

  /** Return the height on the canvas of a height of the layout. Pinned lanes do not scroll. */
  topOf(y) {
    return AXIS_HEIGHT + y - (y < this.pinned ? 0 : this.scroll);
  }

  /** Return the place of the lane at a height of the canvas, or undefined. */
  placeAt(y) {
    const inside = y - AXIS_HEIGHT;
    return this.layout?.at(inside < this.pinned ? inside : inside + this.scroll);
  }

  /** Return the headings in sight, each with its place `top` on the canvas. Those of the first lane in sight stay at the
   * top while their lanes are in sight, and come last, because they lie over the others. */
  headings() {
    if (!this.layout) return [];
    const first = this.seen().find(({ y }) => y >= this.pinned);
    const [sight, kept] = [[], []];
    for (const each of this.layout.headings) {
      const begin = AXIS_HEIGHT + (each.y < this.pinned ? 0 : this.pinned);
      const [top, least] = [this.topOf(each.y), begin + each.level * HEADING];
      if (top + HEADING > begin && top < this.height) sight.push({ ...each, top });
      if (top < least && first?.lane.groups.includes(each.key)) kept.push({ ...each, top: least, kept: true });
    }
    return [...sight, ...kept];
  }

  /** Return where lanes come out from under the headings that stay at the top. */
  get roof() {
    return AXIS_HEIGHT + this.pinned + this.headings().filter(({ kept }) => kept).length * HEADING;
  }

  /** Return the heading at a height of the canvas, or undefined. */
  headingAt(y) {
    const isPinned = y < AXIS_HEIGHT + this.pinned;
    return y < AXIS_HEIGHT ? undefined : this.headings().findLast((each) => each.y < this.pinned === isPinned && y >= each.top && y < each.top + HEADING);
  }

  /** Return the lane whose name is at a place of the canvas, or undefined. */
  nameAt(x, y) {
    return x >= this.left || y < AXIS_HEIGHT ? undefined : this.placeAt(y)?.lane;
  }

  /** Return the gaps of a lane in a part of the frame, which are those of its stream, and the lanes whose events may be
   * missing there. */
  lossOf(lane, part) {
    return part.losses.get(streamId(lane)) ?? NO_LOSS;
  }

  /** Return the lanes that carry the losses of their streams: the one with a strip for them or, if its foot is out of
   * sight, the first lane of the stream whose foot is in sight. */
  carriers() {
    const carriers = new Map();
    const { roof } = this;
    for (const place of this.seen()) {
      const stream = streamId(place.lane);
      const known = carriers.get(stream);
      const isHidden = known && known.y >= this.pinned && this.foot(known) < roof + BAND;
      if (!known || isHidden || (place.strip && !known.strip)) carriers.set(stream, place);
    }
    return new Set(carriers.values());
  }

  /** Return where the foot of a lane is: where the lane ends, or the part of it in sight. */
  foot({ y, height }) {
    return Math.min(Math.round(this.topOf(y) + height) - 1, this.height);
  }

  /** Return the height of the band of losses at the foot of a lane. Lanes without a strip lend their last pixels. */
  band({ strip }) {
    return strip ? strip - 2 : BAND;
  }

  /** Return what is missing at a place in a band of losses: the lane's `place`, how many events are `here` and `lost`, and
   * whether more may be missing (`unknown`). Return null elsewhere, and where a hatch lies over the band. */
  shareAt(x, y) {
    const seen = y < AXIS_HEIGHT ? undefined : this.placeAt(y);
    const strip = this._strips.find(({ place, left, top, right, bottom }) => place === seen && x >= left && x < right && y >= top && y <= bottom);
    if (strip?.hatched.some((gap) => x >= gap.x && x < gap.x + gap.length)) return null;
    const index = strip && Math.floor((x - strip.left) / strip.step);
    if (!strip || !(strip.lost[index] || strip.unknown[index])) return null;
    return { place: strip.place, here: strip.here[index], lost: strip.lost[index], unknown: Boolean(strip.unknown[index]) };
  }

  /** Return whether the frame has everything in sight, however coarse. */
  get whole() {
    const { frame, view } = this;
    return Boolean(frame) && frame.clock === this.clock && view.from >= frame.from && view.to <= frame.to
      && this.seen().every((place) => frame.asked.has(place.lane.id));
  }

  /** Return the break at a place of the canvas, or null. */
  breakAt(x) {
    return this.view.pieces().find((piece) => piece.broken && x >= this.left + piece.x && x < this.left + piece.end)?.broken ?? null;
  }

  /** Return how the times of the frame's part at a pixel become places, or undefined. */
  sightAt(x) {
    return sightAt(sightsOf(this.view, this.frame, this.left), x);
  }

  _paint() {
    if (!this.height) return;
    const began = performance.now();
    const { _pen: pen, view, left } = this;
    const { width } = view;
    pen.fillStyle = colours().surface;
    pen.fillRect(0, 0, left + width, this.height);
    if (this.layout?.lanes.length) drawAxis(pen, view, { left, width, height: this.height, clock: this.clock });
    if (this.layout) this._lanes(pen, left, width);
    this._range(pen, left);
    this._measure(began);
    this.painted?.();
  }

  _lanes(pen, left, width) {
    const [seen, headings] = [this.seen(), this.headings()];
    const sights = sightsOf(this.view, this.frame, left);
    for (const { broken, x, end } of this.view.pieces()) if (broken) drawBreak(pen, left + x, end - x, AXIS_HEIGHT, this.room);
    const carriers = this.carriers();
    let drawn = false;
    this.sight = sightOfNothing();
    this._strips = [];
    for (const [isPinned, top, height] of [[true, AXIS_HEIGHT, this.pinned], [false, AXIS_HEIGHT + this.pinned, this.room - this.pinned]]) {
      const among = ({ y }) => y < this.pinned === isPinned;
      pen.save();
      pen.beginPath();
      pen.rect(0, top, left + width, height);
      pen.clip();
      drawn = this._section(pen, { places: seen.filter(among), headings: headings.filter(among), sights, carriers, left, width }) || drawn;
      pen.restore();
    }
    this.bare = !drawn && !headings.some(({ folded }) => folded);
    if (!this.pinned) return;
    pen.fillStyle = colours().soft;
    pen.fillRect(0, AXIS_HEIGHT + this.pinned - 1, left + width, 1);
  }

  /** Draw lanes and headings: the pinned ones, or the others. Return whether the lanes have anything in sight. */
  _section(pen, { places, headings, sights, carriers, left, width }) {
    let drawn = false;
    for (const place of places) {
      const y = this.topOf(place.y);
      pen.fillStyle = colours().line;
      pen.fillRect(left, y + place.height - 1, width, 1);
      for (const sight of sights) drawn = this._lane(pen, place, y, sight, carriers.has(place)) || drawn;
      if (this.frame) this._marked(pen, place, y + 2);
    }
    for (const place of places) drawName(pen, place, { y: this.topOf(place.y), left, focused: this.focused === place.lane.id });
    for (const heading of headings) drawHeading(pen, heading, { y: heading.top, left, width });
    return drawn;
  }

  /** Draw what a lane has in a part of the frame, over the gaps in which nothing is left, and the losses of its stream if
   * it carries them. Return whether the lane has anything in sight. */
  _lane(pen, place, y, { part, ...sight }, carries) {
    const content = part.lanes.get(place.lane.id);
    const measures = { ...sight, y: y + 2 };
    const { left, width } = sight;
    let drawn = false;
    pen.save();
    pen.beginPath();
    pen.rect(left, y, width, place.height);
    pen.clip();
    pen.font = font(12);
    const loss = this.lossOf(place.lane, part);
    const gaps = loss.gaps.map((gap) => ({ gap, seen: extent(gap, measures) })).filter(({ seen }) => seen);
    const wide = gaps.filter(({ seen }) => seen.wide);
    if (!carries) pen.globalAlpha = STEPPED_BACK;
    for (const { seen } of wide) drawGap(pen, seen, barsOf(place, measures.y));
    pen.globalAlpha = 1;
    if (content) {
      const spans = drawSpans(pen, content, measures, { sight: this.sight, only: this.only });
      const instants = drawInstants(pen, content, measures);
      this.sight.instants ||= instants;
      drawn = [
        spans, instants,
        drawCounters(pen, content, { ...measures, y: y + 2 + place.rows * ROW }, { names: place.counters, until: this.left + this.view.x(place.lane.until), labelled: left <= this.left }),
      ].some(Boolean);
    }
    if (carries && gaps.length) {
      const foot = { y: this.foot(place), height: this.band(place) };
      const isApart = ({ seen }) => seen.wide && seen.length >= APART;
      const others = gaps.filter((each) => !isApart(each)).map(({ gap }) => gap);
      const apart = wide.filter(isApart);
      const hatched = apart.map(({ seen }) => seen);
      if (others.length) this._band(pen, part, loss.lanes, others, { ...measures, ...foot, place, hatched });
      for (const { gap, seen } of apart) {
        drawGap(pen, seen, [{ y: foot.y - foot.height, height: foot.height }]);
        if (place.strip) drawLabel(pen, gap, seen, foot);
      }
      this.sight.shares ||= others.length > 0;
    }
    pen.restore();
    this.sight.gaps ||= wide.length > 0;
    return drawn || gaps.length > 0;
  }

  /** Draw which share of the events of some lanes is missing, as a band on a foot at `y`. */
  _band(pen, part, lanes, gaps, { shift, scale, left, width, y, height, place, hatched }) {
    const narrow = columnWidth(part, scale);
    const here = new Float64Array(Math.ceil(width / narrow));
    const column = (time) => Math.floor(((time + shift) * scale) / narrow);
    for (const each of lanes) eachEvent(part.lanes.get(each), (time, count) => (here[column(time)] += count));
    const { shares, step } = joinedShares(sharesOf(gaps, { here, column }), narrow);
    drawShares(pen, shares, { x: left, step, y, height });
    this._strips.push({ place, hatched, left, right: left + width, top: y - height, bottom: y, step, ...shares });
  }

  /** Outline the picked and the hovered item of a lane. */
  _marked(pen, place, y) {
    const { left } = this;
    for (const [item, weight] of [[this.hovered, 1], [this.picked, 2.5]]) {
      if (!item || item.lane !== place.lane.id || item.start === undefined || item.gap) continue;
      const x = left + this.view.x(item.start);
      const length = Math.max(3, this.view.x(item.end ?? item.start) + left - x);
      pen.strokeStyle = colours().ink;
      pen.lineWidth = weight;
      pen.strokeRect(x - 1, y + (item.depth ?? 0) * ROW, length + 1.5, ROW - 2);
    }
  }

  _range(pen, left) {
    if (!this.selection) return;
    const { accent, select } = colours();
    const begin = Math.max(left, left + this.view.x(this.selection.from));
    const end = Math.min(left + this.view.width, left + this.view.x(this.selection.to));
    if (end < left || begin > left + this.view.width) return;
    pen.fillStyle = select;
    pen.fillRect(begin, 0, Math.max(1, end - begin), this.height);
    pen.fillStyle = accent;
    pen.fillRect(begin, 0, 1.5, this.height);
    pen.fillRect(Math.max(begin, end - 1.5), 0, 1.5, this.height);
  }

  _measure(began) {
    performance.measure(MEASURE, { start: began });
    this._measures += 1;
    if (this._measures > MOST_MEASURES) {
      performance.clearMeasures(MEASURE);
      this._measures = 0;
    }
  }
}
