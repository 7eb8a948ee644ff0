"""Place gaps in time, between the event before the gap and the event after the gap.

A gap has no time, but usually sequence numbers, and lies between the events of the stream with the next lower and the
next higher number. Otherwise it lies between the events before and after its offset in the session's bytes, or else
between the session's first and last time. `Neighbours` finds these events in one pass; its memory grows with the number
of gaps, while a join in the database would hold or sort all events.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from tailrace.export.drawn_rows import DrawnRows
from tailrace.export.output import RowCount
from tailrace.query.filters import one_of
from tailrace.query.views import GAPS
from tailrace.timeline import DRAWN, GAPS_OF, NUMBERS, Gap, SessionClock, StreamPlace, between

Seen = tuple[int, int]
"""Position of an event (its sequence number or its offset), and its start time (ns)."""


class Neighbours:
    """Finds the nearest event below each position in `lows`, and the nearest event above each position in `highs`. A
    position is a sequence number, or an offset in a session's bytes."""

    def __init__(self, lows: Iterable[int], highs: Iterable[int]) -> None:
        self._lows, self._highs = sorted(set(lows)), sorted(set(highs))
        self._below: list[Seen | None] = [None] * len(self._lows)
        self._above: list[Seen | None] = [None] * len(self._highs)

    def see(self, number: int, time: int) -> None:
        """Record an event with the start `time` (ns) at the position `number`. Store it only once in each list: at the
        nearest higher position in `lows`, and at the nearest lower position in `highs`. So `below` and `above` must go
        on to further positions if a position has no event."""
        low = bisect_right(self._lows, number)
        if low < len(self._lows):
            found = self._below[low]
            if found is None or found[0] < number:
                self._below[low] = (number, time)
        high = bisect_left(self._highs, number) - 1
        if high >= 0:
            found = self._above[high]
            if found is None or found[0] > number:
                self._above[high] = (number, time)

    def below(self, low: int) -> int | None:
        """Return the time (ns) of the last event before the position `low`, or None. `low` must be one of the
        constructor's `lows`."""
        for index in range(bisect_left(self._lows, low), -1, -1):
            if (found := self._below[index]) is not None:
                return found[1]
        return None

    def above(self, high: int) -> int | None:
        """Return the time (ns) of the first event after the position `high`, or None. `high` must be one of the
        constructor's `highs`."""
        for index in range(bisect_left(self._highs, high), len(self._highs)):
            if (found := self._above[index]) is not None:
                return found[1]
        return None


EVENTS_OF = f"""
SELECT source, session, stream, {NUMBERS} AS number, "offset", time, aligned
FROM events WHERE {DRAWN} AND kind <> 'end' AND start IS NOT NULL AND {{sessions}}
"""  # noqa: S608 - our own words
"""SQL for the events between which a gap may lie: all events with a start in the sessions that have gaps."""


class Lost(NamedTuple):
    """A gap to draw. It lies between the times `begin` and `end` (ns), limited to the selected times. `members` has the
    details to show with the gap: columns of the view `gaps`, the gap's whole range of time, and a text that states how
    exact this range is."""

    session: SessionClock
    stream: str
    name: str
    begin: int
    end: int
    members: dict[str, Any]


class Neighbourhood:
    """The events nearest to the gaps of a selection, by sequence number and by offset, for each stream. All events of
    the sessions with gaps count, even those that the user's filters exclude."""

    def __init__(self, timeline: DrawnRows, gaps: list[Gap]) -> None:
        self._of: dict[StreamPlace, tuple[Neighbours, Neighbours]] = {}
        for place, group in groupby(gaps, key=lambda gap: gap.place):
            of_stream = list(group)
            self._of[place] = (
                Neighbours(
                    (gap.first for gap in of_stream if gap.first is not None),
                    (gap.end for gap in of_stream if gap.end is not None),
                ),
                Neighbours(
                    (gap.offset for gap in of_stream), (gap.offset - 1 for gap in of_stream)
                ),
            )

        if gaps:
            self._look(timeline, {gap.session for gap in gaps})

    def _look(self, timeline: DrawnRows, sessions: set[str]) -> None:
        # List the sessions as values: for a join, DuckDB might hold all events in memory.
        chosen = one_of("session", sorted(sessions))
        clocks = timeline.sessions
        answer = timeline.selected.arrow(EVENTS_OF.format(sessions=chosen.sql), chosen.values)
        for batch in timeline.selected.batches(answer, RowCount(None)):
            columns = [column.to_pylist() for column in batch.columns]
            for source, session, stream, number, offset, *at in zip(*columns, strict=True):
                clock = clocks.get((source, session))
                time = None if clock is None else clock.place(*at)
                if time is None:
                    continue
                for of in {stream, ""}:
                    if (found := self._of.get((source, session, of))) is not None:
                        by_number, by_offset = found
                        by_offset.see(offset, time)
                        if number is not None:
                            by_number.see(number, time)

    def of(self, gap: Gap) -> tuple[int | None, int | None]:
        """Return the times of the nearest events before and after a gap: by number or, if there is none, by offset."""
        by_number, by_offset = self._of[gap.place]
        before = None if gap.first is None else by_number.below(gap.first)
        behind = None if gap.end is None else by_number.above(gap.end)
        if before is None and behind is None:
            return by_offset.below(gap.offset), by_offset.above(gap.offset - 1)
        return before, behind


def lost(timeline: DrawnRows) -> Iterator[Lost]:
    """Yield the gaps within the selected range of time, by stream, then by begin. Count all other gaps in
    `timeline.left`."""
    chosen = timeline.selected.condition(GAPS)
    gaps = [
        Gap(*row) for row in timeline.selected.few(GAPS_OF.format(gaps=chosen.sql), chosen.values)
    ]
    around = Neighbourhood(timeline, gaps)
    for _, of_stream in groupby(gaps, key=lambda gap: gap.place):
        found = [_place(timeline, gap, around) for gap in of_stream]
        known = [each for each in found if each is not None]
        yield from sorted(known, key=lambda each: (each.begin, -each.end))


def _place(timeline: DrawnRows, gap: Gap, around: Neighbourhood) -> Lost | None:
    session = timeline.session(gap.source, gap.session, gap.format)
    place = between(session, *around.of(gap))
    if place is None:
        timeline.left["gap without a place in time"] += 1
        return None
    begin, end, words = place
    _, since, until = timeline.selected.filters.window
    first = begin if since is None else max(begin, since)
    last = end if until is None else min(end, until)
    if first > end or (until is not None and first >= until):
        timeline.left["gap outside of the selected times"] += 1
        return None
    count = "an unknown number" if gap.remaining is None else gap.remaining
    members = {
        "reason": gap.reason, "detail": gap.detail, "first": gap.first, "last": gap.last,
        "remaining": gap.remaining, "of": gap.of, "id": gap.id,
        "placed": words, "begins": begin, "ends": end,
    }  # fmt: skip
    known = {key: value for key, value in members.items() if value is not None}
    name = f"LOST {count} ({gap.reason})"
    return Lost(session, gap.stream, name, first, max(first, last), known)
