"""Define the SQL that turns the rows of one data file into the events that a timeline draws.

An event is a span (0), an instant (1) or a value of a counter (2). Its `spot` is its stored time or, without one, its
tick. Begin rows of spans are left out.

The label of a row is "=" and its name. If the row has no name, the label is "?", the row's `id`, a space and the key of
the name, which is looked up when the row is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import add
from typing import Any, NamedTuple

from tailrace.timeline import DRAWN, Extent, Facts, SessionClock, SessionKey

SPAN, INSTANT, COUNTER = range(3)

COLUMNS = (
    "source", "session", "stream", "substream", "kind", "name", "id", "depth", "start", "end", "time",
    "attributes", "offset",
)  # fmt: skip
"""Columns of the table that the SQL in `EVENTS` needs, beside the number of the row's file (`file`)."""

LANE = "source, session, stream, substream"

LABEL_MAX = 1000
"""Maximum length (characters) of a name in a label."""

BY_NAME = f"'=' || CASE WHEN length({{0}}) <= {LABEL_MAX} THEN {{0}} ELSE left({{0}}, {LABEL_MAX}) || '…' || md5({{0}}) END"
"""SQL expression for the label of a row with the name `{0}`. A name of more than `LABEL_MAX` characters is cut off
and followed by the MD5 sum of the whole name, so that long names stay different."""

# If an expression occurs twice, DuckDB evaluates it for all rows, even if only one branch of a CASE needs it. To parse
# one attribute of 10 MB takes 100 MB of memory. Therefore the SQL parses NULL instead of those attributes that it does
# not need.
_DRAWN = f"""
SELECT file, source, session, stream, substream, depth, "offset", start, "end", kind,
  CASE WHEN name IS NOT NULL THEN {BY_NAME.format("name")}
    WHEN json_valid(CASE WHEN contains(attributes, '"$name"') THEN attributes END) THEN
      concat('?', id, ' ', attributes ->> '$."$name"')
    WHEN id IS NOT NULL THEN concat('?', id, ' ') ELSE '' END AS label,
  time IS NOT NULL AS timed, coalesce(time, start, "end") AS spot,
  part.numbers(CASE WHEN kind = 'counter' THEN attributes END) AS numbers
FROM {{rows}}
WHERE (kind = 'span' AND start IS NOT NULL OR kind IN ('instant', 'annotation', 'counter')
    OR kind = 'end' AND NOT coalesce(contains(attributes, 'begin_forgotten'), false))
  AND spot IS NOT NULL AND ({{condition}})
"""  # noqa: S608 - our own words

_SAME = """
  file, source, session, stream, substream, timed, depth, spot AS edge, spot, start, 1::BIGINT AS "count"
"""

EVENTS = f"""
WITH drawn AS ({_DRAWN})
SELECT {_SAME}, CASE WHEN kind = 'span' THEN {SPAN} ELSE {INSTANT} END::TINYINT AS what,
  CASE WHEN kind = 'span' THEN
    least(greatest(coalesce("end", start)::HUGEINT - start, 0), 9223372036854775807)::BIGINT ELSE 0 END AS busy,
  busy AS longest, label, NULL::VARCHAR AS member, "offset", CASE WHEN kind <> 'span' THEN kind END AS kind,
  NULL::DOUBLE AS least, NULL::DOUBLE AS most, NULL::DOUBLE AS latest
FROM drawn WHERE coalesce(len(numbers), 0) = 0
UNION ALL
SELECT * EXCLUDE (number), number, number, number FROM (
  SELECT {_SAME}, {COUNTER}::TINYINT, 0, 0, label, number.member, "offset", NULL, number.value::DOUBLE AS number
  FROM (SELECT * EXCLUDE (numbers), unnest(numbers) AS number FROM drawn WHERE numbers IS NOT NULL)
)
"""  # noqa: S608 - our own words
"""SQL for the events in `rows` that meet `condition`, with the columns of `SUMS`. It uses macros of
`query.inner_views`, which must be defined."""

