"""Compute the sessions, lanes and gaps of one snapshot of the table, for a timeline.

A lane is a stream of a session, or one of its substreams. Times are on the axis of the module `timeline`, in
nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from tailrace.errors import DELETED, BrokenOffError, UnknownError
from tailrace.query.engine import Engine
from tailrace.rollups.data_files import FileCache, FileLanes
from tailrace.rollups.events import BY_NAME, EXTENTS, LaneExtent, of_sessions
from tailrace.rollups.gaps import GapTable, PlacedGap
from tailrace.rollups.pieces import NONE, FrameTexts, Pieces
from tailrace.rollups.rows import RowSource
from tailrace.timeline import GAPS_OF, Facts, Gap, SessionClock, SessionKey, axis, placed

BEGUN = f"""
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


class BegunSpans:
    """The spans of which a snapshot has only a begin row, as columns. Such a span is still open, or it ended after
    the collector had forgotten its begin. `rows` is the result of the SQL `BEGUN`."""

    def __init__(self, cache: FileCache, rows: Sequence[tuple[Any, ...]]) -> None:
        self._lanes = np.array([cache.id_of(row[:4]) for row in rows], np.int64)
        columns = list(zip(*(row[4:] for row in rows), strict=True)) or [()] * 8
        timed, depth, spot, start, longest, label, offset, is_open = columns
        self._labels = pa.array(label, pa.string())
        self._pieces = Pieces.of(
            len(rows),
            timed=np.array(timed, np.bool_),
            depth=np.array([NONE if each is None else each for each in depth], np.int32),
            edge=np.array(spot, np.int64),
            spot=np.array(spot, np.int64),
            start=np.array(start, np.int64),
            busy=np.array(longest, np.int64),
            longest=np.array(longest, np.int64),
            offset=np.array(offset, np.int64),
            open=np.array(is_open, np.bool_),
        )

    def pieces(self, numbers: NDArray[np.int32], texts: FrameTexts) -> Pieces:
        """Return those of these spans whose lanes are drawn. `numbers` has, by the id of a lane, its index in the
        drawing, or `NONE` if the lane is not drawn."""
        number = numbers[self._lanes]
        rows = np.flatnonzero(number != NONE)
        label = texts.numbered(rows.astype(np.int32), self._labels)
        return self._pieces.take(rows)._replace(number=number[rows], label=label)


_OPEN = "SELECT source, session, stream, substream, count(*) FROM part.open_begins GROUP BY ALL"

_HIDDEN = """
SELECT DISTINCT split_part(session, '.', 1) FROM stored WHERE kind = 'session'
EXCEPT SELECT DISTINCT split_part(session, '.', 1) FROM part.shown WHERE kind = 'session'
"""
"""SQL for the ids of the sessions that no view shows (`inner_views.HIDE`), without the suffix after a dot."""

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
"""SQL for the columns of `timeline.FACTS` of each session with a session row. Unlike the view `sessions`, it does
not count rows."""

_NAMES = """
SELECT a.source, a.session, a.label, coalesce(
  part.first_name_of(k.names, a.source, a.session, nullif(split_part(a.label, ' ', 2), '')), n.late_name)
FROM (SELECT unnest(?::STRUCT(source VARCHAR, session VARCHAR, label VARCHAR)[], recursive := true)) AS a
LEFT JOIN part.learnt AS k ON true
LEFT JOIN part.late_names AS n
  ON n.source = a.source AND n.session = a.session AND n.id = try_cast(split_part(substr(a.label, 2), ' ', 1) AS BIGINT)
"""
"""SQL that looks up the names of events whose rows have no name, from their labels (see `events`)."""

FILES_READ = 32
"""Maximum number of data files whose lanes one SQL statement reads. DuckDB reads them in parallel. If a request ends
early, the lanes of earlier statements stay in the cache."""

WALL = "wall"
"""Name of the time axis that all lanes with wall time share."""

AskedLabel = tuple[str, str, str]
"""The source, the session and the label of an event whose name is needed. The module `events` describes labels."""


class LaneKey(NamedTuple):
    """The key of a lane: a stream of a session, or one of its substreams. `stream` is "" for rows whose stream is
    unknown."""

    source: str
    session: str
    stream: str
    substream: int | None = None


class TimelineLane(NamedTuple):
    """A lane of a timeline (a stream or substream).

    `first` and `last` are times (ns) on the time axis `axis`, or None if no row has a time. `missing` is the number
    of events that are known to be missing from the stream, and `unknown` states whether more may be missing. The
    lane of a substream has neither."""

    key: LaneKey
    format: str
    depths: int
    """Number of rows of the drawing for spans with a recorded depth. All other spans are drawn below."""
    events: int
    open: int
    first: int | None
    last: int | None
    missing: int
    unknown: bool
    axis: str
    clock: str
    """Text that describes the clock of the lane's times: `wall time`, or the name of the clock."""


