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

import msgspec

from tailrace.errors import BrokenOffError
from tailrace.export.clocks import LATEST
from tailrace.rollups.rows import COUNTERS, INSTANTS, LANES, SPANS, lane_row
from tailrace.rollups.scale import Range, log_at_most, scale
from tailrace.rollups.snapshot import LaneKey, PlacedGap, Snapshot
from tailrace.rollups.stacking import Stack

MOST_ROWS = 100_000
"""The most rows of each kind in a frame. A window with more gets wider buckets than a pixel."""

UNNAMED = "(span without a name)"


class Spans(msgspec.Struct, frozen=True):
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


class Instants(msgspec.Struct, frozen=True):
    """Instants, annotations, ends without a begin, and counters without a number, as columns. `kind`, `name`
    and `offset` are None of several."""

    lane: list[int]
    time: list[int]
    count: list[int]
    kind: list[str | None]
    name: list[int | None]
    offset: list[int | None]


class Counters(msgspec.Struct, frozen=True):
    """Values of counters, as columns."""

    lane: list[int]
    name: list[int]
    time: list[int]
    count: list[int]
    least: list[float]
    most: list[float]
    latest: list[float]


class Frame(msgspec.Struct, frozen=True):
    """What a window has. `bucket` is the width of its buckets in ns, `coarse` whether it is wider than a
    pixel, for want of room. `gaps` lie in the window, of the streams of its lanes and of no known stream."""

    version: int
    window: Range
    bucket: int
    coarse: bool
    lanes: list[LaneKey]
    names: list[str]
    spans: Spans
    instants: Instants
    counters: Counters
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
    log = finest
    while True:
        found = _Drawing(snapshot, window, log, keys)
        if found.rows <= MOST_ROWS or log >= 52:
            break
        log += 2
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


class _Drawing:
    """The rows of a frame with buckets of one width."""

    def __init__(
        self, snapshot: Snapshot, window: Range, log: int, lanes: Sequence[LaneKey]
    ) -> None:
        self.names: dict[str, int] = {}
        engine = snapshot.engine
        scales = {key[:2]: scale(snapshot.session(key), window, log) for key in lanes}
        given = [lane_row(i, key, scales[key[:2]]) for i, key in enumerate(lanes)]
        engine.connection.execute(LANES, [given])
        depths = {lane.key: lane.depths for lane in snapshot.lanes}
        self.spans = self._spans(list(engine.rows(SPANS)), [depths.get(key, 0) for key in lanes])
        self.instants = self._instants(list(engine.rows(INSTANTS)))
        self.counters = self._counters(list(engine.rows(COUNTERS)))
        self.rows = max(len(self.spans.lane), len(self.instants.lane), len(self.counters.lane))

    def _name(self, name: str | None) -> int:
        return self.names.setdefault(UNNAMED if name is None else name, len(self.names))

    def _spans(self, rows: list[tuple[Any, ...]], depths: list[int]) -> Spans:
        lane, _, begin, end, name, count, busy, offset, is_open, _ = _columns(rows, 10)
        row = [
            place
            for number, each in groupby(rows, itemgetter(0))
            for place in _places(each, depths[number])
        ]
        return Spans(
            lane, row, begin, end, [self._name(n) for n in name], count, busy, offset, is_open
        )

    def _instants(self, rows: list[tuple[Any, ...]]) -> Instants:
        lane, time, count, kind, name, offset = _columns(rows, 6)
        codes = [None if n is None else self._name(n) for n in name]
        return Instants(lane, time, count, kind, codes, offset)

    def _counters(self, rows: list[tuple[Any, ...]]) -> Counters:
        lane, name, *rest = _columns(rows, 7)
        return Counters(lane, [self._name(n) for n in name], *rest)


def _places(rows: Iterable[tuple[Any, ...]], first: int) -> Iterator[int]:
    """Yield the depths of a lane's spans: those that are stored and, from `first` on, those of other spans."""
    stack = Stack(first)
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