KEYS = "what, timed, depth"
"""Columns by which the rows of one lane (a stream or substream) and one bucket (a slice of time) are grouped before
they are summed."""

ADDED = """
  sum("count")::BIGINT AS "count", least(sum(busy), 9223372036854775807)::BIGINT AS busy,
  max(longest) AS longest, CASE WHEN sum("count") = 1 THEN any_value(start) END AS start,
"""

SUMS = f"""
  any_value(spot) AS spot, arg_max(label, longest) AS label, NULL::VARCHAR AS member, {ADDED}
  CASE WHEN sum("count") = 1 THEN any_value("offset") END AS "offset",
  CASE WHEN sum("count") = 1 THEN any_value(kind) END AS kind,
  NULL::DOUBLE AS least, NULL::DOUBLE AS most, NULL::DOUBLE AS latest
"""
"""SQL for the columns of a row that sums up one or more spans or instants. `label` is the label of the longest event.
`start`, `offset` and `kind` are null if the row covers several events."""

VALUES = f"""
  max(spot) AS spot, label, member, {ADDED} arg_max("offset", {{'s': spot, 'o': "offset"}}) AS "offset",
  NULL::VARCHAR AS kind, min(least) AS least, max(most) AS most,
  arg_max(latest, {{'s': spot, 'o': "offset"}}) AS latest
"""
"""SQL for the columns of a row that sums up values of one counter. `spot` and `offset` belong to the latest value."""


def added(rows: str, keys: str, edge: str) -> str:
    """Return SQL that sums `rows` (SQL for events or for narrower sums) by the columns `keys` and by bucket (a slice
    of time). `edge` is an SQL expression for the begin of a row's bucket."""
    return f"""
SELECT {keys}, {KEYS}, {edge} AS edge, {SUMS} FROM {rows} WHERE what <> {COUNTER} GROUP BY ALL
UNION ALL
SELECT {keys}, {KEYS}, {edge} AS edge, {VALUES} FROM {rows} WHERE what = {COUNTER} GROUP BY ALL
"""  # noqa: S608 - our own words


EXTENTS = f"""
WITH parts AS (
  SELECT file, source, session, any_value(format) AS format, stream, substream, kind, time IS NOT NULL AS timed,
    start IS NULL AS lone, count(*) AS rows, max(depth) AS deepest,
    greatest(max("end"::HUGEINT - start), 0) AS longest, min(time) AS since, max(time) AS until, min(start) AS first,
    greatest(max(start), max("end")) AS last, min("end") AS first_end, max("end") AS last_end
  FROM {{rows}} GROUP BY ALL
)
SELECT file, source, session, any_value(format), stream, substream,
  coalesce(sum(rows) FILTER (kind IN ('span', 'instant', 'counter', 'annotation')), 0)::BIGINT, max(deepest),
  max(longest), min(since), max(until), min(first) FILTER (timed), max(last) FILTER (timed),
  min(first) FILTER (NOT timed), max(last) FILTER (NOT timed), min(first_end) FILTER (lone),
  max(last_end) FILTER (lone)
FROM parts WHERE {DRAWN} GROUP BY file, source, session, stream, substream
"""  # noqa: S608 - our own words
"""SQL for the extents (`LaneExtent`) of the lanes in `rows`, each after the number of its file. The SQL first sums the rows of each kind, because DuckDB
takes longer to evaluate a FILTER for each row."""


JOINED = """
SELECT source, session, any_value(format) AS format, stream, substream, sum(events)::BIGINT AS events,
  max(deepest) AS deepest, max(longest) AS longest, min(timed_from) AS timed_from,
  max(timed_until) AS timed_until, min(timed_first) AS timed_first, max(timed_last) AS timed_last,
  min(tick_first) AS tick_first, max(tick_last) AS tick_last, min(lone_first) AS lone_first,
  max(lone_last) AS lone_last
FROM {extents} GROUP BY source, session, stream, substream
"""
"""SQL that merges the first and last times and ticks of a lane (a stream or substream) from several batches of rows."""


