"""Serve the timeline: its lanes (streams and substreams), the content of a window of time (`rollups`), the rows of one
record, and a search for names.

A search uses wall time. In sessions whose clock is not related to wall time, it uses the axis of their clock, and
computes an event's time from the tick at which the event begins (`tailrace.timeline`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import msgspec

from tailrace.errors import QueryError, UnknownError
from tailrace.query.completeness import Scope
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, Selection, all_of
from tailrace.query.names import ProgramNames
from tailrace.query.views import EVENTS, SPANS, View
from tailrace.rollups.frame import frame as of_window
from tailrace.rollups.gaps import PlacedGap, SeenGap
from tailrace.rollups.scale import Range, first_tick
from tailrace.rollups.snapshot import WALL, LaneKey, TimelineLane
from tailrace.rollups.stretches import stretches
from tailrace.timeline import SessionClock
from tailrace.view import wire
from tailrace.view.answers import bounded, cut, from_attributes, from_row, members, whole
from tailrace.view.leases import SnapshotLease
from tailrace.view.questions import OfEmptyTime, OfFrame, OfLanes, OfRow, OfSearch, OfSelection

NAME_MAX = 300
"""Maximum length (characters) of a name in the answer of `frame`.

Longer names are cut; the endpoint `row` returns the full name.
"""

TITLE_MAX = 200
"""Maximum length (characters) of a title of a lane. A process may be named by its whole command line."""

LANES_MAX = 1000
"""Maximum number of lanes (streams and substreams) in the answer of the endpoint `frame`."""


def lanes(lease: SnapshotLease, asked: OfLanes) -> wire.Lanes:
    snapshot = lease.snapshot()
    found = snapshot.whole(Scope.of(asked.selection))
    return wire.Lanes(
        version=snapshot.version,
        whole=whole(found),
        lanes=[_lane(each, lease.names()) for each in _selected(lease, asked)],
    )


def _lane(each: TimelineLane, names: ProgramNames) -> wire.ShownLane:
    source, session, stream, _ = each.key
    process, stated = names.process(source, session), names.of(source, session)
    return from_row(
        wire.ShownLane,
        (
            *each.key, *each[1:], shortened(names.session(source, session)), shortened(process.title), process.id,
            shortened(names.thread(source, session, stream, each.format).title), stated.place, stated.alive,
        ),
    )  # fmt: skip


def shortened(title: str) -> str:
    """Return a title, without its middle if it is too long. The ends of titles distinguish processes of one name."""
    half = TITLE_MAX // 2
    return title if len(title) <= TITLE_MAX else f"{title[:half]}…{title[1 - half :]}"


def _selected(lease: SnapshotLease, asked: OfLanes) -> list[TimelineLane]:
    placed = asked.placed(lease.snapshot().engine)
    return [each for each in lease.timeline().lanes if asked.has(*each.key[:3], placed)]


def empty_time(lease: SnapshotLease, asked: OfEmptyTime) -> wire.EmptyTime:
    keys = [each.key for each in _selected(lease, asked) if each.axis == asked.axis]
    found = stretches(lease.timeline(), keys)
    return wire.EmptyTime(
        version=lease.snapshot().version,
        begins=[str(each.begin) for each in found],
        ends=[str(each.end) for each in found],
    )


def frame(lease: SnapshotLease, asked: OfFrame) -> wire.FrameAnswer:
    if asked.to <= asked.from_:
        raise QueryError("an empty window: to must be greater than from")
    keys = [_key(text) for text in asked.lanes]
    if len(keys) > LANES_MAX:
        raise QueryError(f"{len(keys)} lanes are too many for a frame: ask for {LANES_MAX} at most")
    timeline = lease.timeline()
    if not keys:
        keys = [each.key for each in timeline.lanes[:LANES_MAX]]
    found = of_window(timeline, Range(asked.from_, asked.to), asked.pixels, keys)
    return from_attributes(
        wire.FrameAnswer,
        found,
        from_=asked.from_,
        to=asked.to,
        lanes=[from_row(wire.LaneName, key) for key in found.lanes],
        names=[cut(name, NAME_MAX) for name in found.names],
        gaps=[_gap(each, asked.from_) for each in found.gaps],
    )


def _key(text: str) -> LaneKey:
    """Parse the key of a lane, a JSON list. Raise QueryError if `text` has another form."""
    try:
        return LaneKey(
            *msgspec.json.decode(text, type=tuple[str, str, str, int | None], strict=False)
        )
    except msgspec.DecodeError as error:
        raise QueryError(
            f'{cut(text, 100)!r} is no lane: write ["source", "session", "stream", substream or null]'
        ) from error


def _gap(each: SeenGap, zero: int) -> wire.FrameGap:
    gap, single = each.first.gap, each.gaps == 1
    return from_attributes(
        wire.FrameGap,
        gap if single else gap._replace(detail=None, first=None, last=None, of=None),
        count=each.gaps,
        reason=each.reason,
        remaining=each.remaining,
        unknown=each.unknown,
        begin=None if each.begin is None else each.begin - zero,
        end=None if each.end is None else each.end - zero,
        placed=each.first.placed if single else None,
    )


def gaps_within(lease: SnapshotLease, asked: OfSelection) -> list[PlacedGap]:
    """Return the gaps that may concern the selected rows, with all gaps whose time is unknown."""
    placed = asked.placed(lease.snapshot().engine)
    since = -inf if asked.from_ is None else asked.from_
    until = inf if asked.to is None else asked.to
    return [
        each
        for each in lease.timeline().gaps
        if asked.concerns(*each.gap.place, placed)
        and (each.begin is None or each.end is None or (each.end >= since and each.begin < until))
    ]


_EVENT = 'source, session, "offset", stream, substream, kind, name, category, time, duration, open'

_BY_WALL_TIME = """
SELECT source, session, "offset", stream, substream, 'span' AS kind, name, category, time, duration, open FROM spans
WHERE {condition}
UNION ALL
SELECT source, session, "offset", stream, substream, kind, name, category, time, NULL, false FROM events
WHERE kind IN ('instant', 'counter', 'annotation') AND {condition}
"""

_ON_AXIS = """
WITH near AS (
  SELECT unnest($near::STRUCT(source VARCHAR, session VARCHAR, first BIGINT, last BIGINT)[], recursive := true)
),
events_there AS (
  SELECT *, 'span' AS kind FROM spans
  UNION ALL BY NAME
  SELECT *, false AS open FROM events WHERE kind IN ('instant', 'counter', 'annotation')
)
SELECT source, session, "offset", stream, substream, kind, name, category, aligned, start, "end", open
FROM events_there JOIN near USING (source, session)
WHERE contains(lower(name), lower($name)) AND time IS NULL AND aligned BETWEEN near.first AND near.last
  AND (len($streams::VARCHAR[]) = 0 OR list_contains($streams::VARCHAR[], stream))
