// Timeline: lanes over time, from days to nanoseconds, with every gap in sight.

import { format } from "../address.js";
import { address, get } from "../api.js";
import { Again } from "../parts/again.js";
import { h } from "../parts/dom.js";
import { filtersOf } from "../parts/places.js";
import { Busy } from "../timeline/busy.js";
import { breaksOf, firstLook, isWithin } from "../timeline/breaks.js";
import { TimeCanvas } from "../timeline/canvas.js";
import { OwnClock, WALL_CLOCK } from "../timeline/clock.js";
import { Details } from "../timeline/details.js";
import { Finder } from "../timeline/finder.js";
import { Frames } from "../timeline/frames.js";
import { itemAt } from "../timeline/hit.js";
import { describe, describeShare, emptiness, placeOf } from "../timeline/words.js";
import { keys } from "../timeline/keys.js";
import { Folds } from "../timeline/folds.js";
import { axesOf, boundsOf, decodeLanes, headingsOf, sessionsOf, settle, WALL } from "../timeline/lanes.js";
import { Layout, Shapes } from "../timeline/layout.js";
import { Legend } from "../timeline/legend.js";
import { Notice } from "../timeline/notice.js";
import { arranged, markOf } from "../timeline/order.js";
import { Gestures } from "../timeline/pointer.js";
import { RangeBar } from "../timeline/rangebar.js";
import { SampleNote } from "../timeline/sample.js";
import { StatusLine } from "../timeline/statusline.js";
import { Toolbar } from "../timeline/toolbar.js";
import { Viewport } from "../timeline/viewport.js";

const EMPTY = { from: 0n, to: 1n };
const NO_BREAKS = [];
const NO_STRETCHES = { begins: [], ends: [] };
const PATIENCE_MILLISECONDS = 300;

