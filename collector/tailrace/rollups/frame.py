"""The answer to a window of a timeline: what is drawn there, as columns.

Spans at least as long as a bucket are there one by one; so are open spans, and each gap. Shorter spans and
instants are one row for each bucket that holds any (`scale`): their number and, if it is 1, exactly the one.
Counters have the least, greatest and latest value of each bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb
import msgspec

from tailrace.errors import BrokenOffError, QueryError
from tailrace.export.clocks import LATEST
from tailrace.rollups.drawing import COUNTERS, INSTANTS, LANES, SPANS, lane_row
from tailrace.rollups.pieces import gather
from tailrace.rollups.scale import WIDEST, Range, log_at_most, scale
from tailrace.rollups.snapshot import Label, LaneKey, PlacedGap, Snapshot
from tailrace.rollups.stacking import LaneStack

MOST_ROWS = 100_000
"""The most rows of each kind in a frame. A window with more gets wider buckets than a pixel."""

UNNAMED = "(span without a name)"


class FrameSpans(msgspec.Struct, frozen=True):
    """Spans as columns. `lane` is a place in the frame's lanes, `name` one in its names (of several spans,
    that of the longest), `busy` the sum of their durations in ns. `end` is None of an open span, `offset` of
    several spans; with the lane's source and session it is the place of the row."""

    lane: list[int]
    depth: list[int]
    begin: list[int]
    end: list[int | None]
    name: list[int]
    count: list[int]
    busy: list[int]
    offset: list[int | None]
    open: list[bool]


class FrameInstants(msgspec.Struct, frozen=True):
    """Instants, annotations, ends without a begin, and counters without a number, as columns. `kind`, `name`
    and `offset` are None of several."""

    lane: list[int]
    time: list[int]
    count: list[int]
    kind: list[str | None]
    name: list[int | None]
    offset: list[int | None]


class FrameCounters(msgspec.Struct, frozen=True):
    """Values of counters, as columns."""

    lane: list[int]
    name: list[int]
    time: list[int]
    count: list[int]
    least: list[float]
    most: list[float]
    latest: list[float]


class Frame(msgspec.Struct, frozen=True):
    """The answer to a window. `bucket` is the width of its buckets in ns, `coarse` whether it is wider than a
    pixel, for want of room. `gaps` lie in the window, of the streams of its lanes and of no known stream."""

    version: int
    window: Range
    bucket: int
    coarse: bool
    lanes: list[LaneKey]
    names: list[str]
    spans: FrameSpans
    instants: FrameInstants
    counters: FrameCounters
    gaps: list[PlacedGap]


def frame(
    snapshot: Snapshot, window: Range, pixels: int, lanes: Sequence[LaneKey] | None = None
) -> Frame:
    """Return what lanes, or all of them, have in a window that is drawn `pixels` wide.

    Raise QueryError or StoreError when the table cannot be read, BrokenOffError if its files were deleted
    meanwhile, and ValueError for an empty window."""
    if window.end <= window.begin or pixels < 1:
        raise ValueError(f"an empty window: {window}, {pixels} pixels")
    keys = [lane.key for lane in snapshot.lanes] if lanes is None else list(lanes)
    finest = log_at_most(Fraction(window.end - window.begin, pixels))
    log, found = finest, _drawn(snapshot, window, finest, keys)
    while found.rows > MOST_ROWS and log < WIDEST:
        log += 2
        found = _drawn(snapshot, window, log, keys)
    if snapshot.engine.version != snapshot.version:
        raise BrokenOffError("the table's files were deleted while they were read; ask again")
    return Frame(
        snapshot.version,
        window,
        1 << log,
        log > finest,
        keys,
        list(found.names),
        found.spans,
        found.instants,
        found.counters,
        _gaps_in(snapshot, window, keys),
    )


def _drawn(snapshot: Snapshot, window: Range, log: int, lanes: Sequence[LaneKey]) -> _Drawing:
    """Return a frame's rows; without the sidecars that turn out to be damaged or gone."""
    while True:
        try:
            return _Drawing(snapshot, window, log, lanes)
        except duckdb.InterruptException as error:
            raise QueryError(str(error)) from error
        except (duckdb.Error, OSError) as error:
            if not snapshot.held.drop_damaged():
                raise _refusal(snapshot, error) from error


