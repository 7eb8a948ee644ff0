"""Hold what a process knows of a table's data files: how far their lanes reach, their sidecars, and pages of these.

Files of a newer version replace those that it no longer has, and what is held of the others stays.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection, Iterable, Sequence

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from tailrace.query.catalog import ViewCatalog, nothing
from tailrace.query.database import finalize
from tailrace.query.limits import make_room
from tailrace.rollups.events import LaneExtent, least, most
from tailrace.rollups.gaps import GapPlaces
from tailrace.rollups.pieces import Truths
from tailrace.rollups.rows import KeptBlocks
from tailrace.rollups.sidecar import MEMORY, KeptPages, PagedFile, Sidecar, Sidecars

THREADS = 2
DATABASE = "256MB"
"""The most memory of the database that reads rows; beyond that it writes to disk."""

FARTHEST = 2**63 - 1

LaneId = tuple[str, str, str, int | None]


class FileLanes:
    """The lanes of a data file as columns; those with both kinds of rows are there twice.

    `low` and `high` bound the stored times or ticks of the rows, and `longest` the ticks of the spans. `id` is the
    number that `Held` has given to the lane."""

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


class HeldFile:
    """A data file with a sidecar."""

    def __init__(self, sidecar: Sidecar, lanes: FileLanes) -> None:
        """Raise OSError and pyarrow's errors."""
        self.sidecar = sidecar
        self.lanes = lanes
        self.levels = np.array(sidecar.header.levels, np.int64)
        self.sizes = np.array(sidecar.header.sizes, np.int64)
        self.cells = PagedFile(sidecar.cells, "level", "edge")
        self.longs = PagedFile(sidecar.longs, "longest", "spot")


class Held:
    """The data files of one table that this process knows. Whoever reads pages has the lock."""

    def __init__(self, sidecars: Sidecars | None, memory: int = MEMORY) -> None:
        self.sidecars = sidecars
        self.files: dict[str, HeldFile] = {}
        """The files with sidecars, by their paths in the table."""
        self.pages = KeptPages(memory)
        self.blocks = KeptBlocks()
        self.lock = threading.RLock()
        self._plain: dict[str, FileLanes] = {}
        self._ids: dict[LaneId, int] = {}
        spill = make_room("rollups")
        finalize(self, shutil.rmtree, spill, True)  # noqa: FBT003 - ignore errors
        self.database = duckdb.connect(
            config={
                "memory_limit": DATABASE,
                "threads": THREADS,
                # Memory of ended statements goes back to the system soon, and few threads keep some.
                "allocator_background_threads": True,
                "async_threads": THREADS,
                "temp_directory": spill,
            }
        )
        self.database.execute("SET preserve_insertion_order = false")
        self.database.execute("SET parquet_metadata_cache = true")
        self.database.execute(f"CREATE SCHEMA part; CREATE VIEW stored AS {nothing()}")
        ViewCatalog().prepare(self.database, "part.numbers part.member")
        self.places = GapPlaces()

    def follow(self, paths: Collection[str]) -> dict[str, HeldFile]:
        """Hold the sidecars of these data files, as far as they are there, and no others. Return the files."""
        with self.lock:
            wanted = set(paths)
            for path in self.files.keys() - wanted:
                self._forget(path)
            for path in self._plain.keys() - wanted:
                del self._plain[path]
            for path in sorted(wanted - self.files.keys()):
                self._note(path)
            return dict(self.files)

    def drop_damaged(self) -> bool:
        """Forget the sidecars that cannot be read to their end; return whether there are any."""
        if self.sidecars is None:
            return False
        with self.lock:
            damaged = [path for path, file in self.files.items() if self.sidecars.refuse(file.sidecar)]  # fmt: skip
            for path in damaged:
                self._forget(path)
        return bool(damaged)

    def plain(self, path: str) -> FileLanes | None:
        """Return the lanes of a file without a sidecar, if they are known."""
        return self._plain.get(path)

    def learn(self, path: str, extents: Sequence[LaneExtent]) -> FileLanes:
        """Note, and return, the lanes of a file without a sidecar."""
        with self.lock:
            lanes = FileLanes(extents, [0] * len(extents), [self.id_of(each.key) for each in extents])  # fmt: skip
            self._plain[path] = lanes
            return lanes

    def id_of(self, key: LaneId) -> int:
        """Return the number of a lane, the same one each time."""
        with self.lock:
            return self._ids.setdefault(key, len(self._ids))

    @property
    def lanes(self) -> int:
        """Return how many lanes have a number."""
        return len(self._ids)

    def _note(self, path: str) -> None:
        sidecar = self.sidecars.find(path) if self.sidecars is not None else None
        if sidecar is None or self.sidecars is None:
            return
        extents = [each.extent for each in sidecar.header.lanes]
        ids = [self.id_of(each.key) for each in extents]
        lanes = FileLanes(extents, [each.scale for each in sidecar.header.lanes], ids)
        try:
            self.files[path] = HeldFile(sidecar, lanes)
        except (OSError, pa.ArrowException):
            self.sidecars.refuse(sidecar)

    def _forget(self, path: str) -> None:
        file = self.files.pop(path)
        self.pages.forget(file.sidecar.cells)
        self.pages.forget(file.sidecar.longs)
