"""Place gaps in time, from the event before what is missing to the event behind it.

A gap has no time, but mostly numbers: it lies between the events of its stream with the next lower and
the next higher number. A gap without numbers, or whose stream has none, lies between the events before and
behind its offset in the session's bytes. Where there is no event before or behind, the session's first or
last time takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tailrace.export.clocks import Session
from tailrace.export.timeline import Timeline
from tailrace.query.views import GAPS
from tailrace.reading.moment import unix_ns

_NUMBERS = """CASE format
  WHEN 'dftracer' THEN try_cast(part.member(attributes, '$.id') AS BIGINT)
  WHEN 'et3' THEN start
  ELSE seq END"""
"""The number of an event that its stream's gaps name, where it is not `seq`: see the pages of the formats."""

_PLACED = """
WITH wanted AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY source, session, stream, first, "offset", reason, id) AS number,
    * EXCLUDE (day)
  FROM gaps WHERE {gaps}
),
events_there AS (
  SELECT source, session, stream, {numbers} AS seq, "offset", start, time, aligned
  FROM events SEMI JOIN wanted USING (source, session)
  WHERE kind IN ('span', 'begin', 'instant', 'counter', 'annotation') AND start IS NOT NULL
),
near AS (
  FROM events_there SEMI JOIN wanted USING (source, session, stream)
  UNION ALL
  SELECT * REPLACE ('' AS stream)
  FROM events_there SEMI JOIN (FROM wanted WHERE stream = '') USING (source, session)
  WHERE stream <> ''
)
SELECT w.source, w.session, w.format, w.stream, w.reason, w.detail, w.first, w.last, w.remaining, w."of",
  w.id, w.attributes, b.time, b.aligned, a.time, a.aligned, p.time, p.aligned, q.time, q.aligned
FROM wanted AS w
ASOF LEFT JOIN (FROM near WHERE seq IS NOT NULL) AS b
  ON b.source = w.source AND b.session = w.session AND b.stream = w.stream AND b.seq < w.first
ASOF LEFT JOIN (FROM near WHERE seq IS NOT NULL) AS a
  ON a.source = w.source AND a.session = w.session AND a.stream = w.stream
  AND a.seq > coalesce(w.last, w.first)
ASOF LEFT JOIN near AS p
  ON p.source = w.source AND p.session = w.session AND p.stream = w.stream AND p."offset" < w."offset"
ASOF LEFT JOIN near AS q
  ON q.source = w.source AND q.session = w.session AND q.stream = w.stream AND q."offset" >= w."offset"
ORDER BY w.number
"""


class Lost(NamedTuple):
    """A gap with its place. `members` are the columns of `gaps`, and what says how exact the place is."""

    session: Session
    stream: str
    name: str
    begin: int
    end: int
    members: dict[str, Any]


def lost(timeline: Timeline) -> Iterator[Lost]:
    """Yield the gaps that lie within the selected times, stream by stream and by their begins.

    Count in `timeline.left` those without a place, and those that lie outside of the times."""
    selected = timeline.selected
    gaps = selected.condition(GAPS)
    sql = _PLACED.format(gaps=gaps.sql, numbers=_NUMBERS)
    of_stream: list[Lost] = []
    for row in selected.few(sql, gaps.values):
        found = _place(timeline, row)
        if found is None:
            continue
        if of_stream and (found.session, found.stream) != (
            of_stream[0].session, of_stream[0].stream,
        ):  # fmt: skip
            yield from sorted(of_stream, key=_by_time)
            of_stream.clear()
        of_stream.append(found)
    yield from sorted(of_stream, key=_by_time)


def _place(timeline: Timeline, row: tuple[Any, ...]) -> Lost | None:
    source, name, format_, stream, reason, detail, first, last, remaining, of, id_, _, *times = row
    session = timeline.session(source, name, format_)
    before, behind = (session.place(*times[i : i + 2]) for i in (0, 2))
    if before is None and behind is None:
        before, behind = (session.place(*times[i : i + 2]) for i in (4, 6))
    how = {(True, True): "between two events", (True, False): "after an event"}
    placed = how.get((before is not None, behind is not None), "before an event")
    if before is None and behind is None:
        placed = "somewhere in its session"
    begin = session.first if before is None else before
    end = session.last if behind is None else behind
    if begin is None or end is None or begin < 0:
        timeline.left["gap without a place in time"] += 1
        return None
    window = _cut(timeline, begin, max(begin, end))
    if window is None:
        timeline.left["gap outside of the selected times"] += 1
        return None
    count = "an unknown number" if remaining is None else remaining
    members = {
        "reason": reason, "detail": detail, "first": first, "last": last, "remaining": remaining,
        "of": of, "id": id_, "placed": placed, "begins": begin, "ends": max(begin, end),
    }  # fmt: skip
    known = {key: value for key, value in members.items() if value is not None}
    return Lost(session, stream, f"LOST {count} ({reason})", *window, known)


def _cut(timeline: Timeline, begin: int, end: int) -> tuple[int, int] | None:
    """Return the part of a range that lies within the selected times, if any does."""
    filters = timeline.selected.filters
    if filters.since is not None:
        begin = max(begin, since := unix_ns(filters.since, "since"))
        if end < since:
            return None
    if filters.until is not None:
        until = unix_ns(filters.until, "until")
        if begin >= until:
            return None
        end = min(end, until)
    return begin, max(begin, end)


def _by_time(each: Lost) -> tuple[int, int]:
    return each.begin, -each.end