def _refusal(snapshot: Snapshot, error: Exception) -> QueryError | BrokenOffError:
    if snapshot.engine.table.missing_files():
        return BrokenOffError("the table's files were deleted while they were read; ask again")
    return QueryError(str(error))


class _Drawing:
    """The rows of a frame with buckets of one width."""

    def __init__(
        self, snapshot: Snapshot, window: Range, log: int, lanes: Sequence[LaneKey]
    ) -> None:
        self.names: dict[str, int] = {}
        self._lanes = lanes
        database = snapshot.database
        scales = {key[:2]: scale(snapshot.session(key), window, log) for key in lanes}
        given = [lane_row(i, key, scales[key[:2]]) for i, key in enumerate(lanes)]
        database.execute(LANES, [given])
        gather(database, snapshot.held, snapshot.files, snapshot.rows)
        spans = database.execute(SPANS).fetchall()
        instants = database.execute(INSTANTS).fetchall()
        counters = database.execute(COUNTERS).fetchall()
        labels = {self._label(row[0], row[4]) for row in (*spans, *instants) if row[4] is not None}
        self._known = snapshot.names(labels | {self._label(row[0], row[1]) for row in counters})
        depths = {lane.key: lane.depths for lane in snapshot.lanes}
        self.spans = self._spans(spans, [depths.get(key, 0) for key in lanes])
        self.instants = self._instants(instants)
        self.counters = self._counters(counters)
        self.rows = max(len(spans), len(instants), len(counters))

    def _label(self, lane: int, label: str) -> Label:
        source, session, *_ = self._lanes[lane]
        return source, session, label

    def _code(self, lane: int, label: str, member: str | None = None) -> int:
        name = self._known[self._label(lane, label)]
        shown = UNNAMED if name is None else name
        if member is not None:
            shown = f"{shown}.{member}"
        return self.names.setdefault(shown, len(self.names))

    def _spans(self, rows: list[tuple[Any, ...]], depths: list[int]) -> FrameSpans:
        lane, _, begin, end, labels, count, busy, offset, is_open, _ = _columns(rows, 10)
        row = [
            place
            for number, each in groupby(rows, itemgetter(0))
            for place in _places(each, depths[number])
        ]
        names = [self._code(*each) for each in zip(lane, labels, strict=True)]
        return FrameSpans(lane, row, begin, end, names, count, busy, offset, is_open)

    def _instants(self, rows: list[tuple[Any, ...]]) -> FrameInstants:
        lane, time, count, kind, labels, offset = _columns(rows, 6)
        pairs = zip(lane, labels, strict=True)
        names = [None if label is None else self._code(number, label) for number, label in pairs]
        return FrameInstants(lane, time, count, kind, names, offset)

    def _counters(self, rows: list[tuple[Any, ...]]) -> FrameCounters:
        lane, labels, members, *rest = _columns(rows, 8)
        names = [self._code(*each) for each in zip(lane, labels, members, strict=True)]
        return FrameCounters(lane, names, *rest)


def _places(rows: Iterable[tuple[Any, ...]], first: int) -> Iterator[int]:
    """Yield the depths of a lane's spans: those that are stored and, from `first` on, those of other spans."""
    stack = LaneStack(first)
    for _, depth, begin, end, *_, is_short in rows:
        if depth is not None:
            yield depth
        elif is_short:
            yield stack.below(begin)
        else:
            yield stack.take(begin, LATEST if end is None else end)


def _columns(rows: list[tuple[Any, ...]], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]


def _gaps_in(snapshot: Snapshot, window: Range, lanes: Sequence[LaneKey]) -> list[PlacedGap]:
    streams = {key[:3] for key in lanes} | {(*key[:2], "") for key in lanes}
    return [
        gap
        for gap in snapshot.gaps
        if gap.gap.place in streams
        and (gap.begin is None or gap.begin < window.end)
        and (gap.end is None or gap.end >= window.begin)
    ]
