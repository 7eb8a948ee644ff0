"""Compute a frame, the drawing of one window of time in buckets (slices of time; see `scale`).

Each span that is at least as long as a bucket, each open span and each gap has a drawn row of its own. All shorter
spans of a lane (a stream or substream) in a bucket share one row, and so do all instants. If a row counts one event, it
describes the event exactly. Counters have the least, greatest and latest value in each bucket.

A data file may have a sidecar, a file with sums that were computed before for buckets of several widths. For each data
file and lane, the frame uses the sums with the widest buckets that are not wider than the frame's own. If there are no
such sums, the rows of the file are read, from so early that all short spans that overlap the window are among them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import duckdb
import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from tailrace.errors import DELETED, BrokenOffError, QueryError
from tailrace.query.engine import is_interrupt
from tailrace.rollups.data_files import (
    ROUNDED,
    CachedFile,
    FileLanes,
    Reach,
    SidecarReader,
    bounds,
    levels,
    reach,
)
from tailrace.rollups.drawing import (
    Drawn,
    Summed,
    counters,
    instants,
    rows_of,
    spans,
    summed,
    with_equal_texts,
)
from tailrace.rollups.events import COUNTER
from tailrace.rollups.gaps import SeenGap
from tailrace.rollups.pieces import NONE, Floats, FrameTexts, Longs, Pieces, Truths, joined
from tailrace.rollups.rows import WHOLE, Ranges, RowQuery, RowReader, RowSample, Since
from tailrace.rollups.scale import SPARE, WIDEST, Range, Scales, log_at_most, scale
from tailrace.rollups.snapshot import AskedLabel, LaneKey, TimelineSnapshot
from tailrace.store.refusal import line

MOST_ROWS = 50_000
"""Maximum number of rows of each kind (spans, instants, counter values) in one frame. If there are more, its buckets
are wider than a pixel."""

ENOUGH = 300_000
"""Maximum number of rows and precomputed sums in memory. If there are more, those in the same bucket (slice of time)
are combined into one."""

RAW = 1.5
"""Estimated time to process a row of a data file, relative to the time to process a precomputed sum."""

logger = logging.getLogger(__name__)

UNNAMED = "(span without a name)"


class SpanColumns(msgspec.Struct, frozen=True):
    """The drawn spans, as columns. The spans of a lane that are shorter than a bucket (a slice of time) share one entry
    for each bucket.

    - `lane`: an index into `Frame.lanes`.
    - `name`: an index into `Frame.names`; a bucket has the name of its longest span.
    - `begin`, `end`: nanoseconds from the begin of the window; `end` is null for an open span.
    - `busy`: the sum of the durations (ns).
    - `offset`: null for several spans. With the source and the session of the lane, it identifies the row in the table.
    """

    lane: list[int]
    depth: list[int]
    begin: list[int]
    end: list[int | None]
    name: list[int]
    count: list[int]
    busy: list[int]
    offset: list[int | None]
    open: list[bool]


class InstantColumns(msgspec.Struct, frozen=True):
    """The drawn events without a duration, as columns. Several events of a lane in one bucket (a slice of time) are
    one entry, with null for `kind`, `name` and `offset`. `time` is nanoseconds from the begin of the window."""

    lane: list[int]
    time: list[int]
    count: list[int]
    kind: list[str | None]
    name: list[int | None]
    offset: list[int | None]


class CounterColumns(msgspec.Struct, frozen=True):
    """The least, greatest and latest value of each counter in each bucket (a slice of time), as columns. `time` is
    nanoseconds from the begin of the window. If a counter event has several values, each value is a counter with its
    own `name`, and all of them have the same `label`."""

    lane: list[int]
    label: list[int]
    name: list[int]
    time: list[int]
    count: list[int]
    least: list[float]
    most: list[float]
    latest: list[float]


class Frame(msgspec.Struct, frozen=True):
    """All that a timeline draws in a window of time.

    `bucket` is the width (ns) of the buckets. `coarse` states that the buckets are wider than a pixel, because there
    are too many rows. `one_in` is 1 if all events were read. If it is a greater number n, files without sums were
    sampled (at least one event in n was read), so that counts are estimates. `gaps` contains the gaps of the drawn
    streams, and the gaps of their sessions whose stream is unknown."""

    version: int
    window: Range
    bucket: int
    coarse: bool
    one_in: int
    lanes: list[LaneKey]
    names: list[str]
    spans: SpanColumns
    instants: InstantColumns
    counters: CounterColumns
    gaps: list[SeenGap]


def frame(
    snapshot: TimelineSnapshot, window: Range, pixels: int, lanes: Sequence[LaneKey] | None = None
) -> Frame:
    """Return all that a timeline draws in a window that is `pixels` wide. If `lanes` is None, draw all lanes.

    Raise QueryError or StoreError if the table cannot be read, BrokenOffError if files of the table were deleted
    during the read, and ValueError for an empty window."""
    if window.end <= window.begin or pixels < 1:
        raise ValueError(f"an empty window: {window}, {pixels} pixels")
    keys = [lane.key for lane in snapshot.lanes] if lanes is None else list(lanes)
    finest = log_at_most(Fraction(window.end - window.begin, pixels))
    found = Painter(snapshot, keys).draw(window, finest)
    snapshot.same()
    texts = FrameNames(snapshot, found.texts, keys)
    # the drawn streams and, in each of their sessions, the unknown stream ""
    streams = {key[:3] for key in keys} | {(*key[:2], "") for key in keys}
    return Frame(
        snapshot.version,
        window,
        1 << found.log,
        found.log > finest,
        found.one_in,
        keys,
        texts.names,
        _spans(found, texts, snapshot.depths(keys), window.begin),
        _instants(found, texts, window.begin),
        _counters(found.counters, texts, window.begin),
        list(snapshot.losses.within(window, found.log, streams)),
    )


def look_over(snapshot: TimelineSnapshot) -> None:
    """Read the overview, a sample of the rows of all files without sums, from which the first frames are drawn.

    Raise OSError, or the errors of Arrow and DuckDB, if a file cannot be read."""
    plain = {path: lanes for path, lanes in snapshot.file_lanes.items() if path not in snapshot.files}  # fmt: skip
    rows = sum(lanes.all_events for lanes in plain.values())
    keys = [lane.key for lane in snapshot.lanes]
    with snapshot.cache.lock:
        reader = RowReader(snapshot.rows, keys, FrameTexts(), snapshot.cache.blocks)
        reader.look_over(plain, rows)


class Drawing(NamedTuple):
    """The drawn rows of a window, before their names are looked up, in buckets of 2 ** `log` ns."""

    log: int
    one_in: int
    texts: FrameTexts
    spans: Drawn
    instants: Drawn
    counters: Drawn


class Painter:
    """Draws windows of time of some lanes (`keys`) of a snapshot."""

    def __init__(self, snapshot: TimelineSnapshot, keys: Sequence[LaneKey]) -> None:
        self.snapshot = snapshot
        self.keys = keys

    @cached_property
    def numbers(self) -> NDArray[np.int32]:
        """For each lane id of the cache, the lane's index in `keys`, or `NONE` if the lane is not drawn."""
        cache = self.snapshot.cache
        found = np.full(cache.lanes + len(self.keys), NONE, np.int32)
        for number, key in enumerate(self.keys):
            found[cache.id_of(key)] = number
        return found

    def draw(self, window: Range, finest: int) -> Drawing:
        """Draw a window in buckets of at least 2 ** `finest` ns. If a sidecar (a file of precomputed sums) turns out to
        be damaged or gone, draw again without it."""
        while True:
            try:
                return self._draw(window, finest)
            except (duckdb.Error, OSError, pa.ArrowException) as error:
                if is_interrupt(error):
                    raise QueryError("the statement was interrupted") from error
                if self.snapshot.cache.drop_damaged():
                    continue
                if self.snapshot.engine.table.missing_files():
                    raise BrokenOffError(DELETED) from error
                logger.warning("a frame failed: %s", line(error))
                text = "the rows of this range could not be read; the log has the details"
                raise QueryError(text) from error

    def is_sampled(self, window: Range, log: int) -> bool:
        """Return whether a drawing in buckets of 2 ** `log` ns would show only a sample of the rows. No rows are read
        for this."""
        with self.snapshot.cache.lock:
            return WindowParts(self, self._scales(window, log)).sample.before > 1

    def reached(self, scales: Scales) -> Iterator[tuple[str, FileLanes, Reach]]:
        """Yield each data file with drawn lanes that may overlap the window: the file's path, all its lanes, and those
        of its lanes that are drawn and may overlap the window."""
        # The lanes of the files get their ids here, before `numbers` is computed.
        for path, lanes in self.snapshot.file_lanes.items():
            found = reach(lanes, self.numbers, scales)
            if len(found.lanes):
                yield path, lanes, found

    def _draw(self, window: Range, finest: int) -> Drawing:
        """Draw a window in buckets so wide that there are at most `MOST_ROWS` rows of each kind.

        Wider buckets are computed from the rows in memory. Only if the width doubles more than `SPARE` times, the files
        are read again."""
        log = finest
        while log < WIDEST and self._expected(self._scales(window, log)) > 1.5 * MOST_ROWS:
            log += 1
        while True:
            scales, texts = self._scales(window, log), FrameTexts()
            pieces, one_in = self._read(scales, texts)
            widest = min(log + SPARE, WIDEST)
            while pieces.rows > MOST_ROWS and log < widest:
                log += 1
                scales = self._scales(window, log)
                pieces = summed(joined(pieces), scales)
            if pieces.rows <= MOST_ROWS or log == WIDEST:
                kinds = spans(pieces, scales), instants(pieces, scales), counters(pieces, scales)
                return Drawing(log, one_in, texts, *kinds)
            log += 1

    def _scales(self, window: Range, log: int) -> Scales:
        sessions = [self.snapshot.session(key) for key in self.keys]
        found = {each: scale(each, window, log) for each in set(sessions)}
        return Scales([found[each] for each in sessions], log)

    def _expected(self, scales: Scales) -> float:
        """Return an estimate of the number of drawn spans. For a file without a sidecar (precomputed sums), count at
        most one drawn row for each bucket and lane. The width of the buckets does not change how many rows are read
        from the file."""
        found = 0.0
        for path, lanes, reached in self.reached(scales):
            file = self.snapshot.files.get(path)
            events = _shares(lanes, reached, reached.opens) * lanes.events[reached.lanes]
            if file is None:
                width = np.where(reached.timed, scales.log, scales.short[reached.number])
                inside = np.maximum(_inside(lanes, reached, reached.opens), 0)
                found += float(np.minimum(events, inside / 2.0**width + 1).sum())
                continue
            place = int(np.searchsorted(file.levels, scales.log, "right")) - 1
            if place < 0:
                found += float(events.sum()) * RAW
            else:
                sums = file.sizes[place] / 2.0 ** (scales.log - file.levels[place])
                longs = file.longs.rows[file.longs.outer[1] >= 1 << scales.log].sum()
                found += float(events.sum()) / lanes.all_events * float(sums + longs)
        return found

    def _read(self, scales: Scales, texts: FrameTexts) -> tuple[Summed, int]:
        """Read the rows and precomputed sums of a window. Return them summed by bucket, and a number n: where there are
        no precomputed sums, at least one row in n was read. Raise OSError, or the errors of Arrow and DuckDB, if a file
        cannot be read."""
        waiting: list[Pieces] = []
        with self.snapshot.cache.lock:
            parts = WindowParts(self, scales)
            for part in parts.read(texts):
                waiting.append(part)
                if sum(each.rows for each in waiting) > ENOUGH:
                    waiting = [joined(summed(joined(waiting), scales))]
        found = summed(with_equal_texts(joined(waiting), texts), scales)
        return found, parts.sample.before