QUALIFY row_number() OVER (PARTITION BY source, session ORDER BY aligned {order}, "offset") <= $limit
"""
"""SQL that selects the next events that match a search, for each session in `near`; these sessions have no wall
time. `near` has the first and the last tick at which a selected event of the session may begin."""

_FARTHEST = 2**61
"""Search for events only between the ticks -2^61 and 2^61, if the request sets no bound."""


def search(lease: SnapshotLease, asked: OfSearch) -> wire.FoundEvents:
    """Serve the next events after (or before) the time `after` whose name contains a text, in upper or lower case.

    Raise UnknownError if no lane (stream or substream) has the given time axis (`axis`)."""
    snapshot = lease.snapshot()
    found = snapshot.whole(asked.window.scope)
    by_wall_time = asked.axis in {"", WALL}
    events = _by_wall_time(lease, asked) if by_wall_time else _on_axis(lease, asked)
    return wire.FoundEvents(
        version=snapshot.version,
        whole=whole(found),
        events=events[: asked.limit],
        more=len(events) > asked.limit,
    )


def shown_event(source: str, session: str, offset: int, *rest: object) -> wire.ShownEvent:
    """Return an event as an object of the API. The arguments are the columns of `_EVENT`, in order."""
    place = wire.RowPlace(source=source, session=session, offset=offset)
    return from_row(wire.ShownEvent, (place, *rest))


def _by_wall_time(lease: SnapshotLease, asked: OfSearch) -> list[wire.ShownEvent]:
    """Return the events that match a search, ordered by wall time: at most `limit`, and one more if further events
    match."""
    conditions = [RowCondition("contains(lower(name), lower(?))", (asked.name,))]
    if asked.after is None:
        conditions.append(RowCondition("time IS NOT NULL"))
    else:
        compared = "time < ?" if asked.backwards else "time > ?"
        conditions.append(RowCondition(compared, (asked.after,)))
    condition = all_of([asked.window.rows, *conditions])
    direction = "DESC" if asked.backwards else "ASC"
    sql = (
        f"SELECT {_EVENT} FROM ({_BY_WALL_TIME.format(condition=condition.sql)})"  # noqa: S608 - our own words
        f' ORDER BY time {direction}, source, session, "offset" LIMIT ?'
    )
    values = (*condition.values, *condition.values, asked.limit + 1)
    return [shown_event(*each) for each in lease.snapshot().engine.rows(sql, values)]


def _on_axis(lease: SnapshotLease, asked: OfSearch) -> list[wire.ShownEvent]:
    """Return the events that match a search on an axis without wall time, ordered by time. There may be more than
    `limit`."""
    timeline = lease.timeline()
    sessions = timeline.on(asked.axis)
    placed = asked.placed(lease.snapshot().engine)
    clocks = {
        key: timeline.sessions[key]
        for key in sessions & timeline.sessions.keys()
        if asked.concerns(*key, "", placed)
    }
    since = [] if asked.from_ is None else [asked.from_]
    before = [] if asked.to is None else [asked.to]
    if asked.after is not None and asked.backwards:
        before.append(asked.after)
    elif asked.after is not None:
        since.append(asked.after + 1)
    near = [
        {
            "source": source,
            "session": session,
            "first": _first_tick(clock, max(since)) if since else -_FARTHEST,
            "last": _first_tick(clock, min(before)) - 1 if before else _FARTHEST,
        }
        for (source, session), clock in clocks.items()
    ]
    if not near:
        return []
    values = {
        "near": near, "name": asked.name, "streams": asked.stream, "limit": asked.limit + 1,
    }  # fmt: skip
    sql = _ON_AXIS.format(order="DESC" if asked.backwards else "ASC")
    events = []
    for source, session, *event, aligned, start, end, open_ in lease.snapshot().engine.rows(sql, values):  # fmt: skip
        clock = clocks[source, session]
        at = clock.place(None, aligned)
        if at is not None:
            duration = None if end is None or start is None else clock.end(at, start, end) - at
            events.append((at, shown_event(source, session, *event, at, duration, open_)))
    events.sort(key=lambda each: each[0], reverse=asked.backwards)
    return [event for _, event in events]


def _first_tick(clock: SessionClock, time: int) -> int:
    """Return the first tick of a session's clock at or after a time (ns) on the session's axis, within `_FARTHEST`."""
    return min(max(first_tick(clock.ticks, time - clock.shift), -_FARTHEST), _FARTHEST)


CHILDREN_MAX = 200
ROWS_MAX = 100
"""Maximum number of rows that the endpoint `row` returns for one offset of a session. Many rows may have the same
offset: a row that the collector itself writes usually has the number of bytes that the session has received so far."""

_SPAN = """
SELECT source, session, stream, substream, id, parent, start, "end", "offset" FROM spans
WHERE source = ? AND session = ? AND "offset" = ? LIMIT 1
"""

_OF_SPAN = (
    "source, session, \"offset\", stream, substream, 'span', name, category, time, duration, open"
)


class _Span(NamedTuple):
    """The columns of a span that are needed to find its parent and its children."""

    source: str
    session: str
    stream: str
    substream: int | None
    id: int | None
    parent: int | None
    start: int | None
    end: int | None
    offset: int


def row(lease: SnapshotLease, asked: OfRow) -> wire.RowsAnswer:
    snapshot = lease.snapshot()
    engine = snapshot.engine
    found = snapshot.whole(Scope.of(Selection((asked.source,), (asked.session,))))
    spans = list(_rows(engine, SPANS, asked, "true"))
    others = list(_rows(engine, EVENTS, asked, "kind NOT IN ('span', 'begin')"))
    if not spans and not others:
        raise UnknownError(f"session {asked.session!r} has no row at offset {asked.offset}")
    parent, children, related = None, list[wire.ShownEvent](), ""
    if spans:
        values = asked.source, asked.session, asked.offset
        parent, children, related = _relatives(engine, _Span(*next(engine.rows(_SPAN, values))))
    return wire.RowsAnswer(
        version=snapshot.version,
        whole=whole(found),
        rows=[*spans, *others],
        parent=parent,
        children=children[:CHILDREN_MAX],
        more_children=len(children) > CHILDREN_MAX,
        related=related,
        raw=wire.Raw(bytes=None, why="the collector keeps no bytes of records that it could read"),
    )


def _rows(engine: Engine, view: View, asked: OfRow, also: str) -> Iterator[wire.ShownRow]:
    exact = {c.name for c in view.columns if c.type in {"BIGINT", "BOOLEAN"}}
    selected = ", ".join(
        f'"{c.name}"' if c.name in exact or c.type == "VARCHAR" else f'"{c.name}"::VARCHAR'
        for c in view.columns
    )
    sql = (
        f"SELECT {selected} FROM {view.name}"  # noqa: S608 - our own words
        f' WHERE source = ? AND session = ? AND "offset" = ? AND {also} LIMIT {ROWS_MAX}'
    )
    names = [column.name for column in view.columns]
    place = wire.RowPlace(source=asked.source, session=asked.session, offset=asked.offset)
    for values in engine.rows(sql, (asked.source, asked.session, asked.offset)):
        given = dict(zip(names, values, strict=True))
        text = given.pop("attributes")
        columns = {
            name: str(value) if type(value) is int else bounded(value)
            for name, value in given.items()
        }
        attributes = members(text) or ({} if text is None else {"": cut(text)})
        yield wire.ShownRow(view=view.name, place=place, columns=columns, attributes=attributes)


def _relatives(
    engine: Engine, span: _Span
) -> tuple[wire.ShownEvent | None, list[wire.ShownEvent], str]:
    """Return the parent of a span, its first children, and how these spans were found: by `id` if the spans' records
    contain ids, otherwise by `containment` of their times. If there are more children than the limit, return one more
    than the limit."""
    here = "source = ? AND session = ?"
    of_session = (span.source, span.session)
    children = RowCondition(f"{here} AND parent = ? AND parent IS NOT NULL", (*of_session, span.id))
    by_id = [] if span.id is None else list(_spans(engine, children, 'start, "offset"'))
    parent = RowCondition(f"{here} AND id = ?", (*of_session, span.parent))
    above = [] if span.parent is None else list(_spans(engine, parent, '"offset"'))
    if by_id or span.parent is not None:
        return (above[0] if above else None), by_id, "id"
    if span.start is None or span.end is None:
        return None, [], ""
    lane = 'source = ? AND session = ? AND stream = ? AND substream IS NOT DISTINCT FROM ? AND "offset" <> ?'
    of_lane = (*span[:4], span.offset)
    around = RowCondition(
        f'{lane} AND start <= ? AND ("end" >= ? OR open) AND (start < ? OR "end" > ? OR open)',
        (*of_lane, span.start, span.end, span.start, span.end),
    )
    enclosing = next(_spans(engine, around, 'start DESC, "end"'), None)
    inside = RowCondition(
        f'{lane} AND start >= ? AND "end" <= ? AND NOT (start = ? AND "end" = ?)',
        (*of_lane, span.start, span.end, span.start, span.end),
    )
    # Select only the direct children: spans inside the given span that are not inside another one of these spans.
    sql = (
        f"WITH inner_spans AS MATERIALIZED (SELECT * FROM spans WHERE {inside.sql}),"  # noqa: S608 - our own words
        ' reached AS (SELECT *, max("end") OVER (ORDER BY start, "end" DESC, "offset"'
        " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until FROM inner_spans)"
        f' SELECT {_OF_SPAN} FROM reached WHERE until IS NULL OR "end" > until'
        f' ORDER BY start, "offset" LIMIT {CHILDREN_MAX + 1}'
    )
    return (
        enclosing,
        [shown_event(*each) for each in engine.rows(sql, inside.values)],
        "containment",
    )


def _spans(engine: Engine, condition: RowCondition, order: str) -> Iterator[wire.ShownEvent]:
    sql = (
        f"SELECT {_OF_SPAN} FROM spans WHERE {condition.sql}"  # noqa: S608 - our own words
        f" ORDER BY {order} LIMIT {CHILDREN_MAX + 1}"
    )
    for each in engine.rows(sql, condition.values):
        yield shown_event(*each)
