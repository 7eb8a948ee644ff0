"""Find the times of gaps with SQL, and merge gaps that a drawing cannot show separately.

A gap lies between its nearest events by sequence number or by offset. Nearly each gap has an event directly before
it and one directly after it, which a join on equal numbers finds. The other gaps are compared with all events of
their streams. Data files never change, so each file is searched once for each gap."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from tailrace.rollups.pieces import Longs, Truths
from tailrace.rollups.rows import FARTHEST, RowSource
from tailrace.rollups.scale import Range
from tailrace.timeline import DRAWN, NUMBERS, Gap, SessionClock, between


class PlacedGap(NamedTuple):
    """A gap, and the times (ns) between which it lies, or None if they are unknown."""

    gap: Gap
    begin: int | None
    end: int | None
    placed: str


class SeenGap(NamedTuple):
    """One mark in a drawing, which stands for `gaps` gaps of one stream that begin in the same bucket (a slice of time)
    and end in the same bucket.

    - `first`: one of these gaps.
    - `remaining`: the sum of the known numbers of missing events, or None if none is known.
    - `unknown`: the number of gaps with an unknown number of missing events.
    - `reason`: the reason of the gaps, or None if they have several."""

    first: PlacedGap
    gaps: int
    begin: int | None
    end: int | None
    remaining: int | None
    unknown: int
    reason: str | None


GapStream = tuple[str, str, str]


class GapTable:
    def __init__(self, gaps: Sequence[PlacedGap]) -> None:
        self.gaps = gaps
        self._streams: dict[GapStream, int] = {}
        of = [self._streams.setdefault(each.gap.place, len(self._streams)) for each in gaps]
        self._stream = np.array(of, np.int64)
        self._nowhere: Truths = np.array([each.begin is None or each.end is None for each in gaps], np.bool_)  # fmt: skip
        self._begin: Longs = np.array([each.begin or 0 for each in gaps], np.int64)
        self._end: Longs = np.array([each.end or 0 for each in gaps], np.int64)

    def within(self, window: Range, log: int, streams: Collection[GapStream]) -> Iterator[SeenGap]:
        """Yield the gaps of the given streams that lie in a window, merged by buckets of 2 ** `log` ns. A gap
        without a known time lies in each window."""
        wanted = np.zeros(len(self._streams), np.bool_)
        wanted[[number for stream, number in self._streams.items() if stream in streams]] = True
        seen = wanted[self._stream] if len(self.gaps) else np.zeros(0, np.bool_)
        seen &= self._nowhere | ((self._begin < window.end) & (self._end >= window.begin))
        chosen = np.flatnonzero(seen)
        begins = np.clip(self._begin[chosen], window.begin - 1, None) >> log
        ends = np.clip(self._end[chosen], None, window.end) >> log
        nowhere = self._nowhere[chosen]
        keys = np.stack((self._stream[chosen], nowhere, np.where(nowhere, 0, begins), np.where(nowhere, 0, ends)))  # fmt: skip
        _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        order = np.argsort(group.reshape(-1), kind="stable")
        limits = np.cumsum(np.bincount(group.reshape(-1), minlength=len(first)))[:-1]
        for members in np.split(chosen[order], limits) if len(chosen) else ():
            yield _seen([self.gaps[number] for number in members.tolist()])


def _seen(gaps: Sequence[PlacedGap]) -> SeenGap:
    known = [each.gap.remaining for each in gaps if each.gap.remaining is not None]
    reasons = {each.gap.reason for each in gaps}
    placed = [(each.begin, each.end) for each in gaps if each.begin is not None and each.end is not None]  # fmt: skip
    return SeenGap(
        gaps[0],
        len(gaps),
        min((begin for begin, _ in placed), default=None),
        max((end for _, end in placed), default=None),
        sum(known) if known else None,
        len(gaps) - len(known),
        reasons.pop() if len(reasons) == 1 else None,
    )


_EVENTS = f"""
SELECT source, session, stream, {{number}} AS number, "offset", time, start FROM {{rows}}
WHERE {DRAWN} AND kind <> 'end' AND start IS NOT NULL AND {{formats}}
"""  # noqa: S608 - our own words

_OTHERWISE = ("dftracer", "et3")
"""Formats whose events do not have their sequence number in the column `seq`."""

_BESIDE = """
SELECT g.key, g.below, any_value(struct_pack(place := e.number, time := e.time, start := e.start))
FROM (FROM ({events}) WHERE number IN (SELECT number FROM beside)) AS e
JOIN beside AS g USING (source, session, stream, number) GROUP BY g.key, g.below
"""
"""SQL for the events directly before and after gaps. Few rows have one of the numbers, and to look for the number alone
is faster than the join."""

_EVENT = "struct_pack(place := e.{by}, time := e.time, start := e.start)"
_NEAREST = ", ".join(
    f"arg_{most}({_EVENT.format(by=by)}, e.{by}) FILTER (e.{by} {bound})"
    for by, most, bound in (
        ("number", "max", "< g.first"),
        ("number", "min", "> g.last"),
        ('"offset"', "max", '< g."offset"'),
        ('"offset"', "min", '>= g."offset"'),
    )
)
_AROUND = f"""
SELECT g.key, {_NEAREST} FROM ({{events}}) AS e JOIN around AS g USING (source, session, stream) GROUP BY g.key
UNION ALL
SELECT g.key, {_NEAREST} FROM ({{events}}) AS e
JOIN (FROM around WHERE stream = '') AS g ON g.source = e.source AND g.session = e.session AND e.stream <> ''
GROUP BY g.key
"""  # noqa: S608 - our own words

CROWD = 1000
"""Maximum number of gaps that one SQL statement compares with all events of their streams."""


class NearEvent(NamedTuple):
    """The nearest event before or after a gap. `place` is its sequence number, or its offset in the session's bytes.
    `time` is its stored time, and `start` its start tick."""

    place: int
    time: int | None
    start: int

    def begin(self, session: SessionClock) -> int | None:
        return session.place_tick(self.start) if self.time is None else session.place(self.time, None)  # fmt: skip


class _Nearest:
    """The events nearest before and after one gap that have been found so far, by sequence number and by offset."""

    __slots__ = ("_fixed", "by_number", "by_offset", "gap")

    def __init__(self, gap: Gap) -> None:
        self.gap = gap
        self.by_number: list[NearEvent | None] = [None, None]
        self.by_offset: list[NearEvent | None] = [None, None]
        self._fixed: PlacedGap | None = None

    @property
    def exact(self) -> bool:
        """Whether both direct neighbours of the gap by sequence number have been found."""
        first, end, (before, behind) = self.gap.first, self.gap.end, self.by_number
        if first is None or end is None or before is None or behind is None:
            return False
        return before.place == first - 1 and behind.place == end + 1

    def see(self, events: Iterable[dict[str, Any] | None]) -> None:
        """Keep those of the given events that are nearer to the gap than the events found so far. `events` has, in this
        order, the events before and after the gap by sequence number, and the events before and after the gap by
        offset. None stands for an event that was not found."""
        for side, found in enumerate(events):
            kept = self.by_number if side < 2 else self.by_offset
            if found is None:
                continue
            event, known = NearEvent(**found), kept[side % 2]
            if known is None or (event.place > known.place) == (side % 2 == 0):
                kept[side % 2] = event

    def times(self, session: SessionClock) -> tuple[int | None, int | None]:
        """Return the begins (ns) of the nearest events before and after the gap, or None where unknown. Events found
        by offset count only if none was found by sequence number."""
        for before, behind in (self.by_number, self.by_offset):
            first = None if before is None else before.begin(session)
            end = None if behind is None else behind.begin(session)
            if first is not None or end is not None:
                return first, end
        return None, None

    def placed(self, sessions: dict[tuple[str, str], SessionClock]) -> PlacedGap:
        """Return the gap with its times. Compute these times only once if no newer version of the table can change
        them."""
        if self._fixed is not None:
            return self._fixed
        gap = self.gap
        session = sessions.get((gap.source, gap.session))
        session = session or SessionClock(gap.source, gap.format, gap.session)
        times = self.times(session)
        found = PlacedGap(gap, *(between(session, *times) or (None, None, "nowhere")))
        stored = [event is not None and event.time is not None for event in self.by_number]
        if self.exact and all(stored) and None not in times:
            self._fixed = found
        return found


class GapPlaces:
    """The nearest events of each gap of a table. They are kept from one version of the table to the next."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._known: dict[Gap, _Nearest] = {}

    def placed(
        self, gaps: Sequence[Gap], rows: RowSource, sessions: dict[tuple[str, str], SessionClock]
    ) -> list[PlacedGap]:
        """Return the gaps with the times between which they lie. Raise DuckDB's errors if a data file cannot be
        read."""
        known = {gap: nearest for gap in gaps if (nearest := self._known.get(gap)) is not None}
        new = {gap: _Nearest(gap) for gap in gaps if gap not in known}
        paths = set(rows.paths)
        for unread, wanted in ((paths - self._files, known), (paths, new)):
            if unread:
                files = _Files(rows, sorted(unread))
                files.find_beside([each for each in wanted.values() if not each.exact])
                files.find_around([each for each in wanted.values() if not each.exact])
        self._known, self._files = known | new, paths
        return [self._known[gap].placed(sessions) for gap in gaps]


