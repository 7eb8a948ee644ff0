"""Gather what a frame is made of: sums and long spans of sidecars, and rows where there are no sums.

Each file gives, for each of its lanes that may reach into the window, sums of the highest level whose buckets
fit into those of the frame, and the spans that are too long for this level. Where a file's lowest level is too
coarse, or a file has no sidecar, rows are read instead: from so far before the window that no span which began
earlier and is not among the file's long spans can reach into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailrace.rollups.data_files import FileLanes, Held, HeldFile
from tailrace.rollups.drawing import Summed, summed, with_equal_texts
from tailrace.rollups.events import SPAN
from tailrace.rollups.pieces import NONE, Floats, FrameTexts, Longs, Pieces, Truths, joined
from tailrace.rollups.rows import RowReader, Since
from tailrace.rollups.scale import Scales
from tailrace.rollups.sidecar import PagedFile, SidecarPage
from tailrace.rollups.snapshot import LaneKey, Snapshot

ENOUGH = 300_000
"""Rows of pieces that are added up before there are more."""

RAW = 1.5
"""The cost of a row, beside that of a sum."""

FARTHEST = 2**63 - 1
_ROUNDED = 1 + 1e-9
"""Lengths are compared in floating point here, and exactly when they are drawn."""


class Reach(NamedTuple):
    """The lanes of a file that may reach into the window, as columns; `lanes` are their places among the file's.

    `finest` is the highest level that fits. `opens` and `closes` bound the window in times or ticks."""

    lanes: Longs
    number: Longs
    timed: Truths
    scale: Longs
    finest: Longs
    opens: Longs
    closes: Longs
    rate: NDArray[np.float64]


def reach(file: FileLanes, numbers: NDArray[np.int32], scales: Scales) -> Reach:
    """Return which lanes of a file may reach into the window. `numbers` has the number in the frame of each lane that
    is known, `NONE` of those that are not in the frame."""
    number = numbers[file.id]
    timed = file.timed
    (times, times_end), (ticks, ticks_end) = scales.ranges[True], scales.ranges[False]
    opens = np.where(timed, times[number], ticks[number])
    closes = np.where(timed, times_end[number], ticks_end[number])
    rate = scales.rate[number]
    length = np.where(timed, file.longest * (1e9 / rate) * _ROUNDED + 2, file.longest.astype(float))
    there = (number >= 0) & (file.low < closes) & (file.high + length >= opens.astype(float))
    lanes = np.flatnonzero(there)
    short = scales.short[number]
    finest = np.where(timed, np.minimum(short + file.scale, scales.log), short)
    return Reach(
        lanes,
        number[lanes],
        timed[lanes],
        file.scale[lanes],
        finest[lanes],
        opens[lanes],
        closes[lanes],
        rate[lanes],
    )


def levels(file: HeldFile, reached: Reach) -> Longs | None:
    """Return the level of each lane that reaches into the window; None if rows are to be read."""
    places = np.searchsorted(file.levels, reached.finest, side="right") - 1
    return None if (places < 0).any() else file.levels[places]


class FileRows(NamedTuple):
    """The rows that are read of a file: of the lanes that reach into the window, each from `since` on."""

    path: str
    lanes: FileLanes
    reached: Reach
    since: Longs

    @classmethod
    def of(cls, path: str, lanes: FileLanes, reached: Reach, bounds: Longs) -> FileRows:
        """Return what is read where the spans of each lane have at most so many ticks."""
        length = np.where(reached.timed, bounds * (1e9 / reached.rate) * _ROUNDED + 2, bounds.astype(float))  # fmt: skip
        # Floating point is off by less than 4096.
        since = np.maximum(reached.opens.astype(float) - length - 4096, -9.2e18).astype(np.int64)
        return cls(path, lanes, reached, since)

    @property
    def ranges(self) -> Iterator[Since]:
        columns = self.reached.number, self.reached.timed, self.since, self.reached.closes
        for each in zip(*(column.tolist() for column in columns), strict=True):
            yield Since(*each)

    @property
    def about(self) -> float:
        """Return about how many rows these are."""
        events = self.lanes.events[self.reached.lanes]
        return float((_shares(self.lanes, self.reached, self.since) * events).sum())


def bounds(reached: Reach, level: Longs) -> Longs:
    """Return the ticks that spans in the sums of a level do not reach."""
    return np.left_shift(1, np.maximum(level - np.where(reached.timed, reached.scale, 0), 0))


def expected(snapshot: Snapshot, lanes: Sequence[LaneKey], scales: Scales) -> float:
    """Return about how many spans a frame has, as the sizes of sidecars tell."""
    found = 0.0
    numbers = _numbers(snapshot.held, lanes)
    for path, lanes_of in snapshot.file_lanes.items():
        reached = reach(lanes_of, numbers, scales)
        if not len(reached.lanes):
            continue
        file = snapshot.files.get(path)
        share = _shares(lanes_of, reached, reached.opens)
        share *= lanes_of.events[reached.lanes] / lanes_of.all_events
        place = NONE if file is None else int(np.searchsorted(file.levels, scales.log, "right")) - 1
        if file is None or place < 0:
            found += float(share.sum()) * lanes_of.all_events * RAW
        else:
            sums = file.sizes[place] / 2.0 ** (scales.log - file.levels[place])
            longs = file.longs.rows[file.longs.outer[1] >= 1 << scales.log].sum()
            found += float(share.sum()) * float(sums + longs)
    return found


def gathered(
    snapshot: Snapshot, lanes: Sequence[LaneKey], scales: Scales, texts: FrameTexts
) -> Summed:
    """Return what a frame is made of. Raise OSError, and the errors of Arrow and of the database."""
    waiting: list[Pieces] = []
    with snapshot.held.lock:
        for part in _parts(snapshot, lanes, scales, texts):
            waiting.append(part)
            if sum(each.rows for each in waiting) > ENOUGH:
                waiting = [joined(summed(joined(waiting), scales))]
    return summed(with_equal_texts(joined(waiting), texts), scales)


def _parts(
    snapshot: Snapshot, lanes: Sequence[LaneKey], scales: Scales, texts: FrameTexts
) -> Iterator[Pieces]:
    held = snapshot.held
    numbers = _numbers(held, lanes)
    yield snapshot.begun.pieces(numbers, texts)
    raw: list[tuple[HeldFile, Reach]] = []
    plain: list[FileRows] = []
    for path, lanes_of in snapshot.file_lanes.items():
        reached = reach(lanes_of, numbers, scales)
        if not len(reached.lanes):
            continue
        file = snapshot.files.get(path)
        if file is None or held.files.get(path) is not file:
            longest = lanes_of.longest[reached.lanes]
            plain.append(FileRows.of(path, lanes_of, reached, longest))
        elif (level := levels(file, reached)) is None:
            raw.append((file, reached))
        else:
            reader = SidecarReader(held, file, texts)
            yield from reader.sums(reached, level)
            yield from reader.longs(reached, bounds(reached, level), reached.closes)
    rows = RowReader(snapshot.database, snapshot.rows, lanes, texts, held.blocks)
    short = [FileRows.of(file.sidecar.header.path, file.lanes, reached, _lowest(file, reached)) for file, reached in raw]  # fmt: skip
    near = least_since(short)
    for file, reached in raw:
        before = np.array([near[of].since for of in zip(reached.number.tolist(), reached.timed.tolist(), strict=True)])  # fmt: skip
        longs = SidecarReader(held, file, texts).longs
        yield from longs(reached, _lowest(file, reached), np.minimum(before, reached.closes))
    for files, ranges in ((short, near), (plain, least_since(plain))):
        about = sum(each.about for each in files)
        yield from rows.read([each.path for each in files], ranges.values(), about)


def _shares(lanes: FileLanes, reached: Reach, since: Longs) -> Floats:
    """Return about which share of each lane's rows in a file is between some time and the window's end."""
    low, high = lanes.low[reached.lanes], lanes.high[reached.lanes]
    inside = np.minimum(high, reached.closes) - np.maximum(low, since).astype(float)
    found: Floats = np.clip(inside / np.maximum(high - low.astype(float), 1), 0, 1)
    return found


def least_since(files: Iterable[FileRows]) -> dict[tuple[int, bool], Since]:
    """Return since when rows are read of each lane, whatever file they are in."""
    found: dict[tuple[int, bool], Since] = {}
    for each in chain.from_iterable(file.ranges for file in files):
        known = found.get(each[:2])
        found[each[:2]] = each if known is None or each.since < known.since else known
    return found


def _lowest(file: HeldFile, reached: Reach) -> Longs:
    return bounds(reached, np.full(len(reached.lanes), file.levels[0]))


def _numbers(held: Held, lanes: Sequence[LaneKey]) -> NDArray[np.int32]:
    """Return the number in the frame of each lane that is known."""
    found = np.full(held.lanes + len(lanes), NONE, np.int32)
    for number, key in enumerate(lanes):
        found[held.id_of(key)] = number
    return found


class SidecarReader:
    """Reads a sidecar for one frame."""

    def __init__(self, held: Held, file: HeldFile, texts: FrameTexts) -> None:
        self._held = held
        self._file = file
        self._texts = texts

    def sums(self, reached: Reach, level: Longs) -> Iterator[Pieces]:
        """Yield the sums of these levels in the window."""
        table = _Lookup(self._file.lanes, reached)
        of_level = table.column(level, NONE)
        for each in sorted(set(level.tolist())):
            ranges = [
                (int(reached.opens[chosen].min()), int(reached.closes[chosen].max()))
                for timed in (False, True)
                if (chosen := (level == each) & (reached.timed == timed)).any()
            ]
            for page in self._pages(self._file.cells, (each, each), ranges):
                row = table.rows(page)
                edge = page.columns["edge"]
                chosen = (page.columns["level"] == each) & (of_level[row] == each)
                chosen &= (edge >= table.opens[row]) & (edge < table.closes[row])
                yield self._pieces(page, chosen, table.number[row])

    def longs(self, reached: Reach, least: Longs, before: Longs) -> Iterator[Pieces]:
        """Yield the spans of at least so many ticks that reach into the window and begin before some time or tick."""
        table = _Lookup(self._file.lanes, reached)
        bound, last = table.column(least, FARTHEST), table.column(before, -FARTHEST)
        rate = table.column(np.where(reached.timed, 1e9 / reached.rate, 1.0), 1.0)
        shortest = int(least.min()) if len(least) else 0
        for page in self._long_pages(reached, shortest, before):
            row = table.rows(page)
            spot, longest = page.columns["spot"], page.columns["longest"]
            chosen = (longest >= bound[row]) & (spot < last[row])
            chosen &= spot + longest * rate[row] * _ROUNDED + 1024 >= table.opens[row]
            yield self._pieces(page, chosen, table.number[row])

    def _pages(self, file: PagedFile, outer: tuple[int, int], ranges: Sequence[tuple[int, int]]) -> Iterator[SidecarPage]:  # fmt: skip
        chosen = (file.outer[0] <= outer[1]) & (file.outer[1] >= outer[0])
        inner = np.zeros(len(chosen), np.bool_)
        for low, high in ranges:
            inner |= (file.inner[0] < high) & (file.inner[1] >= low)
        for number in np.flatnonzero(chosen & inner).tolist():
            yield self._held.pages.of(file, number)

    def _long_pages(self, reached: Reach, shortest: int, before: Longs) -> Iterator[SidecarPage]:
        """Yield the pages that may have spans which reach into the window: they are ordered by length, then by begin."""
        file = self._file.longs
        chosen = np.zeros(len(file.rows), np.bool_)
        for timed in (False, True):
            of = reached.timed == timed
            if of.any():
                rate = float((1e9 / reached.rate[of]).max()) if timed else 1.0
                reaches = file.inner[1] + file.outer[1] * rate * _ROUNDED + 1024
                chosen |= (file.inner[0] < before[of].max()) & (reaches >= reached.opens[of].min())
        for number in np.flatnonzero(chosen & (file.outer[1] >= shortest)).tolist():
            yield self._held.pages.of(file, number)

    def _pieces(self, page: SidecarPage, chosen: Truths, numbers: Longs) -> Pieces:
        rows = np.flatnonzero(chosen)
        count = len(rows)

        def column(name: str, null: float, kind: type[np.generic]) -> NDArray[Any]:
            found = page.columns.get(name)
            return np.full(count, null, kind) if found is None else found[rows].astype(kind, copy=False)  # fmt: skip

        def texts(name: str) -> Longs:
            found = page.texts.get(name)
            return np.full(count, NONE, np.int64) if found is None else self._texts.numbered(found[0][rows], found[1])  # fmt: skip

        is_long = "edge" not in page.columns
        longest = column("longest", 0, np.int64)
        return Pieces(
            number=numbers[rows].astype(np.int32),
            what=np.full(count, SPAN, np.int8) if is_long else column("what", 0, np.int8),
            timed=column("timed", 0, np.bool_),
            depth=column("depth", NONE, np.int32),
            edge=column("spot" if is_long else "edge", 0, np.int64),
            spot=column("spot", 0, np.int64),
            start=column("start", 0, np.int64),
            events=column("count", 1, np.int64),
            busy=longest if is_long else column("busy", 0, np.int64),
            longest=longest,
            label=texts("label"),
            member=texts("member"),
            offset=column("offset", 0, np.int64),
            kind=texts("kind"),
            least=column("least", 0, np.float64),
            most=column("most", 0, np.float64),
            latest=column("latest", 0, np.float64),
            open=np.zeros(count, np.bool_),
        )


class _Lookup:
    """The facts about the lanes that reach into the window, by the lane and the kind of a sidecar's rows."""

    def __init__(self, file: FileLanes, reached: Reach) -> None:
        self._size = 2 * len(file.extents)
        self._at = 2 * file.lane[reached.lanes] + reached.timed
        self.number = self.column(reached.number, NONE)
        self.opens = self.column(reached.opens, FARTHEST)
        self.closes = self.column(reached.closes, -FARTHEST)

    def column(self, values: NDArray[Any], missing: float) -> NDArray[Any]:
        """Return values of lanes such that `rows` finds them; `missing` for other lanes."""
        found = np.full(self._size, missing, values.dtype)
        found[self._at] = values
        return found

    @staticmethod
    def rows(page: SidecarPage) -> Longs:
        """Return where the facts about each row's lane are."""
        found: Longs = 2 * page.columns["lane"].astype(np.int64) + page.columns["timed"]
        return found
