"""The Parquet files of a local table, as we write them. (The library writes those of a table at a URL.)

Dictionaries stay dictionaries: the library would expand them and hash each string again. Files and their names
are brought to disk (`sync`) before the log names them, so no log entry ever names a file that a power cut may take.
A killed process leaves files that no log entry names; the daily vacuum removes them.

A row of a batch of 100,000 takes 0.09 µs of CPU, where the library's writer took 0.3 (2026-11-23).

`PreparedRows` are the files of a commit that is ready to land. To make them takes most of a commit's time and needs
nothing of the table: meanwhile the commit before them is brought to disk.

Rows of few kinds come first, in a row group of their own (`few_first`), because readers look for them in every file
(`query/inner_views.py`). Among events each of these rows costs whole pages of every column.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sized
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from pyarrow import parquet

from tailrace.clock import Clock
from tailrace.errors import SyncError
from tailrace.filesystem import refusal_text
from tailrace.rows.schema import CODED, FEW_KINDS
from tailrace.store import durable, layout, schema
from tailrace.store.arrow import NAMES, DayRows, with_day
from tailrace.store.log import Add, DeltaLog
from tailrace.store.refusal import refusal

ROWS_MIN = 16_384
"""Rows of a file that is worth a second row group, whose description takes 2 KB."""

RUNS_MAX = 256
"""Runs of such rows that are moved. A slice costs some 40 µs, so more of them would cost more than they save."""

_RUN = re.compile(b"\1+")
_LOWEST_BYTE = slice(0 if sys.byteorder == "little" else 3, None, 4)


def few_first(rows: pa.Table) -> tuple[pa.Table, int]:
    """Return rows with those of few kinds first, and how many these are; both keep their order.

    Return the rows as they are, and 0, when they are less than `ROWS_MIN`, when all are of few kinds or none is,
    or when these lie in more than `RUNS_MAX` runs."""
    if rows.num_rows < ROWS_MIN:
        return rows, 0
    marks = _marks(rows.column("kind").chunks)
    few = marks.count(1)
    runs = [run.span() for run in _RUN.finditer(marks)] if 0 < few < len(marks) else []
    if not 0 < len(runs) <= RUNS_MAX:
        return rows, 0
    ordered = [*runs, *_between(runs, len(marks))]
    return pa.concat_tables(rows.slice(begin, end - begin) for begin, end in ordered), few


def _marks(kinds: list[pa.DictionaryArray]) -> bytes:
    """Return 1 for each row of few kinds and 0 for all others. All chunks have the first one's dictionary.

    pyarrow's own functions for this would take 9 MB of a collector."""
    words = kinds[0].dictionary.to_pylist()
    few = bytes(word in FEW_KINDS for word in words).ljust(256, b"\0")
    if 1 not in few or len(few) > 256:
        return b""
    return b"".join(_codes(chunk.indices)[_LOWEST_BYTE].translate(few) for chunk in kinds)


def _codes(indices: pa.Array) -> bytes:
    """Return 32-bit codes as bytes."""
    begin, data = 4 * indices.offset, memoryview(indices.buffers()[1])
    return bytes(data[begin : begin + 4 * len(indices)])


