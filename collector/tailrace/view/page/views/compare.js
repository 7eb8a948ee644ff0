// Compare: two runs side by side. New and gone names come first, then what got slower. How complete both are stands beside
// every figure.

import { get, Latest } from "../api.js";
import { fill, h } from "../parts/dom.js";
import { Grid, listed } from "../parts/grid.js";
import { placesOfSide } from "../parts/places.js";
import { problem } from "../parts/problem.js";
import { count, cut, figureOf, isWide, length } from "../parts/text.js";
import { mark, state } from "../parts/whole.js";
import { Sides, sideOf } from "./compare/sides.js";

const FIGURES = { p95: "p95", p50: "median", total: "total", self: "self time", max: "longest", count: "count" };

class Compare {
  constructor(root, frame, params) {
    this._frame = frame;
    this._ask = new Latest();
    this._rows = [];
    this._figure = h("select", { "aria-label": "Figure" }, frame.store.figures.map((each) => h("option", { value: each }, FIGURES[each] ?? each)));
    this._threshold = h("input", { type: "number", min: "0", step: "1", "aria-label": "Threshold in percent" });
    this._exact = h("input", { type: "checkbox" });
    this._sides = new Sides(frame.store);
    this._answer = h("div");
    this._grid = new Grid({
      columns: [], label: "Differences", empty: "Neither run has a span here.",
      rows: listed(() => this._rows),
      picked: (row) => this._timeline(row),
    });
    root.append(h("div", { class: "page" },
      h("div", { class: "head" }, h("h1", {}, "Compare two runs")),
      this._sides.element,
      h("div", { class: "row" },
        h("label", { class: "field" }, "Figure ", this._figure),
        h("label", { class: "field" }, "slower from ", this._threshold, " % on"),
        h("label", { class: "field" }, this._exact, " ignore noise"),
        h("button", { type: "button", class: "primary", on: { click: () => this._go() } }, "Compare")),
      this._answer));
    this._begin(params);
  }

  update(params) {
    this._params = params;
    this._figure.value = params.figure && this._frame.store.figures.includes(params.figure) ? params.figure : this._frame.store.figures.includes("p95") ? "p95" : this._frame.store.figures[0];
    this._threshold.value = params.threshold ?? "10";
    this._exact.checked = params.exact === "true";
    this._sides.show(params);
    if (params.a || params.b) this._load();
  }

  close() {
    this._ask.cancel();
    this._closed = true;
  }

  async _begin(params) {
    try {
      this._sides.offer((await get("sessions")).sessions);
    } catch (error) {
      fill(this._answer, problem(error));
    }
    if (!this._closed) this.update(params);
  }

  _go() {
    if (!this._sides.valid() || !this._threshold.reportValidity()) return;
    const exact = this._exact.checked || null;
    this._frame.address.go("compare", { ...this._sides.params, figure: this._figure.value, threshold: this._threshold.value, exact });
  }

  async _load() {
    const { a, b, align } = this._params;
    fill(this._answer, h("p", { class: "note", role: "status" }, "Comparing …"));
    try {
      const threshold = Number(this._threshold.value) / 100;
      const answer = await this._ask.ask("compare", { ...sideOf("a", a), ...sideOf("b", b), ...placesOfSide("a", this._params), ...placesOfSide("b", this._params), align, figure: this._figure.value, threshold, exact: this._exact.checked });
      if (answer) this._show(answer, this._exact.checked);
    } catch (error) {
      fill(this._answer, problem(error));
    }
  }