class FrameNames:
    """All names in a frame, each once. A drawn row refers to its name by the index in `names`."""

    def __init__(
        self, snapshot: TimelineSnapshot, texts: FrameTexts, lanes: Sequence[LaneKey]
    ) -> None:
        self.names: list[str] = []
        self._snapshot = snapshot
        self._texts = texts
        self._lanes = lanes
        self._codes: dict[str, int] = {}

    def of(self, pieces: Pieces) -> Longs:
        """Return the index in `names` of the name of each drawn row."""
        counters = pieces.member if pieces.rows and pieces.what[0] == COUNTER else None
        labels, label = self._texts.unified(pieces.label)
        members, member = ([None], np.zeros_like(label)) if counters is None else self._texts.unified(counters)  # fmt: skip
        asked = np.array([(text or "").startswith("?") for text in labels], np.bool_)
        # A label that begins with a question mark contains an id, whose name must be looked up. The same id can have
        # different names in different sessions.
        number = np.where(asked[label], pieces.number, NONE) if len(label) else label
        packed = ((number + 1) * len(labels) + label) * len(members) + member
        different, places = np.unique(packed, return_inverse=True)
        found = []
        for code in different.tolist():
            rest, of_member = divmod(code, len(members))
            of_number, of_label = divmod(rest, len(labels))
            found.append((of_number - 1, labels[of_label] or "", members[of_member]))
        known = self._snapshot.names({self._label(number, text) for number, text, _ in found})
        codes = [self._code(known[self._label(number, text)], of) for number, text, of in found]
        found_codes: Longs = np.array(codes, np.int64)[places.reshape(-1)]
        return found_codes

    def _label(self, number: int, text: str) -> AskedLabel:
        source, session = self._lanes[number][:2] if number >= 0 else ("", "")
        return source, session, text

    def _code(self, name: str | None, member: str | None) -> int:
        shown = UNNAMED if name is None else name
        if member is not None:
            shown = f"{shown}.{member}"
        if shown not in self._codes:
            self._codes[shown] = len(self.names)
            self.names.append(shown)
        return self._codes[shown]


