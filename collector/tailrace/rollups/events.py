"""The rows of one data file as what a timeline draws, whatever other files hold.

A row is a span (0), an instant (1) or a value of a counter (2). Its `spot` is its stored time or, without
one, its tick. A name that the row lacks is asked for by `id` or `asked`, when the row is shown. Begins are left
out: whether a begin is shown depends on other rows.

The extents of a lane are the first and last of its stored times and ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tailrace.timeline import DRAWN, Extent, Facts, SessionClock, SessionKey

SPAN, INSTANT, COUNTER = range(3)

COLUMNS = (
    "source", "session", "stream", "substream", "kind", "name", "id", "depth", "start", "end", "time",
    "attributes", "offset",
)  # fmt: skip
"""The columns of the table that are read."""

LANE = "source, session, stream, substream"

LABEL_MAX = 1000
"""Characters of a name in a label. A timeline shows fewer; a label is copied for each step of a sum."""

BY_NAME = f"'=' || CASE WHEN length({{0}}) <= {LABEL_MAX} THEN {{0}} ELSE left({{0}}, {LABEL_MAX}) || '…' || md5({{0}}) END"
"""The label of a row that has the name `{0}`. The names of counters stay apart from one another, however long."""

# DuckDB evaluates an expression of one branch for all rows where it occurs twice, so text is left out before it
# is parsed: one attribute of 10 MB takes 100 MB to parse.
_DRAWN = f"""
SELECT source, session, stream, substream, depth, "offset", start, "end", kind,
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
  source, session, stream, substream, timed, depth, spot AS edge, spot, start, 1::BIGINT AS "count"
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
"""The events of `rows`, each as a sum of one; `condition` selects rows by columns of the table. It names parts of
`query.inner_views`, which must be defined."""

KEYS = "what, timed, depth"
"""The columns that separate sums within a lane, beside the names of counters."""

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
"""Sums of spans or instants. `label` is that of one of the longest; `spot`, `start`, `offset` and `kind` are
those of a single one."""

VALUES = f"""
  max(spot) AS spot, label, member, {ADDED} arg_max("offset", {{'s': spot, 'o': "offset"}}) AS "offset",
  NULL::VARCHAR AS kind, min(least) AS least, max(most) AS most,
  arg_max(latest, {{'s': spot, 'o': "offset"}}) AS latest
"""
"""Sums of a counter's values, by `label` and `member`. `spot` and `offset` are those of the latest."""


def added(rows: str, keys: str, edge: str) -> str:
    """Return the SQL of the sums of rows or of sums, by `keys` and by the edge of a bucket."""
    return f"""
SELECT {keys}, {KEYS}, {edge} AS edge, {SUMS} FROM {rows} WHERE what <> {COUNTER} GROUP BY ALL
UNION ALL
SELECT {keys}, {KEYS}, {edge} AS edge, {VALUES} FROM {rows} WHERE what = {COUNTER} GROUP BY ALL
"""  # noqa: S608 - our own words


EXTENTS = f"""
SELECT source, session, any_value(format), stream, substream,
  count(*) FILTER (kind IN ('span', 'instant', 'counter', 'annotation')), max(depth),
  max(greatest("end"::HUGEINT - start, 0)), min(time), max(time), min(start) FILTER (time IS NOT NULL),
  max(greatest(start, coalesce("end", start))) FILTER (time IS NOT NULL),
  min(start) FILTER (time IS NULL), max(greatest(start, coalesce("end", start))) FILTER (time IS NULL),
  min("end") FILTER (start IS NULL), max("end") FILTER (start IS NULL)
FROM {{rows}} WHERE {DRAWN} GROUP BY source, session, stream, substream
"""  # noqa: S608 - our own words


JOINED = """
SELECT source, session, any_value(format) AS format, stream, substream, sum(events)::BIGINT AS events,
  max(deepest) AS deepest, max(longest) AS longest, min(timed_from) AS timed_from,
  max(timed_until) AS timed_until, min(timed_first) AS timed_first, max(timed_last) AS timed_last,
  min(tick_first) AS tick_first, max(tick_last) AS tick_last, min(lone_first) AS lone_first,
  max(lone_last) AS lone_last
FROM {extents} GROUP BY source, session, stream, substream
"""
"""The extents of lanes of which several parts are known."""


class LaneExtent(NamedTuple):
    """The extent of a lane's rows. `timed_*` are of rows with a stored time, `tick_*` of rows without one,
    `lone_*` of ends without a begin; all are ticks but the times `timed_from` and `timed_until`."""

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
        """Return what names the lane."""
        return self.source, self.session, self.stream, self.substream

    def with_other(self, other: LaneExtent) -> LaneExtent:
        """Return the extent of this and of another part of the lane."""
        changed: dict[str, Any] = {"events": self.events + other.events}
        changed |= {name: least((getattr(self, name), getattr(other, name))) for name in _LEAST}
        changed |= {name: most((getattr(self, name), getattr(other, name))) for name in _MOST}
        return self._replace(**changed)

    def times(self, session: SessionClock) -> tuple[int | None, int | None]:
        """Return where the lane begins and ends on the axis of its session; None if nothing has a place."""
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


_LEAST = ("timed_from", "timed_first", "tick_first", "lone_first")
_MOST = ("deepest", "longest", "timed_until", "timed_last", "tick_last", "lone_last")


def of_sessions(lanes: Iterable[LaneExtent], facts: Iterable[Facts]) -> Iterator[Extent]:
    """Yield the extents of sessions from those of their lanes."""
    known = {(each.source, each.session): each for each in facts}
    by_session: dict[SessionKey, list[LaneExtent]] = {}
    for lane in lanes:
        by_session.setdefault((lane.source, lane.session), []).append(lane)
    for key, of_session in by_session.items():
        yield _of_session(key, of_session, known.get(key))


def _of_session(key: SessionKey, lanes: list[LaneExtent], facts: Facts | None) -> Extent:
    starts = [each.timed_first for each in lanes]
    ends = [each.timed_last for each in lanes]
    times = [each.timed_from for each in lanes]
    first_tick = least(each.tick_first for each in lanes)
    last_tick = most(each.tick_last for each in lanes)
    lone = least(each.lone_first for each in lanes), most(each.lone_last for each in lanes)
    if facts is not None and (zero := facts.zero) is not None:
        if first_tick is not None:
            times.append(zero + facts.ticks.ns(first_tick))
        return Extent(
            *key,
            lanes[0].format,
            first_time=least(times),
            first_start=least([*starts, first_tick]),
            last_end=most([*ends, last_tick]),
            first_lone_end=lone[0],
            last_lone_end=lone[1],
        )
    offset = 0 if facts is None else facts.clock_offset or 0
    return Extent(
        *key,
        lanes[0].format,
        least(times),
        least(starts),
        most(ends),
        None if first_tick is None else first_tick + offset,
        None if last_tick is None else last_tick + offset,
        *lone,
    )


def least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