const rest = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export class Timeline {
  constructor(root, frame, params) {
    this.frame = frame;
    this.params = params;
    this.view = new Viewport(EMPTY);
    this.canvas = new TimeCanvas(this.view);
    this.canvas.resized = () => this.moved(false);
    this.bar = new RangeBar(this.view, () => this.moved());
    this.frames = new Frames(this.canvas, { asked: () => this._notice.reads(), arrived: (each) => this._arrived(each), failed: (error) => this._failed(error), rests: () => this._notice.rests() });
    this.details = new Details({ closed: () => this.clear(), opened: (place) => this.openRow(place), shown: (from, to) => this.reveal(from, to) });
    this.finder = new Finder(this);
    this.toolbar = new Toolbar({
      searched: (text) => this.finder.search(text),
      match: (way) => this.finder.match(way),
      gap: (way) => this.finder.gap(way),
      chosen: (clock) => this.note({ clock, from: null, to: null }, true),
      filtered: (session) => this.note({ session: session.split("/").at(-1), source: session.split("/")[0], from: null, to: null }, true),
      arranged: (changes) => this.arrange(changes),
      placed: (changes) => this.note({ ...changes, from: null, to: null }, true),
      zoom: (factor) => this.zoom(factor),
      whole: () => this.whole(),
      follow: () => this.follow(!this.following),
      fold: () => this.foldTime(!this.isTimeFolded),
    }, params, frame.store);
    new Gestures(this.canvas, {
      moved: () => this.moved(),
      hovered: (x, y) => this._hovered(x, y),
      picked: (x, y) => this._picked(x, y),
      selected: (from, to, done) => this.select(from, to, done),
    });
    this._again = new Again(() => this._load());
    this._busy = new Busy(() => this.filters, () => this._sorted());
    this._shapes = new Shapes();
    this._folds = new Folds(params.folded);
    this._breaks = NO_BREAKS;
    this._listed = [];
    this._status = new StatusLine(this.canvas);
    this._clockNote = h("p", { class: "clock-note", hidden: true });
    this._sample = new SampleNote();
    this._notice = new Notice(this.canvas);
    this._legend = new Legend((name) => {
      this.canvas.only = name;
      this.canvas.draw();
    });
    this.canvas.painted = () => {
      this._notice.draw();
      this._legend.draw({ ...this.canvas.sight, bar: this.bar.isLossy });
    };
    root.append(h("h1", { class: "spoken" }, "Timeline"), h("div", { class: "timeline" },
      this.toolbar.element,
      h("div", { class: "sight" }, this.bar.element, this._clockNote, this._sample.element, this.canvas.element, this._legend.element, this._notice.element),
      this.details.element,
      this._status.element));
    this._stop = frame.live.listen(({ latest }) => this._news(latest));
    this._again.want();
  }

  get clock() {
    return this.canvas.clock;
  }

  get following() {
    return this.params.follow === "1";
  }

  /** Return whether long stretches of empty time are drawn as breaks. */
  get isTimeFolded() {
    return this.params.empty !== "shown";
  }

  close() {
    this._stop();
    this._again.close();
    this._busy.close();
    this.frames.close();
    this._notice.close();
    this.canvas.close();
    this.bar.close();
    this._closed = true;
  }

  /** Take over an address that a person has entered, or gone back to. */
  update(params) {
    const lanes = ["session", "source", "clock", "rank", "node", "job"].some((each) => params[each] !== this.params[each]);
    const empty = params.empty !== this.params.empty;
    this.params = params;
    if (empty && !lanes) this._refold();
    this.toolbar.following(this.following);
    this.toolbar.places.show(params);
    this._folds.read(params.folded);
    this.toolbar.arrange(params);
    if (lanes) this._anew();
    else {
      this._order();
      this._relay();
      this._restore();
    }
  }

  key(event) {
    return keys(this, event);
  }

  /** Note changed parameters in the address; read the lanes anew if asked for. */
  note(changes, lanes = false) {
    this.params = { ...this.params, ...changes };
    this.frame.address.note(changes);
    if (lanes) this._anew();
  }

  /** Show what a changed viewport shows. A person who moves no longer follows. */
  moved(person = true) {
    if (person && this.following) this.follow(false);
    this.canvas.draw();
    this.bar.draw();
    this.frames.want();
    this._status.draw(this._isNewest, this._listed);
    if (person) this.note({ from: this.view.from, to: this.view.to });
  }

  zoom(factor, x = this.view.width / 2) {
    this.view.zoom(factor, x);
    this.moved();
  }

  whole() {
    this.view.whole();
    this.moved();
  }

  /** Show a time or a range with some room around it. What lies in a break opens all breaks. */
  reveal(from, to = from) {
    if (isWithin(this.view.breaks, from, to)) this.foldTime(false);
    this.view.reveal(from, to);
    this.moved();
  }

  /** Draw long stretches of empty time as breaks, or to scale. */
  foldTime(on) {
    if (on === this.isTimeFolded) return;
    const { from, to } = this.view;
    this.note({ empty: on ? null : "shown" });
    this._refold();
    if (isWithin(this.view.breaks, from, to)) this.view.whole();
    else this.view.show(from, to);
    this.moved(false);
  }

  follow(on) {
    this.note({ follow: on ? "1" : null });
    this.toolbar.following(on);
    if (!on) return;
    this._followsAll = this.view.length >= this._span;
    this._keepUp();
  }

  /** Return how long all of time is. */
  get _span() {
    return Number(this.view.bounds.to - this.view.bounds.from);
  }

  /** Show the newest events: as much time as when following began. If that was all, the window grows to 10 s. */
  _keepUp() {
    const length = BigInt(Math.ceil(Math.min(this._followsAll ? this._span : this.view.length, 10e9)));
    this.view.show(this.view.bounds.to - (length * 9n) / 10n, this.view.bounds.to + length / 10n);
    this.moved(false);
  }

  /** Select a range; null clears it. While a person still drags, nothing is asked. */
  select(from, to, done) {
    this.canvas.selection = from === null ? null : { from, to };
    this.canvas.draw();
    this._status.draw(this._isNewest, this._listed);
    if (!done) return;
    this.note({ sel: from === null ? null : `${from},${to}`, row: null });
    if (from === null) this.details.hide();
    else this._showSelection();
  }

  /** Show what is known of an item: a span, instant, gap, several of them; null clears. */
  pick(item) {
    this.canvas.picked = item;
    this.canvas.draw();
    if (!item) {
      this.clear();
      return;
    }
    const { lane } = this.canvas.layout.of(item.lane);
    this.canvas.focused = item.lane;
    this.frame.announce(describe(item, lane, this.clock));
    if (item.gap) this.details.gap(item, lane, this.clock);
    else if (item.place) this.openRow(item.place);
    else if (item.count > 1) this.details.several(item, lane, this.clock);
  }

  openRow(place) {
    this.note({ row: place });
    this.details.row(place);
  }

  /** Clear selection, row and details. */
  clear() {
    this.canvas.selection = null;
    this.canvas.picked = null;
    this.details.hide();
    this.note({ sel: null, row: null });
    this.canvas.draw();
    this._status.draw(this._isNewest, this._listed);
  }

  /** Fold or open a group: by its key, or the process of the focused lane. */
  fold(key = this._focused?.groups.at(-1)) {
    if (key === undefined) return;
    this._folds.set(key, !this._folds.has(key));
    this._folded();
  }

  /** Fold all groups, or open all if one is folded. */
  foldAll() {
    this._folds.setAll(!this.canvas.layout?.headings.some((each) => each.folded));
    this._folded();
  }

  /** Pin a lane on top, or unpin it: by default, the focused one. */
  pin(lane = this._focused) {
    if (!lane) return;
    const marks = (this.params.pins ?? "").split(",").filter(Boolean);
    const mark = markOf(lane);
    const others = marks.filter((each) => each !== mark);
    this.canvas.focused = lane.id;
    this.arrange({ pins: (others.length < marks.length ? others : [...marks, mark]).join(",") || null });
  }

  /** Sort, select or pin lanes in another way, and show the first of them. */
  arrange(changes) {
    this.note(changes);
    this._order();
    this._relay();
    this.canvas.scrollTo(0);
    this.moved(false);
  }

  /** Open the groups of a lane. A lane that the filter hides is shown again. */
  unfold(id) {
    if (!this.canvas.layout?.lanes.some((each) => each.id === id)) {
      this.arrange({ lanes: null });
      this.toolbar.arrange(this.params);
    }
    const lane = this.canvas.layout?.lanes.find((each) => each.id === id);
    if (!lane) return;
    for (const key of lane.groups) this._folds.set(key, false);
    this._folded();
  }

  /** Show names and ids of a lane: by default, the focused one. */
  about(lane = this._focused) {
    if (!lane) return;
    this.canvas.focused = lane.id;
    this.canvas.draw();
    this.details.lane(lane, this.frame.names.refresh(this._version, [lane]).then(() => this.frame.names.facts(lane)));
  }

  zoomToSelection() {
    if (!this.canvas.selection) return;
    const { from, to } = this.canvas.selection;
    this.view.show(from, to);
    this.moved();
  }

  /** Go to another view with the selection, or with what is in sight. */
  leave(view) {
    const { from, to } = this.canvas.selection ?? this.view;
    if (this.clock.wall) this.frame.address.go(view, { from, to, ...this.filters });
  }

  get _look() {
    return firstLook(this._breaks, this.view.bounds, !this.isTimeFolded);
  }

  /** Return whether earlier events exist that the first look left out, and the left edge is still there. */
  get _isNewest() {
    return this._look.skipped && !this.params.from;
  }

  /** Return all lanes on the axis that is chosen, whether they are shown or not. */
  get lanes() {
    return this._listed;
  }

  /** Return the axis of the lanes shown. */
  get axis() {
    return this._axis;
  }

  /** Return the parameters that narrow questions to the lanes shown. */
  get filters() {
    return filtersOf(this.params);
  }

  /** Read other lanes, and show the window of the address, or the first look at these lanes. */
  _anew() {
    this._axis = null;
    this.bar.clear();
    this._load();
  }

  async _load() {
    const turn = (this._turn = (this._turn ?? 0) + 1);
    this._loadedRows = this._preparing?.rows;
    try {
      const answer = await get("lanes", this.filters);
      if (turn !== this._turn || this._closed) return;
      this._version = answer.version;
      const all = decodeLanes(answer);
      const axes = axesOf(all);
      const axis = axes.find((each) => each.id === this.params.clock) ?? axes[0] ?? { id: WALL };
      const bounds = boundsOf(all.filter((lane) => lane.axis === axis.id)) ?? EMPTY;
      const breaks = this._readBreaks(axis.id, bounds, turn);
      if (this._axis !== axis.id) await Promise.race([breaks, rest(PATIENCE_MILLISECONDS)]);
      if (turn !== this._turn || this._closed) return;
      const lanes = this._lanes(all, axes, axis, bounds);
      await this.frames.answered; // What is in sight comes before the bar, which has all lanes and all of time.
      if (turn !== this._turn || this._closed) return;
      await Promise.all([breaks, this.bar.load(lanes)]);
      this._showSample();
      this._order();
    } catch (error) {
      if (turn !== this._turn || this._closed) return;
      this._failed(error);
      this.bar.failed(error);
    }
  }

  /** Read the breaks of an axis. Lanes that are shown first wait for them a little. */
  async _readBreaks(axis, bounds, turn) {
    const answer = await get("lanes/empty", { axis, ...this.filters }).catch(() => NO_STRETCHES);
    if (turn !== this._turn || this._closed) return;
    const shown = this._axis === axis;
    const breaks = breaksOf(answer, bounds, shown ? this._breaks : NO_BREAKS);
    if (!shown) this._break(breaks);
    else if (breaks !== this._breaks) this._breakShown(breaks);
  }

  /** Break the time that is shown. What is in sight stays, unless it is the first look or all of time. */
  _breakShown(breaks) {
    const { from, to, bounds } = this.view;
    this._break(breaks);
    this._refold();
    if (this.following) this.follow(true);
    else if (!this.params.from) this.view.whole(this._look);
    else if (from <= bounds.from && to >= bounds.to) this.view.whole();
    else if (isWithin(this.view.breaks, from, to)) this.foldTime(false);
    else this.view.show(from, to);
    this.moved(false);
  }

  /** Show lanes. Return those on the axis that is chosen. */
  _lanes(all, axes, axis, bounds) {
    const lanes = all.filter((lane) => lane.axis === axis.id);
    const session = this.params.session ? `${this.params.source}/${this.params.session}` : "";
    this.toolbar.offer(axes, axis.id, sessionsOf(this.params.session ? all : lanes), session);
    const first = this._axis !== axis.id;
    this._axis = axis.id;
    settle(lanes, bounds);
    if (first) this.canvas.clock = axis.id === WALL ? WALL_CLOCK : new OwnClock(bounds.from, axis.words);
    this._clockNote.hidden = this.clock.wall;
    this._clockNote.textContent = `No wall time here. ${axis.words}. Distances on this axis are true to the producer’s clock; the dates are not.`;
    this._listed = lanes;
    this._lay();
    if (!lanes.length) this._notice.rests();
    this.view.bounds = bounds;
    if (first) this._restore();
    else this._grown();
    return lanes;
  }

  /** Show the window, selection and row of the address. */
  _restore() {
    const { window, selection, row, scroll } = stateOf(this.params);
    if (window && isWithin(this.view.breaks, window.from, window.to)) this.foldTime(false);
    if (window) this.view.show(window.from, window.to);
    else this.view.whole(this._look);
    this.canvas.scrollTo(scroll || this.canvas.scroll);
    this.canvas.selection = selection;
    if (row) this.details.row(row);
    else if (this.canvas.selection) this._showSelection();
    else this.details.hide();
    if (this.following) this.follow(true);
    this.moved(false);
  }

  /** Take over the breaks of the lanes shown. */
  _break(breaks) {
    this._breaks = breaks;
    this.view.breaks = this.isTimeFolded ? breaks : NO_BREAKS;
    this.toolbar.folding(breaks, this.isTimeFolded);
  }

  /** Take over whether time is folded. */
  _refold() {
    this._break(this._breaks);
    if (this.canvas.layout) this.bar.load(this._listed);
  }

  _grown() {
    if (this.following) this._keepUp();
    this.frames.expire();
    this.moved(false);
  }

  _news(latest) {
    if (!latest) return;
    this._preparing = latest.preparing;
    this._showSample();
    const finer = this._oneIn > 1 && latest.preparing?.rows !== this._loadedRows;
    if (latest.version !== this._version || finer) this._again.want();
  }

  /** Return one in how many events the lanes or the bar show. */
  get _oneIn() {
    return Math.max(this.canvas.frame?.oneIn ?? 1, this.bar.oneIn);
  }

  _showSample() {
    this._sample.draw(this._oneIn, this._preparing);
  }

  _arrived(frame) {
    const grown = frame.parts.map((part) => this._shapes.learn(part, this.canvas.layout.lanes));
    if (grown.includes(true)) this._relay();
    this.canvas.frame = frame;
    this._showSample();
    this._notice.rests();
    this.canvas.draw();
    this._status.draw(this._isNewest, this._listed);
  }

  /** Request the busy times if lanes are sorted by them (unless `ask` is false), and update the text about the order. */
  _order(ask = true) {
    if (ask && this.params.sort === "busy") this._busy.want();
    this._status.order = this.params.sort === "busy" ? this._busy.words : "";
  }

  /** Sort the lanes again, after busy times have arrived. */
  _sorted() {
    if (this.params.sort !== "busy") return;
    const { scroll } = this.canvas;
    this._order(false);
    this._relay();
    if (!scroll) this.canvas.scrollTo(0);
    this.moved(false);
  }

  _lay() {
    for (const lane of this._listed) lane.busy = this._busy.of(lane);
    const lanes = arranged(this._listed, this.params);
    this.canvas.hidden = lanes.length < this._listed.length;
    this.canvas.show(new Layout(lanes, this._shapes, headingsOf(lanes), this._folds));
  }

  /** Lay the lanes out anew: some need more rows, or were folded. The lane at the top stays where it is. */
  _relay() {
    if (!this.canvas.layout) return;
    const top = this.canvas.seen().find(({ y }) => y >= this.canvas.pinned);
    const before = (top?.y ?? 0) - this.canvas.pinned;
    this._lay();
    const place = top && this.canvas.layout.of(top.lane.id);
    const after = place ? place.y - this.canvas.pinned : before;
    this.canvas.scrollTo(this.canvas.scroll + after - before);
    this.frames.want();
  }

  _folded() {
    this.note({ folded: this._folds.text || null });
    this._relay();
    this.moved(false);
  }

  get _focused() {
    const { focused, layout } = this.canvas;
    return layout?.lanes.find((each) => each.id === focused) ?? this.canvas.seen()[0]?.lane ?? layout?.lanes[0];
  }

  _picked(x, y) {
    const heading = this.canvas.headingAt(y);
    const lane = this.canvas.nameAt(x, y);
    if (heading) this.fold(heading.key);
    else if (lane) this.about(lane);
    else {
      const item = itemAt(this.canvas, x, y);
      const broken = item ? null : this.canvas.breakAt(x);
      if (broken) this.reveal(broken.from, broken.to);
      else this.pick(item);
    }
  }

  _failed(error) {
    this._notice.rests(error);
    this.canvas.draw();
  }

  _showSelection() {
    const { from, to } = this.canvas.selection;
    if (!this.clock.wall) this.details.hide();
    else this.details.range(from, to, this.filters, links(this));
  }

  _hovered(x, y) {
    const heading = this.canvas.headingAt(y);
    const item = x < 0 || heading ? null : itemAt(this.canvas, x, y);
    this.canvas.element.classList.toggle("pointed", Boolean(heading || this.canvas.nameAt(x, y) || (!item && this.canvas.breakAt(x))));
    this._status.hovered(this._about(x, y, heading, item));
    if (item?.start !== this.canvas.hovered?.start || item?.lane !== this.canvas.hovered?.lane || item?.depth !== this.canvas.hovered?.depth) {
      this.canvas.hovered = item;
      this.canvas.draw();
    }
  }

  /** Return a text about what is under the pointer. A lane's name and a heading have ids behind them. */
  _about(x, y, heading, item) {
    if (x < 0) return "";
    const part = heading ? null : this.canvas.shareAt(x, y);
    if (part) return describeShare(part, part.place.lane);
    if (item) return describe(item, this.canvas.layout.of(item.lane).lane, this.clock);
    const lane = heading ? null : this.canvas.nameAt(x, y);
    if (lane) return `${placeOf(lane)}${lane.lacks ? ` · ${lane.lacks} missing` : ""} · session ${lane.session} · stream ${lane.stream || "unknown"}`;
    const broken = this.canvas.breakAt(x);
    if (broken && !heading) return emptiness(broken, this.clock);
    return heading ? `${heading.title} · ${heading.subtitle}${heading.lacks ? ` · ${heading.lacks}` : ""} · a click ${heading.folded ? "opens" : "folds"} it` : "";
  }
}

/** Return the state of an address: `window` and `selection` are null where it has none. */
function stateOf({ from, to, sel, row, y }) {
  const [begin, end] = (sel ?? "").split(",");
  return { window: range(from, to), selection: range(begin, end), row, scroll: Number(y) };
}

function range(from, to) {
  return isTime(from) && isTime(to) ? { from: BigInt(from), to: BigInt(to) } : null;
}

function isTime(text) {
  return /^-?\d+$/.test(text ?? "");
}

/** Return buttons and links for the selection of a timeline. */
function links(timeline) {
  const { from, to } = timeline.canvas.selection;
  const range = { from, to, ...timeline.filters };
  const exports = timeline.frame.store.exports.map((each) => each.name);
  return [
    h("button", { type: "button", class: "primary", on: { click: () => timeline.zoomToSelection() } }, "Zoom"),
    h("a", { class: "button", href: format("statistics", range) }, "Statistics"),
    h("a", { class: "button", href: format("notes", range) }, "Note"),
    exports.includes("perfetto") ? h("a", { class: "button", href: address("export", { format: "perfetto", ...range }), download: "" }, "Perfetto file") : null,
  ];
}

export function open(root, frame, params) {
  return new Timeline(root, frame, params);
}
