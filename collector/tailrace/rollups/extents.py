"""How far the rows of each lane reach, in the times and ticks that are stored.

Rows that were stored with a time have their extent apart from the other rows: the times of the latter follow
from facts about the session that may come later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tailrace.export.clocks import DRAWN, Extent, Facts, Key, SessionClock

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
    by_session: dict[Key, list[LaneExtent]] = {}
    for lane in lanes:
        by_session.setdefault((lane.source, lane.session), []).append(lane)
    for key, of_session in by_session.items():
        yield _of_session(key, of_session, known.get(key))


def _of_session(key: Key, lanes: list[LaneExtent], facts: Facts | None) -> Extent:
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