class TimelineSnapshot:
    """The sessions, lanes, gaps and files of one version of the table. The caller owns the engine, which must not
    move to another version."""

    def __init__(self, engine: Engine, cache: FileCache | None = None) -> None:
        """Open the timeline of the engine's version. Without a cache, draw all windows from stored rows."""
        self.engine = engine
        self.version = engine.version
        self.cache = FileCache(None) if cache is None else cache
        self.rows = RowSource(engine.table, self.cache.database.cursor())
        self.take_up()
        self._names: dict[AskedLabel, str | None] = {}
        self.begun = BegunSpans(self.cache, list(engine.rows(BEGUN)))

    def same(self) -> None:
        """Raise BrokenOffError if the engine has moved from the snapshot of this timeline to a newer one."""
        if self.engine.version != self.version:
            raise BrokenOffError(DELETED)

    def interrupt(self) -> None:
        """Interrupt the SQL statement that another thread runs for this snapshot."""
        self.rows.database.interrupt()

    def take_up(self) -> None:
        """Use the sidecars that were written since the snapshot was opened."""
        self.files = self.cache.follow(self.rows.paths)
        self.__dict__.pop("file_lanes", None)

    @cached_property
    def file_lanes(self) -> dict[str, FileLanes]:
        """The lanes of each data file, by path. Those of a file without a sidecar are read from the file once."""
        known = self.cache.plain
        unread = [path for path in self.rows.paths if path not in self.files.keys() | known.keys()]
        for at in range(0, len(unread), FILES_READ):
            some = unread[at : at + FILES_READ]
            extents: list[list[LaneExtent]] = [[] for _ in some]
            sql = EXTENTS.format(rows=self.rows.of(some, "extent_rows"))
            for file, *row in self.rows.database.execute(sql).fetchall():
                extents[file].append(LaneExtent(*row))
            for path, of_file in zip(some, extents, strict=True):
                self.cache.learn(path, of_file)
        return {
            path: self.files[path].lanes if path in self.files else known[path]
            for path in self.rows.paths
        }

    @cached_property
    def extents(self) -> dict[LaneKey, LaneExtent]:
        """First and last times and ticks of each lane. Lanes of sessions that other sessions replace are left out."""
        hidden = {root for (root,) in self.engine.rows(_HIDDEN)}
        found: dict[LaneKey, LaneExtent] = {}
        for lanes in self.file_lanes.values():
            for each in lanes.extents:
                if each.session.split(".", 1)[0] in hidden:
                    continue
                key = LaneKey(*each.key)
                found[key] = found[key].with_other(each) if key in found else each
        return found

    @cached_property
    def sessions(self) -> dict[SessionKey, SessionClock]:
        facts = [Facts(*row) for row in self.engine.rows(_FACTS)]
        return placed(of_sessions(self.extents.values(), facts), facts)

    @cached_property
    def unplaced(self) -> list[Gap]:
        """All gaps by stream."""
        return [Gap(*row) for row in self.engine.rows(GAPS_OF.format(gaps="true"))]

    @cached_property
    def gaps(self) -> list[PlacedGap]:
        """All gaps by stream, each with the times of the events between which it lies."""
        with self.cache.lock:
            return self.cache.places.placed(self.unplaced, self.rows, self.sessions)

    @cached_property
    def losses(self) -> GapTable:
        return GapTable(self.gaps)

    @cached_property
    def lanes(self) -> list[TimelineLane]:
        """All lanes, sorted by source, session and stream."""
        opened = {LaneKey(*row[:4]): row[4] for row in self.engine.rows(_OPEN)}
        missing: dict[LaneKey, list[Gap]] = {
            LaneKey(*place): list(each)
            for place, each in groupby(self.unplaced, key=lambda gap: gap.place)
        }
        keys = sorted(self.extents.keys() | missing.keys() | opened.keys(), key=in_order)
        found = []
        for key, depths in zip(keys, self.depths(keys), strict=True):
            session, extent = self.session(key), self.extents.get(key)
            gaps, unended = missing.get(key, []), opened.get(key, 0)
            first, last = (None, None) if extent is None else extent.times(session)
            lane = TimelineLane(
                key,
                session.format or (gaps[0].format if gaps else ""),
                depths,
                unended + (0 if extent is None else extent.events),
                unended,
                first,
                last,
                sum(gap.remaining or 0 for gap in gaps),
                any(gap.remaining is None for gap in gaps),
                WALL if session.tied else " ".join(axis(session)),
                session.clock_words,
            )
            found.append(lane)
        return found

    def on(self, axis: str) -> set[SessionKey]:
        """Return the sessions on a time axis. Raise UnknownError if there is no such axis, except for `WALL`."""
        found = {lane.key[:2] for lane in self.lanes if lane.axis == axis}
        if not found and axis != WALL:
            raise UnknownError(f"there is no axis {axis[:100]!r}; each lane names its axis")
        return found

    def depths(self, keys: Sequence[LaneKey]) -> list[int]:
        """Return for each lane the number of rows of the drawing for spans with a recorded depth."""
        known = (self.extents.get(key) for key in keys)
        return [0 if each is None or each.deepest is None else each.deepest + 1 for each in known]

    def session(self, key: LaneKey) -> SessionClock:
        """Return the clock of a lane's session. Without rows other than gaps, its tick rate and epoch are unknown."""
        return self.sessions.get(key[:2]) or SessionClock(key.source, "", key.session)

    def names(self, labels: set[AskedLabel]) -> dict[AskedLabel, str | None]:
        """Return the names of the events with the given labels (see `events`), or None where unknown."""
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


def in_order(key: LaneKey) -> tuple[Any, ...]:
    """Return a key for sorting lanes: numbered streams by number, and a stream before its substreams."""
    number = int(key.stream) if key.stream.isdecimal() else -1
    substream = () if key.substream is None else (key.substream,)
    return key.source, key.session, number, key.stream, substream
