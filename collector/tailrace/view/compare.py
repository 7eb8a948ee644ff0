"""Two runs side by side: `analysis.difference` over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from tailrace.analysis.statistics import (
    FigureChange,
    Key,
    SpanStatistics,
    changes,
    exceeding,
    parse,
    statistics,
)
from tailrace.errors import UnknownError
from tailrace.query.completeness import Completeness, Window
from tailrace.view import wire
from tailrace.view.answering import CSV, FileAnswer, cut, decimal, shown, whole
from tailrace.view.desk import DeskSnapshot, DeskTurn
from tailrace.view.questions import OfComparison, OfSelection
from tailrace.view.statistics import table

_MARKER = "SELECT min(time) FROM events WHERE name = ? AND kind NOT IN ('gap', 'heal') AND {}"


class ComparedRun(NamedTuple):
    """One side: what is compared, and what it lacks."""

    store: int
    version: int
    window: Window
    marker: int | None
    whole: Completeness
    statistics: list[SpanStatistics]


def compare(turn: DeskTurn, asked: OfComparison) -> wire.Comparison | FileAnswer:
    by = parse(asked.by)
    a, b = (
        _run(turn, store, side, asked, by)
        for store, side in zip(asked.stores, asked.sides, strict=True)
    )
    found = changes(a.statistics, b.statistics, asked.figure)
    over = (
        {id(each) for each in exceeding(found, asked.threshold)}
        if asked.threshold is not None
        else set()
    )
    if asked.format == "csv":
        return _csv(found, by, asked.figure)
    return wire.Comparison(
        version=turn.snapshot().version,
        a=_side(turn, a),
        b=_side(turn, b),
        by=[key.word for key in by],
        figure=asked.figure,
        total=len(found),
        differences=[_difference(each, exceeds=id(each) in over) for each in found[: asked.limit]],
    )


def _run(
    turn: DeskTurn, store: int, side: OfSelection, asked: OfComparison, by: Sequence[Key]
) -> ComparedRun:
    snapshot = turn.snapshot(store)
    if not side.session:
        side = structs.replace(side, session=turn.shelves[store].sessions)
    window, marker = side.window, None
    if asked.align:
        marker = _marker(snapshot, window, asked.align)
        until = window.until if asked.length is None else marker + asked.length
        window = window._replace(since=marker, until=until)
    found = snapshot.whole(window.scope)
    figures = statistics(snapshot.engine, window, by, self_time=asked.figure == "self")
    return ComparedRun(store, snapshot.version, window, marker, found, figures)


def _marker(snapshot: DeskSnapshot, window: Window, name: str) -> int:
    """Return the time of the first event of a name. Raise UnknownError if there is none."""
    rows = window.rows
    ((time,),) = snapshot.engine.rows(_MARKER.format(rows.sql), (name, *rows.values))
    if time is None:
        where = cut(snapshot.engine.table.root)
        raise UnknownError(f"{where}: no selected event with a wall time is called {name!r}")
    return int(time)


def _side(turn: DeskTurn, run: ComparedRun) -> wire.Side:
    return wire.Side(
        store=cut(turn.shelves[run.store].name),
        version=run.version,
        whole=whole(run.whole),
        from_=decimal(run.window.since),
        to=decimal(run.window.until),
        marker=decimal(run.marker),
    )


def _difference(each: FigureChange, *, exceeds: bool) -> wire.Difference:
    return wire.Difference(
        group=[shown(value) for value in each.group],
        unit=each.unit,
        count_a=None if each.before is None else each.before.ended,
        count_b=None if each.after is None else each.after.ended,
        a=decimal(each.from_),
        b=decimal(each.to),
        growth=each.growth,  # a growth without bound is null in JSON
        word=each.word,
        exceeds=exceeds,
    )


def _csv(found: Sequence[FigureChange], by: Sequence[Key], figure: str) -> FileAnswer:
    heading = [*(key.word for key in by), "unit", f"{figure} a", f"{figure} b", "change"]
    rows = ((*each.group, each.unit, each.from_, each.to, each.word) for each in found)
    return FileAnswer(table(heading, rows), CSV, "comparison.csv")
