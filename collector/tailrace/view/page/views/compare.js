// Compare: two runs side by side. New and gone names come first, then what got slower. How complete both are stands beside
// every figure.

import { get, Latest } from "../api.js";
import { fill, h } from "../parts/dom.js";
import { Grid, listed } from "../parts/grid.js";
import { placesOfSide } from "../parts/places.js";
import { problem } from "../parts/problem.js";
import { count, cut, figureOf, figureWords, isWide, length, plural } from "../parts/text.js";
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
    this._align = h("input", { type: "text", placeholder: "event name (optional)", "aria-label": "Align both runs at the first event of this name" });
    this._exact = h("input", { type: "checkbox" });
    this._sides = new Sides(frame.store);
    this._answer = h("div");
    this._grid = new Grid({
      columns: [], label: "Table of differences", empty: "Neither run has a span here.",
      rows: listed(() => this._rows),
      picked: (row) => this._timeline(row),
    });
    root.append(h("div", { class: "page" },
      h("div", { class: "head" }, h("h1", {}, "Compare two runs")),
      this._sides.element,
      h("div", { class: "row options" },
        h("label", { class: "field" }, "Figure ", this._figure),
        h("label", { class: "field" }, "slower by more than ", this._threshold, " %"),
        h("label", { class: "field", title: "A run begins at its first event of this name, so that what happened before does not count." }, "Align both runs at ", this._align),
        h("label", { class: "field", title: "Take every difference for real: for counts, and for simulated time." }, this._exact, " assume no noise"),
        h("button", { type: "button", class: "primary", on: { click: () => this._go() } }, "Compare")),
      this._answer));
    this._begin(params);
  }

  update(params) {
    this._params = params;
    this._figure.value = params.figure && this._frame.store.figures.includes(params.figure) ? params.figure : this._frame.store.figures.includes("p95") ? "p95" : this._frame.store.figures[0];
    this._threshold.value = params.threshold ?? "10";
    this._align.value = params.align ?? "";
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
    this._frame.address.go("compare", { ...this._sides.params, align: this._align.value, figure: this._figure.value, threshold: this._threshold.value, exact });
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
    fill(this._answer, h("section", { class: "panel", "aria-label": "Differences" },
      h("header", {}, h("h2", {}, verdict(this._rows, answer)), mark(answer.a.whole, "A: "), mark(answer.b.whole, "B: ")),
      this._grid.element,
      h("p", { class: "grid-note note" }, notes(answer, exact), " ", h("code", {}, "tailrace diff A1 A2 A3 -- B1 B2 B3"))));
    const figure = FIGURES[answer.figure] ?? answer.figure;
    const spell = (row) => (value) => (answer.figure === "count" ? count(value) : length(value, row.unit));
    const side = (name) => ({
      name, number: true, loss: true, label: `${figure} ${name.toUpperCase()}${lacks(answer[name].whole)}`,
      lossy: (row) => isWide(row[`${name}_bounds`]),
      text: (value, row) => figureOf(value, row[`${name}_bounds`], spell(row)),
      title: (row) => figureWords(row[`${name}_bounds`], spell(row)),
    });
    const lacks = (whole) => (state(whole) === "complete" ? "" : " ⚠");
    this._grid.replace([
      { name: "verdict", label: "Verdict", text: (value, row) => (row.because ? `${value}: ${row.because}` : value) },
      { name: "name", label: answer.by.join(" · ") },
      side("a"),
      side("b"),
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
  const said = [
    listedNames(rows, verdicts, "new"), listedNames(rows, verdicts, "gone"),
    verdicts.grew ? grown(verdicts.grew, more, rows.find((each) => each.verdict === "grew")) : `nothing is known to have got ${more} by that much`,
    listedNames(rows, verdicts, "unknown"), listedNames(rows, verdicts, "undecided"),
  ].filter(Boolean).join("; ");
  return said[0].toUpperCase() + said.slice(1);
}

/** Return how many names got slower, and `most`, the one that did most; it is undefined if it is not listed. */
function grown(number, more, most) {
  const change = most && `${cut(most.name, 60)} (${most.word})`;
  return `${plural(number, "name")} got ${more}${change ? `${number === 1 ? ": " : ", most of all "}${change}` : ""}`;
}

/** Return what a reader must know about the verdicts, as sentences. The last one introduces a command. */
function notes(answer, exact) {
  const sure = [answer.a, answer.b].every(({ whole }) => state(whole) === "complete");
  const listed = answer.differences.length;
  return [
    answer.total ? `${plural(answer.total, "group")}${answer.summary ? `: ${answer.summary}` : ""}.` : null,
    answer.total > listed ? `The first ${count(listed)} are listed.` : null,
    sure ? null : "A verdict holds whatever the missing events were; if they leave more than one possible, it is undecided.",
    exact ? "Noise is not judged, although even runs of one unchanged program differ." : "One run on each side cannot show noise that lasts as long as a run.",
    "Repeat the runs to be sure:",
  ].filter(Boolean).join(" ");
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