def _spans(found: Drawing, texts: FrameNames, deepest: Sequence[int], zero: int) -> SpanColumns:
    drawn = found.spans
    pieces = drawn.pieces
    several = pieces.events > 1
    return SpanColumns(
        pieces.number.tolist(),
        rows_of(drawn, deepest).tolist(),
        _from(zero, drawn.begin),
        [
            None if is_open else end - zero
            for end, is_open in zip(drawn.end.tolist(), pieces.open.tolist(), strict=True)
        ],
        texts.of(pieces).tolist(),
        pieces.events.tolist(),
        drawn.busy.tolist(),
        _masked(pieces.offset, several),
        pieces.open.tolist(),
    )


def _instants(found: Drawing, texts: FrameNames, zero: int) -> InstantColumns:
    drawn = found.instants
    pieces = drawn.pieces
    several = pieces.events > 1
    names = np.zeros(pieces.rows, np.int64)
    names[~several] = texts.of(pieces.take(~several))
    kinds, kind = found.texts.unified(np.where(several, NONE, pieces.kind))
    return InstantColumns(
        pieces.number.tolist(),
        _from(zero, drawn.begin),
        pieces.events.tolist(),
        [kinds[code] for code in kind.tolist()],
        _masked(names, several),
        _masked(pieces.offset, several),
    )


