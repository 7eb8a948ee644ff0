"""Know of one snapshot of the table its sessions, its lanes and its gaps.

A lane is a stream of a session, or one of its substreams. Times are on the axis of `export.clocks`: Unix
nanoseconds, or for a session without wall time nanoseconds from its arrival on.
"""

from __future__ import annotations

import copy
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, Self

from tailrace.export.clocks import Facts, Key, SessionClock, axis, placed
from tailrace.export.lost import EVENTS_OF, GAPS_OF, Gap, Neighbourhood, between
from tailrace.query.engine import Engine
from tailrace.query.filters import one_of
from tailrace.rollups.events import BY_NAME
from tailrace.rollups.extents import EXTENTS, LaneExtent, of_sessions
from tailrace.rollups.held import Held
from tailrace.rollups.row_source import RowSource

_OPEN = "SELECT source, session, stream, substream, count(*) FROM part.open_begins GROUP BY ALL"

_HIDDEN = """
SELECT DISTINCT split_part(session, '.', 1) FROM stored WHERE kind = 'session'
EXCEPT SELECT DISTINCT split_part(session, '.', 1) FROM part.shown WHERE kind = 'session'
"""
"""The sessions that others replace, by their roots."""

_FACTS = """
SELECT w.source, w.format, w.session, r.opened, w.closed_at, r.run, c.clock, c.ticks_per_second, c.epoch,
  c.clock_offset, w.peer
FROM (
  SELECT source, session, any_value(format) AS format, arg_max(ours ->> '$.peer', place) AS peer,
    arg_max(try_cast(ours ->> '$.closed_at' AS BIGINT), place) AS closed_at
  FROM part.session_words GROUP BY source, session
) AS w
LEFT JOIN part.runs AS r USING (source, session) LEFT JOIN part.clocks AS c USING (source, session)
"""
"""`clocks.FACTS` of all sessions with a word of their own, without counting their rows."""

_BEGUN = f"""
SELECT b.source, b.session, b.stream, b.substream, b.time IS NOT NULL AS timed, b.depth,
  coalesce(b.time, b.start) AS spot, b.start,
  least(greatest(coalesce(e."end", b.start)::HUGEINT - b.start, 0), 9223372036854775807)::BIGINT AS longest,
  CASE WHEN b.name IS NOT NULL THEN {BY_NAME.format("b.name")}
    ELSE concat('?', b.id, ' ', part.asked_name(b.attributes)) END AS label,
  b."offset", e.id IS NULL AS open
FROM part.kept_open AS b
LEFT JOIN part.kept_ends AS e ON e.id = b.id AND e.session = b.session AND e.source = b.source
WHERE b.start IS NOT NULL
"""  # noqa: S608 - our own words
"""Spans that have the row of a begin and no row of a whole span: open, or ended when the begin was forgotten."""

_BEGUN_TABLE = """
CREATE OR REPLACE TEMP TABLE begun (
  source VARCHAR, session VARCHAR, stream VARCHAR, substream BIGINT, timed BOOLEAN, depth BIGINT, spot BIGINT,
  start BIGINT, longest BIGINT, label VARCHAR, "offset" BIGINT, open BOOLEAN
)
"""

_NAMES = """
SELECT a.source, a.session, a.label, coalesce(
  part.first_name_of(k.names, a.source, a.session, nullif(split_part(a.label, ' ', 2), '')), n.late_name)
FROM (SELECT unnest(?::STRUCT(source VARCHAR, session VARCHAR, label VARCHAR)[], recursive := true)) AS a
LEFT JOIN part.learnt AS k ON true
LEFT JOIN part.late_names AS n
  ON n.source = a.source AND n.session = a.session AND n.id = try_cast(split_part(substr(a.label, 2), ' ', 1) AS BIGINT)
"""
"""The names of labels that ask for one."""

Label = tuple[str, str, str]
"""Source, session, and the label of an event: see `events`."""


class LaneKey(NamedTuple):
    """The name of a lane. The stream is empty for what belongs to no known stream."""

    source: str
    session: str
    stream: str
    substream: int | None = None


class TimelineLane(NamedTuple):
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
    """The words for the times: `wall time`, or which clock they are of."""


class PlacedGap(NamedTuple):
    """A gap, and between which times it lies; None where nothing tells."""

    gap: Gap
    begin: int | None
    end: int | None
    placed: str


class Snapshot:
    """One version of the table. The engine belongs to the caller, and must not move to another version."""

    def __init__(self, engine: Engine, held: Held | None = None) -> None:
        """Without `held`, everything is computed from rows."""
        self.engine = engine
        self.version = engine.version
        self.held = Held(None) if held is None else held
        self.database = self.held.database.cursor()
        self.rows = RowSource(engine.table, self.database)
        self.files = self.held.follow(self.rows.paths)
        self._names: dict[Label, str | None] = {}
        self._begun = list(engine.rows(_BEGUN))
        self._note_begun()

    def beside(self, engine: Engine) -> Self:
        """Return the same with another engine on the same version, for another thread, with all that is known."""
        other = copy.copy(self)
        other.engine = engine
        other.database = self.held.database.cursor()
        other.rows = RowSource(engine.table, other.database)
        other._note_begun()  # noqa: SLF001 - our own class
        return other

    def interrupt(self) -> None:
        """Make what runs in another thread fail."""
        self.database.interrupt()

    @cached_property
    def extents(self) -> dict[LaneKey, LaneExtent]:
        """Return how far the lanes reach, without sessions that others replace."""
        known = [each.extent for file in self.files.values() for each in file.sidecar.header.lanes]
        lacking = [path for path in self.rows.paths if path not in self.files]
        if lacking:
            sql = EXTENTS.format(rows=self.rows.of(lacking, "extent_rows"))
            known += [LaneExtent(*row) for row in self.database.execute(sql).fetchall()]
        hidden = {root for (root,) in self.engine.rows(_HIDDEN)}
        found: dict[LaneKey, LaneExtent] = {}
        for each in known:
            if each.session.split(".", 1)[0] in hidden:
                continue
            key = LaneKey(each.source, each.session, each.stream, each.substream)
            found[key] = found[key].with_other(each) if key in found else each
        return found

    @cached_property
    def sessions(self) -> dict[Key, SessionClock]:
        facts = [Facts(*row) for row in self.engine.rows(_FACTS)]
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
    def lanes(self) -> list[TimelineLane]:
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

    def names(self, labels: set[Label]) -> dict[Label, str | None]:
        """Return the names that labels stand for, as the views show them."""
        asked = [each for each in labels if each[2].startswith("?") and each not in self._names]
        if asked:
            fields = [
                dict(zip(("source", "session", "label"), each, strict=True)) for each in asked
            ]
            for source, session, label, name in self.engine.rows(_NAMES, [fields]):
                self._names[source, session, label] = name
        return {
            each: each[2][1:] if each[2].startswith("=") else self._names.get(each)
            for each in labels
        }

    def _note_begun(self) -> None:
        rows = self._begun
        self.database.execute(_BEGUN_TABLE)
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self.database.executemany(f"INSERT INTO begun VALUES ({marks})", rows)  # noqa: S608 - question marks

    def _lane(self, key: LaneKey, opened: int, gaps: list[Gap]) -> TimelineLane:
        session = self.session(key)
        extent = self.extents.get(key)
        first, last = (None, None) if extent is None else extent.times(session)
        format_ = session.format or (gaps[0].format if gaps else "")
        return TimelineLane(
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
