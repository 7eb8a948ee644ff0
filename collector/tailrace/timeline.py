"""Place the rows and gaps of sessions on a time axis in nanoseconds, for exports and drawn timelines.

If a session's clock is related to wall time, its rows are at their Unix times. The other sessions of a run share an
axis on which the first row is placed at the time at which the collector opened the run's first session. A tick of
unknown length counts as one nanosecond."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

LATEST = 2**63 - 1
"""Latest time (ns) that all export formats support. The earliest is 0. Rows outside of this range are omitted, and
later ends are cut to it."""

DRAWN = "kind NOT IN ('session', 'name', 'gap', 'heal')"
"""SQL condition that selects the rows that a timeline draws. It lists the kinds that are not drawn. From a list of the
drawn kinds, DuckDB would expect few rows, and would keep all of them in memory for a join."""

SessionKey = tuple[str, str]
"""The name of a session's source, and the session's id."""

FACTS = """
SELECT s.source, s.format, s.session, s.opened, s.closed_at, s.run, s.clock, s.ticks_per_second, s.epoch, s.clock_offset,
  s.peer
FROM sessions AS s WHERE {chosen}"""


DEEPEST = 256
"""Maximum depth of nested spans that are drawn in one lane. Perfetto can draw at most 512."""

NUMBERS = """CASE format
  WHEN 'dftracer' THEN try_cast(part.member(attributes, '$.id') AS BIGINT)
  WHEN 'et3' THEN start
  ELSE seq END"""
"""SQL expression for the number that an event has in its stream, by which gaps name missing events."""

_PLACED = {
    (True, True): "between two events",
    (True, False): "after an event",
    (False, True): "before an event",
    (False, False): "somewhere in its session",
}
"""Texts that state where a gap lies, by whether an event before it is known and whether an event after it is known."""

GAPS_OF = """
SELECT source, session, format, stream, reason, detail, first, last, remaining, "of", id, "offset"
FROM gaps WHERE {gaps}
ORDER BY source, session, stream, first, "offset", reason, id"""

StreamPlace = tuple[str, str, str]
"""Source, session and stream. The stream is "" if it is unknown."""


class Ticks(NamedTuple):
    """The number of clock ticks of a session in a second (`rate`), or None if it is unknown."""

    rate: float | None

    @classmethod
    def stated(cls, rate: float | None) -> Ticks:
        """Return the `Ticks` for a rate that a session states. A rate with which no time can be computed counts as
        unknown."""
        return cls(rate if rate is not None and 1e-28 <= rate < 1e18 else None)

    def ns(self, ticks: int) -> int:
        """Return the time (ns) of a number of ticks, rounded as in the SQL views. An unknown tick counts as 1 ns."""
        rate = self.rate
        if rate is None or rate == 1e9:
            return ticks
        if rate.is_integer():
            return ticks * 1_000_000_000 // int(rate)
        return round(ticks * (1e9 / rate))


class SessionClock(NamedTuple):
    """The clock of a session, and its range on the time axis. `shift` is the time (ns) of tick 0 on an axis without
    wall time. `first` and `last` (ns, at most `LATEST`) are the start of the first drawn row and the end of the last
    one or, without drawn rows, the times at which the session was opened and closed."""

    source: str
    format: str
    session: str
    peer: str | None = None
    clock: str | None = None
    ticks: Ticks = Ticks(None)
    tied: bool = True
    epoch: int | None = None
    clock_offset: int = 0
    shift: int = 0
    first: int | None = None
    last: int | None = None
    run: str | None = None

    @property
    def clock_words(self) -> str:
        if self.tied:
            return "wall time"
        kind = self.clock or "unknown"
        if self.ticks.rate is None:
            return f"{kind} clock without wall time: from its arrival on, a tick is drawn as 1 ns"
        return f"{kind} clock without wall time: drawn from its arrival on"

    def place(self, time: int | None, aligned: int | None) -> int | None:
        """Return the start (ns) of a row on the time axis, or None if it is unknown, below 0 or beyond `LATEST`.
        `aligned` is the start tick plus `clock_offset`, for a row without a stored time."""
        if time is None:
            if aligned is None or self.epoch is not None:
                return None
            time = self.ticks.ns(aligned) + self.shift
        return time if 0 <= time <= LATEST else None

    def place_tick(self, tick: int) -> int | None:
        """Return the time (ns) of a tick on the time axis, or None if it is unknown, below 0 or beyond `LATEST`."""
        if self.epoch is not None:
            return self.place(self.epoch + self.ticks.ns(tick), None)
        return None if self.tied else self.place(None, tick + self.clock_offset)

    def end(self, begin: int, start: int, end: int) -> int:
        """Return the end (ns) of a row that begins at `begin` (ns). `start` and `end` are the row's ticks. The
        result is never before `begin`."""
        ns = self.ticks.ns
        return min(max(begin + ns(end) - ns(start), begin), LATEST)


class Extent(NamedTuple):
    """The first and last times and ticks of the drawn rows of a session, in three groups: rows with wall time, rows
    without wall time (`aligned`: ticks plus `clock_offset`), and ends without a begin (`lone`)."""

    source: str
    session: str
    format: str
    first_time: int | None = None
    first_start: int | None = None
    last_end: int | None = None
    first_aligned: int | None = None
    last_aligned: int | None = None
    first_lone_end: int | None = None
    last_lone_end: int | None = None


class Facts(NamedTuple):
    """The clock, times of opening and closing, run and peer of a session, as in the view `sessions`."""

    source: str
    format: str
    session: str
    opened: int | None = None
    closed_at: int | None = None
    run: str | None = None
    clock: str | None = None
    rate: float | None = None
    epoch: int | None = None
    clock_offset: int | None = None
    peer: str | None = None

    @property
    def ticks(self) -> Ticks:
        return Ticks.stated(self.rate)

    @property
    def zero(self) -> int | None:
        """Unix time (ns) of tick 0, or None if the epoch or a plausible tick rate is unknown."""
        return None if self.ticks.rate is None else self.epoch


def placed(extents: Iterable[Extent], facts: Iterable[Facts]) -> dict[SessionKey, SessionClock]:
    """Return the clock of each session that has drawn rows (`extents`) or a row in the view `sessions`, sorted."""
    of_rows = {(e.source, e.session): e for e in extents}
    known = {(f.source, f.session): f for f in facts}
    for key, facts_of in known.items():
        if (
            facts_of.zero is not None and key in of_rows
        ):  # a row without a stored time has no position on the axis of wall time
            of_rows[key] = of_rows[key]._replace(first_aligned=None, last_aligned=None)
    for key in sorted(known.keys() - of_rows.keys()):
        of_rows[key] = Extent(*key, known[key].format)
    for key in of_rows.keys() - known.keys():
        known[key] = Facts(key[0], of_rows[key].format, key[1])
    shifts = _shifts(of_rows.values(), known)
    return {key: _session(of_rows[key], known[key], shifts) for key in sorted(of_rows)}


def axis(of: Facts | SessionClock) -> SessionKey:
    """Return the key of the time axis of a session without wall time: the session's source, and either its run or, if
    it belongs to no run, the session itself."""
    return (of.source, f"run {of.run}" if of.run else f"session {of.session}")


def _shifts(extents: Iterable[Extent], facts: dict[SessionKey, Facts]) -> dict[SessionKey, int]:
    """Return the time (ns) of tick 0 on each axis without wall time, by the key of the axis."""
    firsts: dict[SessionKey, int] = {}
    opened: dict[SessionKey, int] = {}
    for extent in extents:
        its = facts[extent.source, extent.session]
        its_axis = axis(its)
        if its.opened is not None:
            opened[its_axis] = min(opened.get(its_axis, its.opened), its.opened)
        if extent.first_aligned is not None:
            first = its.ticks.ns(extent.first_aligned)
            firsts[its_axis] = min(firsts.get(its_axis, first), first)
    return {each: opened.get(each, 0) - first for each, first in firsts.items()}


def _session(extent: Extent, facts: Facts, shifts: dict[SessionKey, int]) -> SessionClock:
    ticks = facts.ticks
    shift = shifts.get(axis(facts), 0)
    firsts, lasts = [], []
    if extent.first_time is not None:
        firsts.append(extent.first_time)
        if extent.first_start is not None and extent.last_end is not None:
            length = ticks.ns(extent.last_end) - ticks.ns(extent.first_start)
            lasts.append(extent.first_time + length)
    if extent.first_aligned is not None and extent.last_aligned is not None:
        firsts.append(ticks.ns(extent.first_aligned) + shift)
        lasts.append(ticks.ns(extent.last_aligned) + shift)
    if not firsts and facts.opened is not None:
        firsts.append(facts.opened)
        lasts.append(facts.closed_at if facts.closed_at is not None else facts.opened)
    session = SessionClock(
        extent.source,
        extent.format,
        extent.session,
        facts.peer,
        facts.clock,
        ticks,
        tied=extent.first_aligned is None,
        epoch=facts.zero,
        clock_offset=facts.clock_offset or 0,
        shift=shift,
        first=min(*firsts, LATEST) if firsts else None,
        last=min(max(lasts), LATEST) if lasts else None,
        run=facts.run,
    )
    lone = [extent.first_lone_end, extent.last_lone_end]
    for end in (session.place_tick(tick) for tick in lone if tick is not None):
        if end is not None and session.first is not None and session.last is not None:
            session = session._replace(first=min(session.first, end), last=max(session.last, end))
    return session


class Gap(NamedTuple):
    """A row of the view `gaps`, with the columns that exports and timelines need."""

    source: str
    session: str
    format: str
    stream: str
    reason: str
    detail: str | None
    first: int | None
    last: int | None
    remaining: int | None
    of: str | None
    id: int | None
    offset: int

    @property
    def place(self) -> StreamPlace:
        return self.source, self.session, self.stream

    @property
    def end(self) -> int | None:
        return self.first if self.last is None else self.last


def between(
    session: SessionClock, before: int | None, behind: int | None
) -> tuple[int, int, str] | None:
    """Return the begin and end (ns) of a gap, and a text that states where it lies, or None if begin or end is unknown.
    `before` and `behind` are the times of the events before and after the gap. If one of them is None, the session's
    first or last time takes its place."""
    begin = session.first if before is None else before
    end = session.last if behind is None else behind
    if begin is None or end is None or begin < 0:
        return None
    return begin, max(begin, end), _PLACED[before is not None, behind is not None]
