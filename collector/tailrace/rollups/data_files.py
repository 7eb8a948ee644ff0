"""Cache facts about a table's data files, and read the sums in their sidecars (see `sidecar`).

`reach` finds the lanes (streams and substreams) of a file that may overlap a drawn window. `SidecarReader` reads the
sums and the long spans of these lanes."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from tailrace.query.catalog import ViewCatalog, nothing
from tailrace.query.database import finalize
from tailrace.query.limits import make_room
from tailrace.rollups.events import LaneExtent, least, most
from tailrace.rollups.gaps import GapPlaces
from tailrace.rollups.pieces import NONE, FrameTexts, Longs, Pieces, Truths
from tailrace.rollups.rows import FARTHEST, KeptBlocks
from tailrace.rollups.scale import Scales
from tailrace.rollups.sidecar import LatestUsed, PagedFile, Sidecar, SidecarPage, Sidecars

MEMORY = 48 * 2**20
"""Maximum size (bytes) of all sidecar pages in the cache."""

THREADS = 2
DATABASE = "256MB"
"""Memory limit of the DuckDB instance that reads rows of data files. DuckDB writes to disk the data that exceeds it."""

LaneId = tuple[str, str, str, int | None]


class FileLanes:
    """The lanes of a data file, as columns. A lane (a stream or substream) has one entry for its rows with a stored
    time, and one for its other rows.

    `low` and `high` are the least and the greatest stored time or tick of an entry's rows. `longest` is the duration
    (ticks) of the lane's longest span. `id` is the number that `FileCache` gave to the lane."""

    def __init__(self, extents: Sequence[LaneExtent], scales: Iterable[int], ids: list[int]) -> None:  # fmt: skip
        self.extents = extents
        rows: list[tuple[int, bool, int, int, int, int, int]] = []
        for number, (extent, scale) in enumerate(zip(extents, scales, strict=True)):
            longest = min(extent.longest or 0, FARTHEST)
            if extent.timed_from is not None and extent.timed_until is not None:
                rows.append((number, True, scale, extent.timed_from, extent.timed_until, longest, ids[number]))  # fmt: skip
            first = least((extent.tick_first, extent.lone_first))
            last = most((extent.tick_last, extent.lone_last))
            if first is not None and last is not None:
                rows.append((number, False, 0, first, last, longest, ids[number]))
        columns = np.array(rows, np.int64).reshape(-1, 7).T
        self.lane, self.scale, self.low, self.high, self.longest, self.id = columns[
            [0, 2, 3, 4, 5, 6]
        ]
        self.timed: Truths = columns[1] != 0
        self.events = np.array([extents[number].events for number in self.lane.tolist()], np.int64)
        self.all_events = max(sum(extent.events for extent in extents), 1)


class CachedFile:
    """A data file with a sidecar. `levels` has the base-2 logarithms of the bucket widths by which spans are summed,
    and `sizes` the number of sums for each width."""

    def __init__(self, sidecar: Sidecar, lanes: FileLanes) -> None:
        """Open both files of the sidecar. Raise OSError or pyarrow's errors if one of them cannot be read."""
        self.sidecar = sidecar
        self.lanes = lanes
        self.levels = np.array(sidecar.header.levels, np.int64)
        self.sizes = np.array(sidecar.header.sizes, np.int64)
        self.cells = PagedFile(sidecar.cells, "level", "edge")
        self.longs = PagedFile(sidecar.longs, "longest", "spot")


