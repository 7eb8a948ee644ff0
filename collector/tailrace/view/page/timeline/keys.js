// The keys of the timeline. `parts/help.js` lists them.

const STEP = 0.2;

const ACTIONS = {
  ArrowLeft: (timeline) => pan(timeline, -STEP), a: (timeline) => pan(timeline, -STEP),
  ArrowRight: (timeline) => pan(timeline, STEP), d: (timeline) => pan(timeline, STEP),
  "+": (timeline) => timeline.zoom(1 / 1.5), "=": (timeline) => timeline.zoom(1 / 1.5), w: (timeline) => timeline.zoom(1 / 1.5),
  "-": (timeline) => timeline.zoom(1.5), s: (timeline) => timeline.zoom(1.5),
  Home: (timeline) => timeline.whole(), 0: (timeline) => timeline.whole(),
  ArrowUp: (timeline) => timeline.finder.lane(-1),
  ArrowDown: (timeline) => timeline.finder.lane(1),
  PageUp: (timeline) => timeline.canvas.scrollTo(timeline.canvas.scroll - timeline.canvas.room * 0.8),
  PageDown: (timeline) => timeline.canvas.scrollTo(timeline.canvas.scroll + timeline.canvas.room * 0.8),
  ",": (timeline) => timeline.finder.span(-1),
  ".": (timeline) => timeline.finder.span(1),
  f: (timeline) => timeline.follow(!timeline.following),
  e: (timeline) => timeline.foldTime(!timeline.isTimeFolded),
  c: (timeline) => timeline.fold(),
  C: (timeline) => timeline.foldAll(),
  i: (timeline) => timeline.about(),
  p: (timeline) => timeline.pin(),
  o: (timeline) => timeline.toolbar.order.focus(),
  l: (timeline) => timeline.toolbar.filter.focus(),
  g: (timeline) => timeline.finder.gap(1),
  G: (timeline) => timeline.finder.gap(-1),
  n: (timeline) => timeline.finder.match(1),
  N: (timeline) => timeline.finder.match(-1),
  "/": (timeline) => timeline.toolbar.search.focus(),
  m: (timeline) => timeline.select(timeline.view.from, timeline.view.to, true),
  z: (timeline) => timeline.zoomToSelection(),
  Enter: (timeline) => timeline.leave("statistics"),
  b: (timeline) => timeline.leave("notes"),
  Escape: (timeline) => timeline.clear(),
};

function pan(timeline, part) {
  timeline.view.pan(timeline.view.width * part);
  timeline.moved();
}

/** Do what a key means. Return whether it means anything here. */
export function keys(timeline, event) {
  const action = ACTIONS[event.key];
  if (!action) return false;
  const focused = event.composedPath()[0];
  // A button or link keeps its own Enter, the panel its own scrolling.
  if (event.key === "Enter" && focused.closest?.("a, button")) return false;
  if (/^(Arrow|Page|Home)/.test(event.key) && focused.closest?.(".details")) return false;
  action(timeline);
  return true;
}
