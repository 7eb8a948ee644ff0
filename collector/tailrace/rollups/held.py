"""Hold what a process knows of the sidecars: a database of their lanes, and of their coarse levels.

A window over all of a large table has its sums in memory; a narrow one reads a few row groups from disk. Files
of a newer version replace those that it no longer has, and what is held of the others stays.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Collection
from typing import Any, Literal

import duckdb

from tailrace.query.catalog import Catalog, nothing
from tailrace.query.engine import literal
from tailrace.rollups.extents import least, most
from tailrace.rollups.row_source import pattern
from tailrace.rollups.sidecar import Sidecar, Sidecars

MEMORY = 192 * 2**20
"""Bytes of sums that are held, about."""

SUM_BYTES = 150

THREADS = 2
DATABASE = "384MB"
"""The most memory of the database, sums included; beyond that it writes to disk."""

_TABLES = f"""
CREATE SCHEMA part;
CREATE VIEW stored AS {nothing()};
CREATE TABLE file_lane (
  file INTEGER, lane INTEGER, timed BOOLEAN, scale INTEGER, low BIGINT, high BIGINT, longest BIGINT,
  source VARCHAR, session VARCHAR, stream VARCHAR, substream BIGINT
);
CREATE TABLE file_level (file INTEGER, level INTEGER);
CREATE TABLE file_path (file INTEGER, cells VARCHAR, longs VARCHAR);
CREATE TABLE coarse (
  file INTEGER, level TINYINT, lane INTEGER, what TINYINT, timed BOOLEAN, depth INTEGER, edge BIGINT, spot BIGINT,
  start BIGINT, "count" BIGINT, busy BIGINT, longest BIGINT, label VARCHAR, member VARCHAR, "offset" BIGINT,
  kind VARCHAR, least DOUBLE, most DOUBLE, latest DOUBLE
);
"""

FARTHEST = 2**63 - 1


class HeldFile:
    """A data file with a sidecar, under a number of its own."""

    __slots__ = ("number", "sidecar")

    def __init__(self, number: int, sidecar: Sidecar) -> None:
        self.number = number
        self.sidecar = sidecar


class Held:
    """The sidecars of one table that this process knows. Whoever reads `files` and the tables has the lock."""

    def __init__(self, sidecars: Sidecars | None, memory: int = MEMORY) -> None:
        self.sidecars = sidecars
        self.files: dict[str, HeldFile] = {}
        self.lock = threading.Lock()
        spill = tempfile.mkdtemp(prefix="tailrace-rollups-")
        weakref.finalize(self, shutil.rmtree, spill, ignore_errors=True)
        self.database = duckdb.connect(
            config={"memory_limit": DATABASE, "threads": THREADS, "temp_directory": spill}
        )
        self.database.execute("SET preserve_insertion_order = false")
        self.database.execute(_TABLES)
        Catalog().prepare(self.database, "part.ticks_ns part.numbers")
        self._sums = memory // SUM_BYTES
        self._number = 0
        self.level = 0
        """The lowest level that is held; all sums from there on are."""

    def follow(self, paths: Collection[str]) -> dict[str, HeldFile]:
        """Hold the sidecars of these data files, as far as they are there, and no others. Return the files."""
        with self.lock:
            self._follow(set(paths))
            return dict(self.files)

    def _follow(self, wanted: set[str]) -> None:
        for path in self.files.keys() - wanted:
            self._forget(self.files.pop(path))
        if self.sidecars is None:
            return
        found = ((path, self.sidecars.find(path)) for path in sorted(wanted - self.files.keys()))
        new = [self._note(path, sidecar) for path, sidecar in found if sidecar is not None]
        level = self._level()
        if level > self.level:
            self.database.execute("DELETE FROM coarse WHERE level < ?", [level])
        again = list(self.files.values()) if level < self.level else new
        if level < self.level:
            self.database.execute("DELETE FROM coarse")
        self.level = level
        for file in again:
            self._load(file)

    def drop_damaged(self) -> bool:
        """Forget the sidecars that cannot be read to their end; return whether there are any."""
        if self.sidecars is None:
            return False
        with self.lock:
            damaged = [
                path for path, file in self.files.items() if self.sidecars.refuse(file.sidecar)
            ]
            for path in damaged:
                self._forget(self.files.pop(path))
        return bool(damaged)

    def paths(self, numbers: Collection[int]) -> list[str]:
        """Return the data files with these numbers."""
        return [path for path, file in self.files.items() if file.number in numbers]

    def reading(self, part: Literal["cells", "longs"], numbers: Collection[int]) -> str:
        """Return the SQL of a part of the sidecars with these numbers, with the number as `file`."""
        chosen = [file.sidecar for file in self.files.values() if file.number in numbers]
        paths = ", ".join(pattern(getattr(each, part)) for each in chosen)
        read = f"read_parquet([{paths}], filename = true, hive_partitioning = false)"
        return f"SELECT p.file, c.* EXCLUDE (filename) FROM {read} AS c JOIN file_path AS p ON p.{part} = c.filename"  # noqa: S608 - our own words

    def _note(self, path: str, sidecar: Sidecar) -> HeldFile:
        self._number += 1
        held = self.files[path] = HeldFile(self._number, sidecar)
        header = sidecar.header
        rows: list[tuple[Any, ...]] = []
        for number, (scale, extent) in enumerate(
            (each.scale, each.extent) for each in header.lanes
        ):
            key = (extent.source, extent.session, extent.stream, extent.substream)
            longest = min(extent.longest or 0, FARTHEST)
            if extent.timed_from is not None:
                times = extent.timed_from, extent.timed_until
                rows.append((held.number, number, True, scale, *times, longest, *key))
            first = least((extent.tick_first, extent.lone_first))
            if first is not None:
                last = most((extent.tick_last, extent.lone_last))
                rows.append((held.number, number, False, 0, first, last, longest, *key))
        if rows:
            self.database.executemany(f"INSERT INTO file_lane VALUES ({', '.join('?' * 11)})", rows)  # noqa: S608 - question marks
        paths = held.number, sidecar.cells, sidecar.longs
        self.database.execute("INSERT INTO file_path VALUES (?, ?, ?)", paths)
        levels = [(held.number, level) for level in header.levels]
        self.database.executemany("INSERT INTO file_level VALUES (?, ?)", levels)
        return held

    def _forget(self, file: HeldFile) -> None:
        for table in ("file_lane", "file_level", "file_path", "coarse"):
            self.database.execute(f"DELETE FROM {table} WHERE file = ?", [file.number])  # noqa: S608 - our own words

    def _level(self) -> int:
        """Return the lowest level from which on all sums may be held."""
        sizes: dict[int, int] = {}
        for file in self.files.values():
            for level, size in zip(
                file.sidecar.header.levels, file.sidecar.header.sizes, strict=True
            ):
                sizes[level] = sizes.get(level, 0) + size
        total, lowest = 0, 64
        for level in sorted(sizes, reverse=True):
            total += sizes[level]
            if total > self._sums:
                break
            lowest = level
        return lowest

    def _load(self, file: HeldFile) -> None:
        self.database.execute(
            "INSERT INTO coarse SELECT ?, * FROM read_parquet(?) WHERE level >= ?",
            [file.number, literal(file.sidecar.cells), self.level],
        )