  _show(answer, exact) {
    this._shown = answer;
    this._rows = answer.differences.map((each) => ({ ...each, name: each.group.map((word) => word ?? "(none)").join(" · ") }));
    const sure = state(answer.a.whole) === "complete" && state(answer.b.whole) === "complete";
    fill(this._answer, h("section", { class: "panel", "aria-label": "Differences" },
      h("header", {}, h("h2", {}, verdict(this._rows, answer)), mark(answer.a.whole, "A: "), mark(answer.b.whole, "B: ")),
      sure ? null : h("p", { class: "body note" }, "Events are missing. A verdict holds whatever they were; where they leave more than one possible, it is undecided."),
      answer.total ? h("p", { class: "body note" }, `${answer.total === 1 ? "1 group" : `${count(answer.total)} groups`}${answer.summary ? `: ${answer.summary}` : ""}.`) : null,
      answer.total > this._rows.length ? h("p", { class: "body note" }, `The first ${count(this._rows.length)} are listed.`) : null,
      h("p", { class: "body note" }, exact ? "Noise is not judged, although even runs of one unchanged program differ. " : "One run on each side cannot show noise that lasts as long as a run. ", "Repeat the runs to be sure: ", h("code", {}, "tailrace diff A1 A2 A3 -- B1 B2 B3"), "."),
      this._grid.element));
    const figure = FIGURES[answer.figure] ?? answer.figure;
    const spell = (row) => (value) => (answer.figure === "count" ? count(value) : length(value, row.unit));
    const lacks = (whole) => (state(whole) === "complete" ? "" : " ⚠");
    this._grid.replace([
      { name: "verdict", label: "Verdict", text: (value, row) => (row.because ? `${value}: ${row.because}` : value) },
      { name: "name", label: answer.by.join(" · ") },
      { name: "a", label: `${figure} A${lacks(answer.a.whole)}`, number: true, loss: true, lossy: (row) => isWide(row.a_bounds), text: (value, row) => figureOf(value, row.a_bounds, spell(row)) },
      { name: "b", label: `${figure} B${lacks(answer.b.whole)}`, number: true, loss: true, lossy: (row) => isWide(row.b_bounds), text: (value, row) => figureOf(value, row.b_bounds, spell(row)) },
      { name: "word", label: "Change", number: true, loss: true, lossy: (row) => row.verdict === "grew" },
      { name: "count_a", label: "Spans A", number: true, text: count },
      { name: "count_b", label: "Spans B", number: true, text: count },
    ], listed(() => this._rows));
  }

  _timeline(row) {
    const { from, to } = this._shown.b;
    const session = sideOf("b", this._params.b).b_session;
    const { b_rank: rank, b_node: node, b_job: job } = this._params;
    this._frame.address.go("timeline", { from, to, q: row.name, session, rank, node, job });
  }
}

const NAMED = 3;

/** Return the headline: new and gone names first, then what got slower. */
function verdict(rows, { figure, total, verdicts }) {
  if (!total) return "Nothing to compare";
  const more = figure === "count" ? "more frequent" : "slower";
  const slower = rows.find((each) => each.verdict === "grew");
  const said = [
    listedNames(rows, verdicts, "new"), listedNames(rows, verdicts, "gone"),
    verdicts.grew ? `${verdicts.grew === 1 ? "one name" : `${count(verdicts.grew)} names`} got ${more}${slower ? `, most of all ${cut(slower.name, 60)} (${slower.word})` : ""}` : `nothing is known to have got ${more} by that much`,
    ...["unknown", "undecided"].filter((kind) => verdicts[kind]).map((kind) => `${count(verdicts[kind])} ${kind}`),
  ].filter(Boolean).join("; ");
  return said[0].toUpperCase() + said.slice(1);
}

/** Return the names of a kind as words: how many there are, and the first of them. */
function listedNames(rows, verdicts, kind) {
  const number = verdicts[kind];
  if (!number) return null;
  const names = rows.filter((each) => each.verdict === kind).slice(0, NAMED).map((each) => cut(each.name, 40)).join(", ");
  return `${count(number)} ${kind}${names ? `: ${names}${number > NAMED ? ", …" : ""}` : ""}`;
}

export function open(root, frame, params) {
  return new Compare(root, frame, params);
}