def _between(runs: list[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of so many rows that are in no run."""
    bounds = [0, *(bound for run in runs for bound in run), count]
    for begin, end in list(pairwise(bounds))[::2]:
        if begin < end:
            yield begin, end


TEXT_MAX = 256
"""The log states no smallest or greatest value of a column if one of them has more characters."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write(root: Path, rows: list[DayRows]) -> list[Add]:
    """Write rows to new files of the table in `root`, one for each day; return the log actions that add them, to be logged
    once `sync` has returned. Raise FullError or StoreError, and leave no file; raise SyncError."""
    added: list[Add] = []
    try:
        for day_rows in rows:
            added.append(_write_rows(root, day_rows))  # noqa: PERF401 - kept if one fails
    except OSError as error:
        discard(root, added)
        raise refusal(error, str(root), "commit") from error
    return added


def sync(root: Path, added: list[Add]) -> None:
    """Return once files and their names are on disk. Raise OSError for what cannot be opened, SyncError for a failed sync."""
    for add in added:
        path = root / add.path
        _sync(path)
        _sync(path.parent)


def renamed(root: Path, add: Add) -> Add:
    """Give a file another name, and return the log action that adds it. Raise OSError."""
    path = Path(add.path).with_name(_new_name())
    (root / add.path).rename(root / path)
    return msgspec.structs.replace(add, path=str(path))


def write_rows(root: Path, day_rows: DayRows) -> Add:
    """Write rows to a new file of the table in `root`; return the log action that adds it.

    The file is on disk when this returns. Raise OSError, and leave no file behind; raise SyncError."""
    add = _write_rows(root, day_rows)
    try:
        sync(root, [add])
    except BaseException:
        discard(root, [add])
        raise
    return add


def discard(root: Path, added: list[Add]) -> None:
    """Remove files that no log entry names. Leave to upkeep those that cannot be removed."""
    with suppress(OSError):
        for add in added:
            (root / add.path).unlink(missing_ok=True)


def action_of(add: Add) -> AddAction:
    """Return a log action as the library takes it."""
    return AddAction(
        add.path,
        add.size,
        add.partition_values,
        add.modification_time,
        add.data_change,
        add.stats or "{}",
    )


def _write_rows(root: Path, day_rows: DayRows) -> Add:
    """Do the same as `write_rows`, but bring to disk no more than the name of a new directory."""
    day, rows = day_rows
    directory = root / f"day={layout.date_of(day)}"
    path = directory / _new_name()
    _make_directory(directory)
    rows, few = few_first(rows)
    data, metadata = _encode(rows, few)
    try:
        _write(path, data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    found = path.stat()
    return Add(
        path=str(path.relative_to(root)),
        size=found.st_size,
        partition_values={"day": str(layout.date_of(day))},
        modification_time=found.st_mtime_ns // 10**6,
        stats=msgspec.json.encode(_statistics(rows, metadata)).decode(),
    )


def _new_name() -> str:
    return f"part-{uuid4()}.parquet"


def _make_directory(directory: Path) -> None:
    if not directory.is_dir():
        directory.mkdir(exist_ok=True)
        _sync(directory.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        why = refusal_text(error.errno, path)
        raise SyncError(f"{path}: cannot be brought to disk: {why}") from error
    finally:
        os.close(fd)


def _write(path: Path, data: pa.Buffer) -> None:
    with path.open("xb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def _encode(rows: pa.Table, few: int) -> tuple[pa.Buffer, parquet.FileMetaData]:
    """Return the bytes of a file, and what its footer says. The first `few` rows are a row group of their own.

    They are made in memory: pyarrow's own files turn a full disk into an error that does not say so."""
    numbers = [each.name for each in rows.schema if each.type not in (pa.string(), NAMES)]
    stream = pa.BufferOutputStream()
    footers: list[parquet.FileMetaData] = []
    with parquet.ParquetWriter(
        stream,
        rows.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=sorted(CODED),
        column_encoding={**dict.fromkeys(numbers, "DELTA_BINARY_PACKED"), "attributes": "PLAIN"},
        write_statistics=numbers,
        store_schema=False,
        metadata_collector=footers,
    ) as writer:
        for group in (rows.slice(0, few), rows.slice(few)):
            if group.num_rows:
                writer.write_table(group, row_group_size=group.num_rows)
    return stream.getvalue(), footers[0]


def _statistics(rows: pa.Table, metadata: parquet.FileMetaData) -> dict[str, Any]:
    """Return what the log says of a file: its rows, and the bounds of the columns in `layout.STATED`."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number, name in enumerate(rows.schema.names):
        if name not in layout.STATED:
            continue
        column = rows.column(number)
        nulls[name] = column.null_count
        if name in CODED:
            values = column.chunk(0).dictionary.to_pylist()
            bounds = (min(values), max(values)) if values else None
        else:
            # As stored: pyarrow would import pandas for times if it is installed, 45 MB.
            stated = [
                each for group in groups if (each := group.column(number).statistics).has_min_max
            ]
            bounds = (
                (min(s.min_raw for s in stated), max(s.max_raw for s in stated)) if stated else None
            )
        if bounds and name == "wall":
            bounds = (_spelled(bounds[0]), _spelled(bounds[1]))
        if bounds and all(isinstance(each, int) or len(each) <= TEXT_MAX for each in bounds):
            least[name], most[name] = bounds
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _spelled(microseconds: int) -> str:
    """Return a Unix time as the log spells timestamps."""
    return f"{_EPOCH + timedelta(microseconds=microseconds):%Y-%m-%dT%H:%M:%S.%fZ}"


SAFE_NS = layout.REMOVED_HOURS * 3600 * 10**9 // 2
"""An upkeep removes files that the log does not name once they are `REMOVED_HOURS` old. It may have listed an older file
than this, and remove it after the log names it."""


class PreparedRows(Sized):
    """Rows of one commit, ready to land. For a local table they are in files that the log does not name yet, and no longer
    in memory; for a table at a URL they are Arrow."""

    def __init__(self, rows: list[DayRows], root: Path | None, clock: Clock) -> None:
        """Write files if the table is in a directory `root`. Raise FullError or StoreError, and leave no file; raise SyncError."""
        self._rows = rows if root is None else []
        self._count: int = sum(each.rows.num_rows for each in rows)
        self._root = root
        self._clock = clock
        self._added = [] if root is None else write(root, rows)
        self._old = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    def keep(self) -> None:
        """Make the files young, so that no upkeep removes them. Do nothing about those that are gone."""
        with suppress(OSError):
            self._touch()

    def bring_to_disk(self) -> None:
        """Return once the files are on disk. Call this only if it is known that the log names none of them.

        Raise FullError or StoreError: repeat the call. Raise SyncError, also if a file was removed."""
        if self._root is None:
            return
        try:
            self._touch()
            if self._old:
                for number, add in enumerate(self._added):
                    self._added[number] = renamed(self._root, add)
                self._old = False
            sync(self._root, self._added)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and DeltaLog(self._root).directory.is_dir():
                raise SyncError(
                    f"{self._root}: a file of a commit was removed before it: {error}"
                ) from error
            raise refusal(error, str(self._root), "commit") from error
        except SyncError:
            discard(self._root, self._added)
            self._added = []
            raise

    def write(self, table: DeltaTable, properties: CommitProperties) -> bool:
        """Write a version of the table with these rows. Return whether it is known that nobody else wrote one meanwhile.

        Raise what the library raises. Then only the table says whether it has the version."""
        if self._rows:
            write_deltalake(
                table,
                pa.concat_tables(map(with_day, self._rows)),
                mode="append",
                writer_properties=layout.writer_properties(),
                post_commithook_properties=durable.NO_HOOKS,
                commit_properties=properties,
            )
            return True
        before = table.version()
        table.create_write_transaction(
            [action_of(add) for add in self._added],
            "append",
            schema.SCHEMA,
            ["day"],
            post_commithook_properties=durable.NO_HOOKS,
            commit_properties=properties,
        )
        table.update_incremental()  # the library leaves the handle where it was
        return table.version() == before + 1

    def _touch(self) -> None:
        """Make the files young, and note whether one was old. Raise OSError."""
        for add in self._added:
            path = (self._root or Path()) / add.path
            if self._clock.wall_ns() - path.stat().st_mtime_ns >= SAFE_NS:
                self._old = True
            os.utime(path)