class FileCache:
    """The lanes (streams and substreams), sidecars, sidecar pages and rows of a table's data files that are kept in
    memory. A caller that reads pages must hold `lock`."""

    def __init__(self, sidecars: Sidecars | None, memory: int = MEMORY) -> None:
        self.sidecars = sidecars
        self.files: dict[str, CachedFile] = {}
        """Data files that have a sidecar, by the path of the data file in the table."""
        self._pages: LatestUsed[tuple[str, int], SidecarPage] = LatestUsed(memory, attrgetter("bytes"))  # fmt: skip
        self.blocks = KeptBlocks()
        self.lock = threading.RLock()
        self.plain: dict[str, FileLanes] = {}
        """Lanes of data files without a sidecar, by the path of the data file in the table."""
        self._ids: dict[LaneId, int] = {}
        spill = make_room("rollups")
        finalize(self, shutil.rmtree, spill, True)  # noqa: FBT003 - ignore errors
        self.database = duckdb.connect(
            config={
                "memory_limit": DATABASE,
                "threads": THREADS,
                # Let DuckDB return the memory of finished statements to the system soon.
                "allocator_background_threads": True,
                # Each thread keeps some memory of finished statements, so use few threads.
                "async_threads": THREADS,
                "temp_directory": spill,
            }
        )
        self.database.execute("SET preserve_insertion_order = false")
        self.database.execute("SET parquet_metadata_cache = true")
        self.database.execute(f"CREATE SCHEMA part; CREATE VIEW stored AS {nothing()}")
        ViewCatalog().prepare(self.database, "part.numbers part.member")
        self.places = GapPlaces()

    def follow(self, paths: Collection[str]) -> dict[str, CachedFile]:
        """Cache the sidecars of the given data files, and forget all other files. Return the files that have a
        sidecar."""
        with self.lock:
            wanted = set(paths)
            for path in self.files.keys() - wanted:
                self._forget(path)
            for path in self.plain.keys() - wanted:
                del self.plain[path]
            if self.sidecars is None:
                self.blocks.follow(wanted, wanted)
                return {}
            for path in sorted(wanted - self.files.keys()):
                if (sidecar := self.sidecars.find(path)) is None:
                    continue
                extents = [each.extent for each in sidecar.header.lanes]
                scales = [each.scale for each in sidecar.header.lanes]
                lanes = FileLanes(extents, scales, [self.id_of(each.key) for each in extents])
                try:
                    self.files[path] = CachedFile(sidecar, lanes)
                except (OSError, pa.ArrowException):
                    self.sidecars.refuse(sidecar)
            self.blocks.follow(wanted, wanted - self.files.keys())
            return dict(self.files)

    def drop_damaged(self) -> bool:
        """Read all cached sidecars completely, and forget those that are damaged or deleted. Return whether any sidecar
        was damaged or deleted."""
        if self.sidecars is None:
            return False
        with self.lock:
            damaged = [path for path, file in self.files.items() if self.sidecars.refuse(file.sidecar)]  # fmt: skip
            for path in damaged:
                self._forget(path)
        return bool(damaged)

    def page(self, file: PagedFile, number: int, lanes: Truths) -> SidecarPage:
        """Return one page of a sidecar file with the rows of the chosen lanes, and maybe of others. Raise OSError or
        pyarrow's errors if the file cannot be read."""
        page = self._pages.get((file.path, number))
        if page is None or (lanes & ~page.lanes).any():
            page = file.read(number, lanes)
            self._pages.put((file.path, number), page)
        return page

    def learn(self, path: str, extents: Sequence[LaneExtent]) -> FileLanes:
        """Cache and return the lanes of a data file without a sidecar."""
        with self.lock:
            lanes = FileLanes(extents, [0] * len(extents), [self.id_of(each.key) for each in extents])  # fmt: skip
            self.plain[path] = lanes
            return lanes

    def id_of(self, key: LaneId) -> int:
        """Return the number of a lane in this cache, the same for all data files and versions of the table."""
        with self.lock:
            return self._ids.setdefault(key, len(self._ids))

    @property
    def lanes(self) -> int:
        """Number of lanes to which `id_of` has given a number."""
        return len(self._ids)

    def _forget(self, path: str) -> None:
        file = self.files.pop(path)
        for part in (file.cells, file.longs):
            for number in range(len(part.rows)):
                self._pages.forget((part.path, number))