def _counters(drawn: Drawn, texts: FrameNames, zero: int) -> CounterColumns:
    pieces = drawn.pieces
    _, label = np.unique(pieces.label, return_inverse=True)
    return CounterColumns(
        pieces.number.tolist(),
        label.tolist(),
        texts.of(pieces).tolist(),
        _from(zero, drawn.begin),
        pieces.events.tolist(),
        pieces.least.tolist(),
        pieces.most.tolist(),
        pieces.latest.tolist(),
    )


def _from(zero: int, times: Longs) -> list[int]:
    """Return the times as nanoseconds after `zero`, as Python integers, because a difference may exceed 64 bits."""
    return [time - zero for time in times.tolist()]


def _masked(values: Longs, missing: Truths) -> list[int | None]:
    """Return the values as a list, with None where `missing` is true."""
    found: list[int | None] = values.tolist()
    for place in np.flatnonzero(missing).tolist():
        found[place] = None
    return found


class FileRows(NamedTuple):
    """The rows of one data file that are read to draw a window. For each lane that the window touches (`reached`),
    `since` has the time or tick from which rows are read, up to the end of the window."""

    path: str
    lanes: FileLanes
    reached: Reach
    since: Longs

    @classmethod
    def of(cls, path: str, lanes: FileLanes, reached: Reach, bounds: Longs) -> FileRows:
        """Return rows that include every span that overlaps the window. A span of the n-th lane in `reached` lasts at
        most `bounds[n]` ticks."""
        length = np.where(reached.timed, bounds * (1e9 / reached.rate) * ROUNDED + 2, bounds.astype(float))  # fmt: skip
        # The rounding error of `opens - length` is less than 4096 ns or ticks.
        since = np.maximum(reached.opens.astype(float) - length - 4096, -9.2e18).astype(np.int64)
        return cls(path, lanes, reached, since)

    @property
    def ranges(self) -> Iterator[Since]:
        columns = self.reached.number, self.reached.timed, self.since, self.reached.closes
        for each in zip(*(column.tolist() for column in columns), strict=True):
            yield Since(*each)

    def rows(self, since: Longs) -> float:
        """Return the estimated number of rows from the time or tick `since` of each lane to the end of the window."""
        events = self.lanes.events[self.reached.lanes]
        return float((_shares(self.lanes, self.reached, since) * events).sum())


