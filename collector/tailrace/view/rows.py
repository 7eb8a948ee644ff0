"""Show all that is known of one row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tailrace.errors import UnknownError
from tailrace.query.completeness import Scope
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, Selection
from tailrace.query.views import EVENTS, SPANS, View
from tailrace.view import wire
from tailrace.view.answering import bounded, cut, members, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfRow
from tailrace.view.searching import shown_event

CHILDREN_MAX = 200
ROWS_MAX = 100
"""Rows at one place. The collector's own rows share one."""

_OF_SPAN = (
    "source, session, \"offset\", stream, substream, 'span', name, category, time, duration, open"
)


class _Span(NamedTuple):
    """The columns by which a span's relatives are found."""

    source: str
    session: str
    stream: str
    substream: int | None
    id: int | None
    parent: int | None
    start: int | None
    end: int | None
    offset: int


def row(turn: DeskTurn, asked: OfRow) -> wire.RowsAnswer:
    snapshot = turn.snapshot()
    engine = snapshot.engine
    found = snapshot.whole(Scope.of(Selection((asked.source,), (asked.session,))))
    spans = list(_rows(engine, SPANS, asked, "true"))
    others = list(_rows(engine, EVENTS, asked, "kind NOT IN ('span', 'begin')"))
    if not spans and not others:
        raise UnknownError(f"no row stands at {asked.offset} of session {asked.session!r}")
    parent, children, more, how = None, list[wire.ShownEvent](), False, ""
    if spans:
        span = _span(engine, asked)
        parent, children, more, how = _relatives(engine, span)
    return wire.RowsAnswer(
        version=snapshot.version,
        whole=whole(found),
        rows=[*spans, *others],
        parent=parent,
        children=children,
        more_children=more,
        related=how,
        raw=wire.Raw(bytes=None, why="the collector keeps no bytes of records that it could read"),
    )


def _rows(engine: Engine, view: View, asked: OfRow, also: str) -> Iterator[wire.ShownRow]:
    exact = {c.name for c in view.columns if c.type in {"BIGINT", "BOOLEAN"}}
    columns = ", ".join(
        f'"{c.name}"' if c.name in exact or c.type == "VARCHAR" else f'"{c.name}"::VARCHAR'
        for c in view.columns
    )
    sql = (
        f"SELECT {columns} FROM {view.name}"  # noqa: S608 - our own words
        f' WHERE source = ? AND session = ? AND "offset" = ? AND {also} LIMIT {ROWS_MAX}'
    )
    names = [column.name for column in view.columns]
    place = wire.RowPlace(source=asked.source, session=asked.session, offset=asked.offset)
    for values in engine.rows(sql, (asked.source, asked.session, asked.offset)):
        given = dict(zip(names, values, strict=True))
        text = given.pop("attributes")
        shown_values = {name: _shown(value) for name, value in given.items()}
        yield wire.ShownRow(
            view=view.name, place=place, columns=shown_values, attributes=_members(text)
        )


def _shown(value: object) -> Any:  # noqa: ANN401 - JSON
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else bounded(value)


def _members(text: str | None) -> dict[str, Any]:
    found = members(text)
    return found if found or text is None else {"": cut(text)}


def _span(engine: Engine, asked: OfRow) -> _Span:
    sql = (
        'SELECT source, session, stream, substream, id, parent, start, "end", "offset" FROM spans'
        ' WHERE source = ? AND session = ? AND "offset" = ? LIMIT 1'
    )
    return next(
        _Span(*each) for each in engine.rows(sql, (asked.source, asked.session, asked.offset))
    )


def _relatives(
    engine: Engine, span: _Span
) -> tuple[wire.ShownEvent | None, list[wire.ShownEvent], bool, str]:
    """Return the parent and the direct children of a span, whether there are more, and how they are known."""
    here = "source = ? AND session = ?"
    of_session = (span.source, span.session)
    children = RowCondition(f"{here} AND parent = ? AND parent IS NOT NULL", (*of_session, span.id))
    by_id = [] if span.id is None else list(_spans(engine, children, 'start, "offset"'))
    parent = RowCondition(f"{here} AND id = ?", (*of_session, span.parent))
    above = [] if span.parent is None else list(_spans(engine, parent, '"offset"'))
    if by_id or span.parent is not None:
        more = len(by_id) > CHILDREN_MAX
        return (above[0] if above else None), by_id[:CHILDREN_MAX], more, "id"
    if span.start is None or span.end is None:
        return None, [], False, ""
    return _contained(engine, span)


def _contained(
    engine: Engine, span: _Span
) -> tuple[wire.ShownEvent | None, list[wire.ShownEvent], bool, str]:
    lane = 'source = ? AND session = ? AND stream = ? AND substream IS NOT DISTINCT FROM ? AND "offset" <> ?'
    of_lane = (*span[:4], span.offset)
    around = RowCondition(
        f'{lane} AND start <= ? AND ("end" >= ? OR open) AND (start < ? OR "end" > ? OR open)',
        (*of_lane, span.start, span.end, span.start, span.end),
    )
    above = next(_spans(engine, around, 'start DESC, "end"'), None)
    inside = RowCondition(
        f'{lane} AND start >= ? AND "end" <= ? AND NOT (start = ? AND "end" = ?)',
        (*of_lane, span.start, span.end, span.start, span.end),
    )
    chosen = inside.sql
    # A direct child is in no other span of the lane that is inside.
    sql = (
        f"WITH inner_spans AS MATERIALIZED (SELECT * FROM spans WHERE {chosen}),"  # noqa: S608 - our own words
        ' reached AS (SELECT *, max("end") OVER (ORDER BY start, "end" DESC, "offset"'
        " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until FROM inner_spans)"
        f' SELECT {_OF_SPAN} FROM reached WHERE until IS NULL OR "end" > until'
        f' ORDER BY start, "offset" LIMIT {CHILDREN_MAX + 1}'
    )
    children = [shown_event(*each) for each in engine.rows(sql, inside.values)]
    more = len(children) > CHILDREN_MAX
    return above, children[:CHILDREN_MAX], more, "containment"


def _spans(engine: Engine, condition: RowCondition, order: str) -> Iterator[wire.ShownEvent]:
    sql = (
        f"SELECT {_OF_SPAN} FROM spans WHERE {condition.sql}"  # noqa: S608 - our own words
        f" ORDER BY {order} LIMIT {CHILDREN_MAX + 1}"
    )
    for each in engine.rows(sql, condition.values):
        yield shown_event(*each)