class LaneExtent(NamedTuple):
    """The first and last times and ticks of the rows of one lane (a stream or substream): `timed_*` for rows with a
    stored time, `tick_*` for rows without one, `lone_*` for ends of spans without a begin. `timed_from` and
    `timed_until` are stored times; the other fields with these prefixes are ticks."""

    source: str
    session: str
    format: str
    stream: str
    substream: int | None
    events: int
    deepest: int | None
    longest: int | None
    timed_from: int | None
    timed_until: int | None
    timed_first: int | None
    timed_last: int | None
    tick_first: int | None
    tick_last: int | None
    lone_first: int | None
    lone_last: int | None

    @property
    def key(self) -> tuple[str, str, str, int | None]:
        return self.source, self.session, self.stream, self.substream

    def with_other(self, other: LaneExtent) -> LaneExtent:
        """Return the extent that covers this extent and another one of the same lane."""
        return LaneExtent._make(
            its if mine is None else mine if its is None else merge(mine, its)
            for merge, mine, its in zip(_MERGES, self, other, strict=True)
        )  # fmt: skip

    def times(self, session: SessionClock) -> tuple[int | None, int | None]:
        """Return the times (ns) of the lane's first and last row on the time axis of its session, or None if no row
        has a time."""
        firsts: list[int | None] = []
        lasts: list[int | None] = []
        if self.timed_from is not None:
            firsts.append(self.timed_from)
            length = 0
            if self.timed_first is not None and self.timed_last is not None:
                length = session.ticks.ns(self.timed_last) - session.ticks.ns(self.timed_first)
            lasts.append(self.timed_from + length)
        for first, last in ((self.tick_first, self.tick_last), (self.lone_first, self.lone_last)):
            if first is not None and last is not None:
                firsts.append(session.place_tick(first))
                lasts.append(session.place_tick(last))
        return least(firsts), most(lasts)


_MERGES: tuple[Callable[[Any, Any], Any], ...] = (
    *[max] * 5, add, max, max, min, max, min, max, min, max, min, max,
)  # fmt: skip
"""For each field of `LaneExtent`, the function that merges the known values of two extents of one lane. Both extents
have equal values in the first five fields. Merging must be fast: the files of a table may have thousands of extents to
merge before the first window can be drawn."""


def of_sessions(lanes: Iterable[LaneExtent], facts: Iterable[Facts]) -> Iterator[Extent]:
    """Yield the range of times and ticks of each session, computed from the ranges of its streams and substreams."""
    known = {(each.source, each.session): each for each in facts}
    by_session: dict[SessionKey, list[LaneExtent]] = {}
    for lane in lanes:
        by_session.setdefault((lane.source, lane.session), []).append(lane)
    for key, of_session in by_session.items():
        its = known.get(key)
        zero = None if its is None else its.zero
        starts = [each.timed_first for each in of_session]
        ends = [each.timed_last for each in of_session]
        times = [each.timed_from for each in of_session]
        first = least(each.tick_first for each in of_session)
        last = most(each.tick_last for each in of_session)
        if its is not None and zero is not None:
            # The epoch of the session's clock is known, so ticks can be converted to wall times.
            times.append(None if first is None else zero + its.ticks.ns(first))
            starts.append(first)
            ends.append(last)
            first = last = None
        offset = 0 if its is None else its.clock_offset or 0
        yield Extent(
            *key,
            of_session[0].format,
            least(times),
            least(starts),
            most(ends),
            None if first is None else first + offset,
            None if last is None else last + offset,
            least(each.lone_first for each in of_session),
            most(each.lone_last for each in of_session),
        )


def least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
