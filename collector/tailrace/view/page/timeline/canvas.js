// The canvas of the timeline: draws what a frame has of the lanes in sight, whatever window the frame was asked for.

import { h, scale } from "../parts/dom.js";
import { colours, font, onChange } from "../parts/theme.js";
import { AXIS_HEIGHT, drawAxis, drawBreak } from "./axis.js";
import { WALL_CLOCK } from "./clock.js";
import { eachEvent } from "./decode.js";
import { BAND, columnWidth, drawGap, drawShares, extent } from "./gaps.js";
import { drawHeading, drawName, gutterWidth } from "./gutter.js";
import { streamId } from "./lanes.js";
import { HEADING, ROW } from "./layout.js";
import { sightAt, sightsOf } from "./sights.js";
import { drawCounters, drawInstants, drawSpans } from "./spans.js";

export const MEASURE = "tailrace.draw";
const MOST_MEASURES = 2000;
const NO_LOSS = { gaps: [], lanes: [] };

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
    this.sight = { names: new Map(), instants: false, gaps: false };
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

  /** Return the lanes that carry the narrow gaps: of each stream the first lane whose foot is in sight. */
  carriers() {
    const carriers = new Map();
    const { roof } = this;
    for (const place of this.seen()) {
      const stream = streamId(place.lane);
      const known = carriers.get(stream);
      if (!known || (known.y >= this.pinned && this.foot(known) < roof + BAND)) carriers.set(stream, place);
    }
    return new Set(carriers.values());
  }

  /** Return where the foot of a lane is: where the lane ends, or the part of it in sight. */
  foot({ y, height }) {
    return Math.min(Math.round(this.topOf(y) + height) - 1, this.height);
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
    this.sight = { names: new Map(), instants: false, gaps: false };
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

  /** Draw what a lane has in a part of the frame, and its narrow gaps if it carries them. Return whether the lane has
   * anything in sight. */
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
    if (content) {
      const spans = drawSpans(pen, content, measures, { names: this.sight.names, only: this.only });
      const instants = drawInstants(pen, content, measures);
      this.sight.instants ||= instants;
      drawn = [
        spans, instants,
        drawCounters(pen, content, { ...measures, y: y + 2 + place.rows * ROW }, { names: place.counters, until: this.left + this.view.x(place.lane.until), labelled: left <= this.left }),
      ].some(Boolean);
    }
    const loss = this.lossOf(place.lane, part);
    const gaps = loss.gaps.map((gap) => ({ gap, seen: extent(gap, measures) })).filter(({ seen }) => seen);
    for (const { gap, seen } of gaps) if (seen.wide) drawGap(pen, gap, seen, y + 1, place.height - 3);
    const narrow = gaps.filter(({ seen }) => !seen.wide).map(({ gap }) => gap);
    if (carries && narrow.length) this._band(pen, part, loss.lanes, narrow, { ...measures, y: this.foot(place) });
    pen.restore();
    this.sight.gaps ||= gaps.length > 0;
    return drawn || gaps.length > 0;
  }

  /** Draw which share of the events of some lanes is missing, as a band on a foot at `y`. */
  _band(pen, part, lanes, gaps, { shift, scale, left, width, y }) {
    const step = columnWidth(part, scale);
    const here = new Float64Array(Math.ceil(width / step));
    const column = (time) => Math.floor(((time + shift) * scale) / step);
    for (const each of lanes) eachEvent(part.lanes.get(each), (time, count) => (here[column(time)] += count));
    drawShares(pen, gaps, { here, column, x: left, step, y, height: BAND });
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