ROUNDED = 1 + 1e-9
"""Factor by which durations in floating point are enlarged, so that a rounding error never excludes a span. A later
step compares times exactly."""


class Reach(NamedTuple):
    """The lanes (streams and substreams) of a data file that may overlap the drawn window, as columns.

    - `lanes`: indices into the file's `FileLanes`.
    - `number`: indices into the lanes of the drawing.
    - `finest`: the base-2 logarithm of the greatest bucket width that the drawing can use.
    - `opens` and `closes`: the bounds of the window, in stored times or in ticks."""

    lanes: Longs
    number: Longs
    timed: Truths
    scale: Longs
    finest: Longs
    opens: Longs
    closes: Longs
    rate: NDArray[np.float64]


def reach(file: FileLanes, numbers: NDArray[np.int32], scales: Scales) -> Reach:
    """Return the lanes of a file that may overlap the window. `numbers` has, by the id of a lane, the lane's index in
    the drawing."""
    number = numbers[file.id]
    timed = file.timed
    (times, times_end), (ticks, ticks_end) = scales.ranges[True], scales.ranges[False]
    opens = np.where(timed, times[number], ticks[number])
    closes = np.where(timed, times_end[number], ticks_end[number])
    rate = scales.rate[number]
    length = np.where(timed, file.longest * (1e9 / rate) * ROUNDED + 2, file.longest.astype(float))
    there = (number >= 0) & (file.low < closes) & (file.high + length >= opens.astype(float))
    lanes = np.flatnonzero(there)
    short = scales.short[number]
    finest = np.where(timed, np.minimum(short + file.scale, scales.log), short)
    columns = number, timed, file.scale, finest, opens, closes, rate
    return Reach._make((lanes, *(column[lanes] for column in columns)))


def levels(file: CachedFile, reached: Reach) -> Longs | None:
    """Return, for each lane in `reached`, the level of the widest buckets that are narrow enough for the drawing.
    Return None if the sidecar has no such level for some lane."""
    places = np.searchsorted(file.levels, reached.finest, side="right") - 1
    return None if (places < 0).any() else file.levels[places]


def bounds(reached: Reach, level: Longs) -> Longs:
    """Return, for each lane in `reached`, the minimum duration (ticks) of the spans that the sidecar's sums of level
    `level` do not contain, because the sidecar stores such spans one by one."""
    return np.left_shift(1, np.maximum(level - np.where(reached.timed, reached.scale, 0), 0))


