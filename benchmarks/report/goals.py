"""Compare the published figures with their goals. Show where the time goes that lies between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.comparisons import middle_of_ours, ratios, spread
from benchmarks.measures import MEASURES, Better
from benchmarks.report.tables import number, table
from benchmarks.results import Case, Result, Results, Role
from tailrace.config.schema import StoreConfig
from tailrace.daemon.loops.sync import BUFFER_MAX
from tailrace.spool.spool import RECENT_MAX

_STAGES = ("decoded", "ingested", "written", "Tailrace")
_PARTS = (
    "decoding",
    "counting and matching",
    "the rows' files",
    "receiving, the spool and commits",
)
"""For each stage, the cost that it adds to the stage before."""


class Goal(NamedTuple):
    """A figure with a goal. `stage` is the case of `stages` that shows where its time goes."""

    benchmark: str
    case: str
    measure: str
    aim: float
    stage: str = ""
    over_base: bool = False
    """Whether the figure is the ratio to the smallest size of the sweep."""


_INTO_TABLE = ("heph-tcp", "jets-tcp", "dftracer", "ovni", "et3")


def _into_table(benchmark: str, case: str, rate: float, stage: str) -> Goal:
    return Goal(benchmark, case, "rate", rate, stage)


GOALS = (
    _into_table("heph-tcp", "Heph over TCP", 3.3e6, "heph"),
    Goal("heph-tcp", "Heph over TCP", "cpu", 0.35e-6, "heph"),
    _into_table("jets-tcp", "JETS over TCP", 2e6, "jets"),
    _into_table("dftracer", "DFTracer, one call repeated", 1.6e6, "dftracer"),
    _into_table("dftracer", "DFTracer, varied calls", 1.6e6, "dftracer"),
    _into_table("dftracer", "DFTracer, varied calls, gz", 1.4e6, "dftracer"),
    _into_table("ovni", "ovni", 5e6, "ovni"),
    _into_table("et3", "ET3, fifty objects", 2.6e6, "et3"),
    _into_table("et3", "ET3, objects all different", 2.6e6, "et3"),
    *(Goal(name, "", "resident", 300e6) for name in _INTO_TABLE),
    Goal("emitting", "an event, compiled", "caller", 100e-9),
    Goal("emitting", "a span, compiled", "caller", 180e-9),
    Goal("emitting", "an event, pure Python", "caller", 500e-9),
    Goal("latency", "a commit every 1 s", "p99", 1.1),
    Goal("latency", "a commit every 250 ms", "p99", 0.3),
    Goal("idle", "no sender", "private", 60e6),
    Goal("idle", "no sender", "resident", 120e6),
    Goal("idle", "no sender", "idle", 0.004),
    Goal("zoom", "the page, all steps", "step50", 0.1),
    Goal("zoom", "the page, all steps", "step99", 0.3),
    Goal("zoom", "all lanes, all steps", "step50", 0.1),
    Goal("zoom", "all lanes, all steps", "step99", 0.3),
    Goal("zoom", "all lanes, all steps", "resident", 600e6),
    Goal("looking", "", "first", 2.0),
    Goal("looking", "", "step50", 0.1),
    Goal("looking", "", "step95", 0.3),
    Goal("large", "100000000 rows, after upkeep", "range", 0.3),
    Goal("large", "100000000 rows, after upkeep", "asking", 250e6),
    Goal("streams", "5000 streams", "cpu", 1.2, "heph, 5000 streams", over_base=True),
    Goal("connections", "1000 connections", "cpu", 1.2, over_base=True),
)  # fmt: skip


class _Found(NamedTuple):
    """A goal, and the median that was measured for its figure."""

    goal: Goal
    result: Result
    case: Case
    value: float

    @property
    def reached(self) -> bool:
        more = MEASURES[self.goal.measure].better is Better.MORE
        return self.value >= self.goal.aim if more else self.value <= self.goal.aim


def section(results: Results) -> Iterator[str]:
    """Yield the lines of this section of the page. Yield none if no figure with a goal was measured."""
    found = [each for goal in GOALS for each in _measured(goal, results)]
    if not found:
        return
    yield from ["", "## Goals", ""]
    yield "Our aims on two cores stand beside the medians here. Quick forms understate what they measure; so does a busy machine. A rate includes the wait for the last commit, up to a second."
    yield ""
    yield from table(
        ["benchmark", "input", "figure", "goal", "here", "reached"], map(_cells, found)
    )
    yield from _distances(found, results)


def _measured(goal: Goal, results: Results) -> Iterator[_Found]:
    result = results.found.get(goal.benchmark)
    for case in result.cases if result else ():
        value = _value(goal, case)
        if value is not None and goal.case in ("", case.label) and result:
            yield _Found(goal, result, case, value)


def _value(goal: Goal, case: Case) -> float | None:
    """Return the median of our figure, or of its ratios."""
    if goal.over_base:
        base = [
            each
            for each in ratios(case)
            if each.other.role is Role.BASE and each.measure == goal.measure
        ]
        return base[0].spread.middle if base else None
    return middle_of_ours(case, goal.measure)


def _cells(found: _Found) -> list[str]:
    goal, measure = found.goal, MEASURES[found.goal.measure]
    title, size = f"{measure.title}, {measure.unit}", measure.unit_size
    if goal.over_base:
        title, size = f"{measure.title}, over that with 1", 1.0
    words = "yes" if found.reached else "no"
    return [f"`{goal.benchmark}`", found.case.label, title, number(goal.aim / size), number(found.value / size), words]  # fmt: skip


def _distances(found: list[_Found], results: Results) -> Iterator[str]:
    """Return, for each goal that was not reached, a text about the stages that take the time, and about the cost of the
    references in the same run.
    """
    missed = [each for each in found if not each.reached]
    for each in missed:
        if said := _why(each, results):
            title = MEASURES[each.goal.measure].title
            yield from ["", f"**{each.case.label}**, {title}: {said}"]
    if any(each.goal.measure == "resident" for each in missed) and (said := _memory(results)):
        yield from ["", f"**Resident memory**: {said}"]


def _why(found: _Found, results: Results) -> str:
    goal = found.goal
    if goal.over_base:
        return _split(goal.stage, results) + _chunks(found.case)
    if goal.measure == "rate":
        return _split(goal.stage, results) + _references(found.case, "cpu")
    if goal.benchmark in _INTO_TABLE:
        return ""  # The goal for the rate already contains this, so it is not repeated
    return _references(found.case, goal.measure)


def _memory(results: Results) -> str:
    """Return a text about the memory of an idle collector, and how much the stages may use beyond that."""
    idle = _case(results.found.get("idle"), "no sender")
    ours = next((side for side in idle.sides if side.role is Role.OURS), None) if idle else None
    found = spread(ours, "resident") if ours else None
    if found is None:
        return ""
    rows, received = 2 * StoreConfig().commit_bytes, BUFFER_MAX + RECENT_MAX
    return (
        f"{number(found.middle / 1e6)} MB are there when nothing comes (`idle`). Rows of two batches may take {number(rows / 1e6)} MB, bytes on the way"
        f" to the disk and to the decoder {number(received / 1e6)} MB. The rest are Arrow's columns and Parquet's pages of a batch, and what allocators keep."
    )


def _case(result: Result | None, label: str) -> Case | None:
    cases = result.cases if result else ()
    return next((case for case in cases if case.label == label), None)


def _split(stage: str, results: Results) -> str:
    """Return a text about each stage's share of an event's CPU time."""
    case = _case(results.found.get("stages"), stage)
    sides = case.sides if case else ()
    cpu = {side.name: found.middle for side in sides if (found := spread(side, "cpu"))}
    if not all(name in cpu for name in _STAGES):
        return ""
    before, parts = 0.0, []
    for name, part in zip(_STAGES, _PARTS, strict=True):
        parts.append(f"{part} {number((cpu[name] - before) * 1e6)}")
        before = cpu[name]
    return f"of {number(before * 1e6)} µs of CPU an event (`stages`), {', '.join(parts)}. "


def _chunks(case: Case) -> str:
    """Return a text about the sizes of chunks, also at the smallest size of the sweep.

    Each chunk costs every stage some time.
    """
    found = {side.role: spread(side, "chunk") for side in case.sides}
    ours, base = found.get(Role.OURS), found.get(Role.BASE)
    if ours is None or base is None:
        return ""
    return f"A chunk of received bytes has {number(ours.middle / 1024)} KiB, and {number(base.middle / 1024)} KiB with 1."


def _references(case: Case, measure: str) -> str:
    """Return a text about the cost of the references in the same run."""
    definition = MEASURES[measure]
    said = [
        f"{side.name} {number(found.middle / definition.unit_size)} {definition.unit}"
        for side in case.sides
        if side.role is Role.REFERENCE and (found := spread(side, measure))
    ]
    return f"In its own run, the references take: {', '.join(said)}." if said else ""