class _Files(NamedTuple):
    """The data files `paths`, in which the events nearest to gaps are searched."""

    rows: RowSource
    paths: Sequence[str]

    def find_beside(self, gaps: Sequence[_Nearest]) -> None:
        """Find the events whose sequence number directly precedes or follows a gap."""
        wanted = [
            (key, below, *each.gap.place, number + (-1 if below else 1))
            for key, each in enumerate(gaps)
            for below, number in ((True, each.gap.first), (False, each.gap.end))
            # `find_around` finds the neighbours of a gap at the ends of the 64-bit range.
            if number is not None and abs(number) < FARTHEST and each.gap.stream
        ]
        columns = ("key", "below", "source", "session", "stream", "number")
        for key, below, event in self._ask(gaps, _BESIDE, "beside", columns, wanted):
            gaps[key].see([event, None] if below else [None, event])

    def find_around(self, gaps: Sequence[_Nearest]) -> None:
        """Find the nearest events of gaps. Each gap is compared with all events of its stream."""
        for at in range(0, len(gaps), CROWD):
            some = gaps[at : at + CROWD]
            wanted = [
                (key, *each.gap.place, each.gap.first, each.gap.end, each.gap.offset)
                for key, each in enumerate(some)
            ]
            columns = ("key", "source", "session", "stream", "first", "last", "offset")
            for key, *events in self._ask(some, _AROUND, "around", columns, wanted):
                some[key].see(events)

    def _ask(
        self,
        gaps: Sequence[_Nearest],
        sql: str,
        name: str,
        columns: Sequence[str],
        wanted: list[tuple[Any, ...]],
    ) -> list[tuple[Any, ...]]:
        if not wanted:
            return []
        texts = {"source", "session", "stream"}
        types = [pa.string() if each in texts else pa.bool_() if each == "below" else pa.int64() for each in columns]  # fmt: skip
        arrays = [pa.array(column, type_) for column, type_ in zip(zip(*wanted, strict=True), types, strict=True)]  # fmt: skip
        formats = {each.gap.format for each in gaps}
        numbered = [("seq", f"format NOT IN {_OTHERWISE}")] if formats - set(_OTHERWISE) else []
        if formats & set(_OTHERWISE):
            numbered.append((NUMBERS, f"format IN {_OTHERWISE}"))
        database = self.rows.database
        database.register(name, pa.Table.from_arrays(arrays, names=list(columns)))
        try:
            found = []
            for number, chosen in numbered:
                rows = self.rows.of(self.paths, "gap_rows")
                events = _EVENTS.format(number=number, formats=chosen, rows=rows)
                found += database.execute(sql.format(events=events)).fetchall()
            return found
        finally:
            database.unregister(name)