class SidecarReader:
    """Reads the sidecar of one data file: precomputed sums of short spans, and each long span. `numbers` has, by the id
    of a lane, the lane's index in the drawing."""

    def __init__(
        self, cache: FileCache, file: CachedFile, numbers: NDArray[np.int32], texts: FrameTexts
    ) -> None:
        self._cache = cache
        self._file = file
        self._texts = texts
        # Cached pages have all drawn lanes, whatever the window is, so that they serve the next window.
        self._drawn = np.zeros(len(file.lanes.extents), np.bool_)
        self._drawn[file.lanes.lane[numbers[file.lanes.id] != NONE]] = True

    def sums(self, reached: Reach, level: Longs) -> Iterator[Pieces]:
        """Yield the precomputed sums of short spans in the drawn window. `level` has the sidecar level to read for each
        lane in `reached` (the lanes that the window touches)."""
        table = _Lookup(self._file.lanes, reached)
        of_level = table.column(level, NONE)
        for each in sorted(set(level.tolist())):
            ranges = [
                (int(reached.opens[chosen].min()), int(reached.closes[chosen].max()))
                for timed in (False, True)
                if (chosen := (level == each) & (reached.timed == timed)).any()
            ]
            cells = self._file.cells
            inside = np.zeros(len(cells.rows), np.bool_)
            for low, high in ranges:
                inside |= (cells.inner[0] < high) & (cells.inner[1] >= low)
            inside &= (cells.outer[0] <= each) & (cells.outer[1] >= each)
            for number in np.flatnonzero(inside).tolist():
                page = self._cache.page(cells, number, self._drawn)
                row = table.rows(page)
                edge = page.columns["edge"]
                chosen = (page.columns["level"] == each) & (of_level[row] == each)
                chosen &= (edge >= table.opens[row]) & (edge < table.closes[row])
                yield self._pieces(page, chosen, table.number[row])

    def longs(self, reached: Reach, least: Longs, before: Longs) -> Iterator[Pieces]:
        """Yield the long spans that overlap the drawn window. For each lane, `least` is their minimum duration
        (ticks), and `before` limits their begins (exclusive)."""
        table = _Lookup(self._file.lanes, reached)
        bound, last = table.column(least, FARTHEST), table.column(before, -FARTHEST)
        rate = table.column(np.where(reached.timed, 1e9 / reached.rate, 1.0), 1.0)
        shortest = int(least.min()) if len(least) else 0
        for number in self._long_pages(reached, shortest, before):
            page = self._cache.page(self._file.longs, number, self._drawn)
            row = table.rows(page)
            spot, longest = page.columns["spot"], page.columns["longest"]
            chosen = (longest >= bound[row]) & (spot < last[row])
            chosen &= spot + longest * rate[row] * ROUNDED + 1024 >= table.opens[row]
            yield self._pieces(page, chosen, table.number[row])

    def _long_pages(self, reached: Reach, shortest: int, before: Longs) -> list[int]:
        """Return the numbers of the pages that may have long spans of `shortest` ticks or more in the window."""
        file = self._file.longs
        chosen = np.zeros(len(file.rows), np.bool_)
        for timed in (False, True):
            of = reached.timed == timed
            if of.any():
                rate = float((1e9 / reached.rate[of]).max()) if timed else 1.0
                reaches = file.inner[1] + file.outer[1] * rate * ROUNDED + 1024
                chosen |= (file.inner[0] < before[of].max()) & (reaches >= reached.opens[of].min())
        pages: list[int] = np.flatnonzero(chosen & (file.outer[1] >= shortest)).tolist()
        return pages

    def _pieces(self, page: SidecarPage, chosen: Truths, numbers: Longs) -> Pieces:
        rows = np.flatnonzero(chosen)
        columns = {
            name: each[rows] for name, each in page.columns.items() if name in Pieces._fields
        }
        for name, (codes, dictionary) in page.texts.items():
            columns[name] = self._texts.numbered(codes[rows], dictionary)
        columns["number"] = numbers[rows]
        if "edge" in page.columns:
            columns["events"] = page.columns["count"][rows]
        else:  # the page has long spans and no sums
            columns |= {"edge": columns["spot"], "busy": columns["longest"]}
        return Pieces.of(len(rows), **columns)


class _Lookup:
    """Arrays with two entries for each lane of a sidecar: for rows with a stored time, and for other rows."""

    def __init__(self, file: FileLanes, reached: Reach) -> None:
        self._size = 2 * len(file.extents)
        self._at = 2 * file.lane[reached.lanes] + reached.timed
        self.number = self.column(reached.number, NONE)
        self.opens = self.column(reached.opens, FARTHEST)
        self.closes = self.column(reached.closes, -FARTHEST)

    def column(self, values: NDArray[Any], missing: float) -> NDArray[Any]:
        """Return an array over all lanes of the sidecar: for a lane that may overlap the window, its value in `values`,
        and for any other lane `missing`."""
        found = np.full(self._size, missing, values.dtype)
        found[self._at] = values
        return found

    @staticmethod
    def rows(page: SidecarPage) -> Longs:
        """Return for each row of a sidecar page the index of its lane in the arrays of this object."""
        found: Longs = 2 * page.columns["lane"].astype(np.int64) + page.columns["timed"]
        return found
