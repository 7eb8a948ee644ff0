"""Search a name among events, by wall time or on an axis without wall time.

On such an axis, an event's place follows from the tick at which it begins (`timeline`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from tailrace.query.filters import RowCondition, all_of
from tailrace.rollups.snapshot import WALL
from tailrace.timeline import SessionClock
from tailrace.view import wire
from tailrace.view.answering import cut, decimal, shown, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfSearch

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
"""The next events of each session; `near` has the ticks between which they begin."""

_FARTHEST = 2**61
"""No tick is farther from 0."""

_NEVER = 2**80


def search(turn: DeskTurn, asked: OfSearch) -> wire.FoundEvents:
    """Return the next events whose name contains a text, whatever its case. Raise UnknownError for an unknown axis."""
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    by_wall_time = asked.axis in {"", WALL}
    events = _by_wall_time(turn, asked) if by_wall_time else _on_axis(turn, asked)
    return wire.FoundEvents(
        version=snapshot.version,
        whole=whole(found),
        events=events[: asked.limit],
        more=len(events) > asked.limit,
    )


def shown_event(
    source: str,
    session: str,
    offset: int,
    stream: str,
    *rest: Any,  # noqa: ANN401 - a row
) -> wire.ShownEvent:
    """Return a row with the columns of `_EVENT` as an answer shows it."""
    substream, kind, name, category, time, duration, open_ = rest
    return wire.ShownEvent(
        place=wire.RowPlace(source=source, session=session, offset=offset),
        stream=cut(stream),
        substream=decimal(substream),
        kind=kind,
        name=shown(name),
        category=shown(category),
        time=decimal(time),
        duration=decimal(duration),
        open=open_,
    )


def _by_wall_time(turn: DeskTurn, asked: OfSearch) -> list[wire.ShownEvent]:
    """Return at most one event more than `limit`."""
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
    return [shown_event(*each) for each in turn.snapshot().engine.rows(sql, values)]


def _on_axis(turn: DeskTurn, asked: OfSearch) -> list[wire.ShownEvent]:
    """Return at least one event more than `limit`, if there is one."""
    timeline = turn.timeline()
    sessions = timeline.on(asked.axis)
    placed = asked.placed(turn.snapshot().engine)
    clocks = {
        key: timeline.sessions[key]
        for key in sessions & timeline.sessions.keys()
        if asked.concerns(*key, "", placed)
    }
    near = []
    for (source, session), clock in clocks.items():
        first, last = _ticks(clock, asked)
        near.append({"source": source, "session": session, "first": first, "last": last})
    if not near:
        return []
    values = {
        "near": near, "name": asked.name, "streams": asked.stream, "limit": asked.limit + 1,
    }  # fmt: skip
    sql = _ON_AXIS.format(order="DESC" if asked.backwards else "ASC")
    events = []
    for source, session, *event, aligned, start, end, open_ in turn.snapshot().engine.rows(sql, values):  # fmt: skip
        clock = clocks[source, session]
        at = clock.place(None, aligned)
        if at is not None:
            duration = None if end is None or start is None else clock.end(at, start, end) - at
            events.append((at, shown_event(source, session, *event, at, duration, open_)))
    events.sort(key=lambda each: each[0], reverse=asked.backwards)
    return [event for _, event in events]


def _ticks(clock: SessionClock, asked: OfSearch) -> tuple[int, int]:
    """Return the first and the last tick that an event may begin at, by `from`, `to` and `after`."""
    first = [] if asked.from_ is None else [asked.from_]
    behind = [] if asked.to is None else [asked.to]
    if asked.after is not None:
        first += [] if asked.backwards else [asked.after + 1]
        behind += [asked.after] if asked.backwards else []
    return (
        _first_tick(clock, max(first)) if first else -_FARTHEST,
        _first_tick(clock, min(behind)) - 1 if behind else _FARTHEST,
    )


def _first_tick(clock: SessionClock, time: int) -> int:
    """Return the first tick whose place is at a time of the axis or behind it."""

    def ns(tick: int) -> int:
        try:
            return clock.ticks.ns(tick)
        except OverflowError:  # a tick of years
            return _NEVER if tick > 0 else -_NEVER

    ticks = range(-_FARTHEST, _FARTHEST)
    return bisect_left(ticks, time - clock.shift, key=ns) - _FARTHEST