class WindowParts:
    """The files from which one window is drawn: files whose precomputed sums are read, files whose precomputed sums all
    have too wide buckets for the drawing, and files without precomputed sums."""

    def __init__(self, painter: Painter, scales: Scales) -> None:
        self._painter = painter
        snapshot = painter.snapshot
        self._sums: list[tuple[CachedFile, Reach, Longs]] = []
        self._raw: list[tuple[CachedFile, Reach]] = []
        self._plain: list[FileRows] = []
        for path, lanes, reached in painter.reached(scales):
            file = snapshot.files.get(path)
            if file is None or snapshot.cache.files.get(path) is not file:
                longest = lanes.longest[reached.lanes]
                self._plain.append(FileRows.of(path, lanes, reached, longest))
            elif (level := levels(file, reached)) is None:
                self._raw.append((file, reached))
            else:
                self._sums.append((file, reached, level))
        timed = all(file.reached.timed.all() for file in self._plain)
        opens = [int(file.reached.opens.min()) for file in self._plain]
        self.sample = RowSample.of(
            sum(file.rows(file.reached.opens) for file in self._plain),
            sum(file.rows(file.since) for file in self._plain),
            min(opens) if timed and opens else None,
        )

    def read(self, texts: FrameTexts) -> Iterator[Pieces]:
        """Yield all rows and sums of the window. A row of a sample is counted several times, in place of the rows that
        the sample leaves out."""
        painter, snapshot, cache = (
            self._painter,
            self._painter.snapshot,
            self._painter.snapshot.cache,
        )
        yield snapshot.begun.pieces(painter.numbers, texts)
        for file, reached, level in self._sums:
            reader = SidecarReader(cache, file, painter.numbers, texts)
            yield from reader.sums(reached, level)
            yield from reader.longs(reached, bounds(reached, level), reached.closes)
        rows = RowReader(snapshot.rows, painter.keys, texts, cache.blocks)
        short = [FileRows.of(file.sidecar.header.path, file.lanes, reached, _lowest(file, reached)) for file, reached in self._raw]  # fmt: skip
        near = least_since(short)
        for file, reached in self._raw:
            before = np.array([near[of].since for of in zip(reached.number.tolist(), reached.timed.tolist(), strict=True)])  # fmt: skip
            longs = SidecarReader(cache, file, painter.numbers, texts).longs
            yield from longs(reached, _lowest(file, reached), np.minimum(before, reached.closes))
        for files, ranges, sample in (
            (short, near, WHOLE),
            (self._plain, least_since(self._plain), self.sample),
        ):
            asked: Ranges = {
                (painter.keys[each.number], each.timed): each for each in ranges.values()
            }
            about = sum(each.rows(each.since) for each in files)
            stored = sum(int(each.lanes.events[each.reached.lanes].sum()) for each in files)
            paths = [each.path for each in files]
            yield from rows.read(RowQuery(paths, asked, sample, about, about / max(stored, 1)))


def _shares(lanes: FileLanes, reached: Reach, since: Longs) -> Floats:
    """Return the estimated fraction of the rows of each lane in `reached` between `since` and the end of the window,
    as if rows were evenly distributed over time."""
    length = lanes.high[reached.lanes] - lanes.low[reached.lanes].astype(float)
    found: Floats = np.clip(_inside(lanes, reached, since) / np.maximum(length, 1), 0, 1)
    return found


def _inside(lanes: FileLanes, reached: Reach, since: Longs) -> Floats:
    """Return for each lane in `reached` the length (ns or ticks) of the part of the window after `since` in which the
    lane has rows. The result is 0 or negative if there is no such part."""
    low, high = lanes.low[reached.lanes], lanes.high[reached.lanes]
    found: Floats = np.minimum(high, reached.closes) - np.maximum(low, since).astype(float)
    return found


def least_since(files: Iterable[FileRows]) -> dict[tuple[int, bool], Since]:
    """Return for each lane one range of rows to read from all files: the longest of the files' own ranges. All of them
    end with the window, so the longest one begins first."""
    found: dict[tuple[int, bool], Since] = {}
    for each in chain.from_iterable(file.ranges for file in files):
        known = found.get(each[:2])
        found[each[:2]] = each if known is None or each.since < known.since else known
    return found


def _lowest(file: CachedFile, reached: Reach) -> Longs:
    return bounds(reached, np.full(len(reached.lanes), file.levels[0]))
