// Go from match to match of a name, from gap to gap, from span to span.

import { get } from "../api.js";
import { cut } from "../parts/text.js";
import { spanItem } from "./hit.js";
import { headOf, laneId } from "./lanes.js";
import { placeText } from "./row.js";

export class Finder {
  constructor(timeline) {
    this._timeline = timeline;
    this._text = timeline.params.q ?? "";
  }

  /** Take another text, and go to its first match behind the left edge. */
  search(text) {
    this._text = text;
    this._timeline.note({ q: text });
    if (text) this.match(1, true);
    else this._show("");
  }

  /** Go to the next (1) or previous (-1) match. A search for a new text begins at the left edge. */
  async match(way, anew = false) {
    const { view, filters, axis } = this._timeline;
    if (!this._text) return;
    const from = anew || !this._at ? view.from : this._at;
    await this._go(() => get("search", { name: this._text, after: from, backwards: way < 0, axis, ...filters }), (answer) => {
      const [found] = answer.events;
      if (!found && anew && from >= view.bounds.from) {
        // Nothing behind the left edge: begin at the beginning.
        this._at = view.bounds.from - 1n;
        queueMicrotask(() => this.match(1));
        return "";
      }
      if (!found) return `no ${way > 0 ? "later" : "earlier"} “${cut(this._text, 30)}”`;
      this._at = BigInt(found.time);
      this._timeline.reveal(this._at, this._at + BigInt(found.duration ?? 0));
      this._lane(laneId({ ...found.place, stream: found.stream, substream: found.substream }));
      this._timeline.openRow(placeText(found.place));
      return "";
    });
  }

  /** Go to the next (1) or previous (-1) gap: from the last that was gone to, as long as it is in sight, otherwise from
   * the edge of what is in sight. */
  async gap(way) {
    const { view, filters, axis } = this._timeline;
    const known = this._gapAt !== undefined && view.from <= this._gapAt && this._gapAt < view.to;
    const after = known ? this._gapAt : way > 0 ? view.from - 1n : view.to;
    await this._go(() => get("gaps/next", { after, backwards: way < 0, axis, ...filters }), (answer) => {
      const [gap] = answer.gaps;
      if (!gap || gap.begins === null) return `no ${way > 0 ? "later" : "earlier"} gap`;
      this._gapAt = BigInt(gap.begins);
      this._timeline.reveal(this._gapAt, BigInt(gap.ends ?? gap.begins));
      this._lane(headOf(this._timeline.lanes, gap)?.id);
      return "";
    });
  }

  /** Pick the next (1) or previous (-1) span of the focused lane, of those that a frame has. */
  span(way) {
    const { canvas, view } = this._timeline;
    const place = canvas.layout?.of(canvas.focused) ?? canvas.seen()[0];
    if (!place || !canvas.frame) return;
    const { picked } = canvas;
    const depth = picked?.depth ?? 0;
    const known = picked?.lane === place.lane.id && picked.index !== undefined ? picked.start : view.from;
    for (const part of way > 0 ? canvas.frame.parts : canvas.frame.parts.toReversed()) {
      const row = part.lanes.get(place.lane.id)?.depths[depth] ?? { start: [] };
      const from = Number(known - part.from);
      const index = way > 0 ? row.start.findIndex((each) => each > from) : row.start.findLastIndex((each) => each < from);
      if (index < 0) continue;
      const item = spanItem(part, place.lane, depth, row, index);
      if (item.start < view.from || item.end > view.to) this._timeline.reveal(item.start, item.end);
      this._timeline.pick(item);
      return;
    }
  }

  /** Focus the lane below (1) or above (-1), of those that are not folded. */
  lane(way) {
    const { canvas } = this._timeline;
    const places = canvas.layout?.places ?? [];
    const index = canvas.layout?.of(canvas.focused)?.index ?? (way > 0 ? -1 : places.length);
    const next = places[Math.max(0, Math.min(places.length - 1, index + way))];
    if (!next) return;
    canvas.picked = null;
    this._lane(next.lane.id);
    this._timeline.frame.announce(`${next.lane.source}, ${next.lane.process}, ${next.lane.name}`);
  }

  _lane(id) {
    const { canvas } = this._timeline;
    if (id === undefined) return;
    if (!canvas.layout?.of(id)) this._timeline.unfold(id);
    const place = canvas.layout?.of(id);
    if (!place) return;
    canvas.focused = id;
    canvas.bringIn(place);
    this._timeline.moved(false);
  }

  async _go(ask, take) {
    this._show("searching …");
    try {
      this._show(take(await ask()));
    } catch (error) {
      this._show(error.message);
    }
  }

  _show(text) {
    this._timeline.toolbar.found.textContent = text;
  }
}
