"""What a timeline knows of one snapshot of the table: its sessions, its lanes and its gaps.

A lane is a stream of a session, or one of its substreams. Times are on the axis of `export.clocks`: Unix
nanoseconds, or for a session without wall time nanoseconds from its arrival on.
"""

from __future__ import annotations

from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from tailrace.export.clocks import FACTS, Facts, Key, SessionClock, axis, placed
from tailrace.export.lost import EVENTS_OF, GAPS_OF, Gap, Neighbourhood, between
from tailrace.query.engine import Engine
from tailrace.query.filters import one_of
from tailrace.rollups.extents import EXTENTS, LaneExtent, of_sessions

_OPEN = "SELECT source, session, stream, substream, count(*) FROM part.open_begins GROUP BY ALL"


class LaneKey(NamedTuple):
    """What names a lane. The stream is empty for what belongs to no known stream."""

    source: str
    session: str
    stream: str
    substream: int | None = None


class Lane(NamedTuple):
    """A lane and what is in it. `first` and `last` are times on its axis, None if nothing in it has a time.

    Lanes with wall time share the axis `wall`; others share an axis with those of their run, or with their
    session alone. `missing` counts the events that the lane's stream is known to lack; `unknown` says
    whether it lacks further events. Both stand at the lane of a stream without substreams."""

    key: LaneKey
    format: str
    depths: int
    """How many rows of spans have a recorded depth; spans without one are drawn below these."""
    events: int
    open: int
    first: int | None
    last: int | None
    missing: int
    unknown: bool
    axis: str
    clock: str
    """What to say of the times: `wall time`, or which clock they are of."""


class PlacedGap(NamedTuple):
    """A gap, and between which times it lies; None where nothing tells."""

    gap: Gap
    begin: int | None
    end: int | None
    placed: str


class Snapshot:
    """One version of the table. The engine belongs to the caller, and must not move to another version."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.version = engine.version

    @cached_property
    def extents(self) -> dict[LaneKey, LaneExtent]:
        found = (LaneExtent(*row) for row in self.engine.rows(EXTENTS.format(rows="part.shown")))
        return {
            LaneKey(each.source, each.session, each.stream, each.substream): each for each in found
        }

    @cached_property
    def sessions(self) -> dict[Key, SessionClock]:
        facts = [Facts(*row) for row in self.engine.rows(FACTS.format(chosen="true"))]
        return placed(of_sessions(self.extents.values(), facts), facts)

    @cached_property
    def gaps(self) -> list[PlacedGap]:
        """Return all gaps, stream by stream."""
        gaps = [Gap(*row) for row in self.engine.rows(GAPS_OF.format(gaps="true"))]
        around = Neighbourhood(gaps)
        if gaps:
            self._look(around, {gap.session for gap in gaps})
        return [self._placed(gap, around) for gap in gaps]

    @cached_property
    def lanes(self) -> list[Lane]:
        """Return all lanes, in the order of their sources, sessions and streams."""
        opened = {LaneKey(*row[:4]): row[4] for row in self.engine.rows(_OPEN)}
        missing: dict[LaneKey, list[Gap]] = {
            LaneKey(*place): list(each)
            for place, each in groupby((g.gap for g in self.gaps), key=lambda gap: gap.place)
        }
        keys = sorted(self.extents.keys() | missing.keys() | opened.keys(), key=in_order)
        return [self._lane(key, opened.get(key, 0), missing.get(key, [])) for key in keys]

    def session(self, key: LaneKey) -> SessionClock:
        """Return a lane's session, even one of which nothing but gaps is known."""
        return self.sessions.get(key[:2]) or SessionClock(key.source, "", key.session)

    def _lane(self, key: LaneKey, opened: int, gaps: list[Gap]) -> Lane:
        session = self.session(key)
        extent = self.extents.get(key)
        first, last = (None, None) if extent is None else extent.times(session)
        format_ = session.format or (gaps[0].format if gaps else "")
        return Lane(
            key,
            format_,
            0 if extent is None or extent.deepest is None else extent.deepest + 1,
            opened + (0 if extent is None else extent.events),
            opened,
            first,
            last,
            sum(gap.remaining or 0 for gap in gaps),
            any(gap.remaining is None for gap in gaps),
            "wall" if session.tied else " ".join(axis(session)),
            session.clock_words,
        )

    def _look(self, around: Neighbourhood, sessions: set[str]) -> None:
        """Show `around` all events of the sessions that have gaps."""
        chosen = one_of("session", sorted(sessions))
        rows = self.engine.rows(EVENTS_OF.format(sessions=chosen.sql), chosen.values)
        for source, name, stream, number, offset, time, aligned in rows:
            session = self.sessions.get((source, name))
            begin = None if session is None else session.place(time, aligned)
            if begin is not None:
                around.see((source, name, stream), number, offset, begin)

    def _placed(self, gap: Gap, around: Neighbourhood) -> PlacedGap:
        session = self.sessions.get((gap.source, gap.session))
        session = session or SessionClock(gap.source, gap.format, gap.session)
        place = between(gap, session, around)
        return PlacedGap(gap, *(place or (None, None, "nowhere")))


def in_order(key: LaneKey) -> tuple[Any, ...]:
    """Return what orders lanes: streams with numbers by these, and a stream before its substreams."""
    number = int(key.stream) if key.stream.isdecimal() else -1
    substream = () if key.substream is None else (key.substream,)
    return key.source, key.session, number, key.stream, substream
