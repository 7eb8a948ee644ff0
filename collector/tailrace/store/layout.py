"""The table `events` on disk: its place, its properties and its encodings.

The properties are part of the durability rules (see `durable`): Delta's own checkpoints and log
clean-up are off, because they delete log files before their replacement is on disk.

The library's writer, which writes merged files and all files at a URL, gets encodings that were measured on
commits of 100,000 rows: zstd level 1 with delta-packed counters and times takes 0.40 CPU s a million rows and
9.6 B a row, the library's defaults take 0.92 CPU s and 29.6 B. Files of commits: see `data_files`.

A `TableSnapshot` is the table as readers see it: one version, its files, and the way to the next version. A reader changes nothing on disk and takes no lock. The files of a version stay on disk for at least
`layout.REMOVED_HOURS` after a newer version has replaced them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple, Self

from deltalake import ColumnProperties, DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError, TableNotFoundError

from tailrace.config.schema import StoreConfig
from tailrace.errors import StoreError
from tailrace.store.durable import NO_HOOKS
from tailrace.store.log import Add, row_count
from tailrace.store.refusal import is_broken_off, is_conflict, refusal
from tailrace.store.schema import (
    DESCRIPTION,
    SCHEMA,
    SCHEMA_VERSION,
    VERSION_PROPERTY,
    check_readable,
    check_writable,
)

TABLE_NAME = "events"

MERGED_ROW_GROUP = 131_072
"""Rows of a row group in merged files: small enough to skip, large enough to compress."""

LOG_RETENTION = {"local": "interval 15 minutes", "remote": "interval 1 hours"}
"""How long a version's log file outlives the checkpoint above it. A merge must find the log from the
version where it began. At each kind's usual rate this keeps about 1,000 commits."""

REMOVED_HOURS = 1
"""A file that was merged away or deleted stays on disk for so long: readers may have it open."""

REMOVED_RETENTION = "interval 150 minutes"
"""How long the log remembers a file that was merged away: longer than `REMOVED_HOURS` plus the hour
between vacuums, or vacuum would never learn of some files."""

TRANSACTION_RETENTION = "interval 36500 days"
"""How long a collector's position is remembered after its last commit: for good. If the position were
forgotten (a collector silent for long, a wrong clock), the spool would be stored twice."""

STATED = (
    "source",
    "format",
    "session",
    "stream",
    "substream",
    "seq",
    "kind",
    "start",
    "end",
    "time",
    "wall",
)
"""The columns whose bounds the log states for each file that a collector writes."""

STATISTICS = "delta.dataSkippingStatsColumns"
MERGED_STATED = ",".join(name for name in STATED if name != "wall")
"""The columns whose bounds the log states for merged files. The library writes these bounds and cuts timestamps to
milliseconds: readers that compare would pass over a file for its last rows."""

OPEN_TRIES = 5

_PACKED = ("seq", "id", "parent", "start", "end", "time", "wall", "missing", "offset", "end_offset")


def table_root(store: str) -> str:
    """Return the table's directory or URL, given the store's."""
    return f"{store.removeprefix('file://').rstrip('/')}/{TABLE_NAME}"


def is_local(root: str) -> bool:
    """Return whether the table is on a local file system, where durability is our task."""
    return "://" not in root


def date_of(day: int) -> date:
    """Return the date of a day that is counted from 1970-01-01."""
    return date(1970, 1, 1) + timedelta(days=day)


def properties(config: StoreConfig, *, local: bool) -> dict[str, str | None]:
    return {
        VERSION_PROPERTY: str(SCHEMA_VERSION),
        "delta.checkpointInterval": "1000000000",
        "delta.enableExpiredLogCleanup": "false",
        STATISTICS: MERGED_STATED,
        "delta.logRetentionDuration": LOG_RETENTION["local" if local else "remote"],
        "delta.deletedFileRetentionDuration": REMOVED_RETENTION,
        "delta.setTransactionRetentionDuration": TRANSACTION_RETENTION,
        "delta.targetFileSize": str(int(config.compact_size)),
    }


def writer_properties(row_group: int | None = None) -> WriterProperties:
    packed = ColumnProperties(dictionary_enabled=False, encoding="DELTA_BINARY_PACKED")
    return WriterProperties(
        compression="ZSTD",
        compression_level=1,
        max_row_group_size=row_group,
        column_properties={
            "attributes": ColumnProperties(dictionary_enabled=False),
            **dict.fromkeys(_PACKED, packed),
        },
    )


def open_or_none(root: str, options: dict[str, str]) -> DeltaTable | None:
    """Return the table at its newest version; None if there is no table. Raise StoreError.

    Try again if the log was shortened while the library was reading it, or an answer broke off."""
    for attempt in range(1, OPEN_TRIES + 1):
        try:
            return DeltaTable(root, storage_options=options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            if attempt == OPEN_TRIES or not (is_conflict(error) or is_broken_off(error)):
                raise refusal(_obstacle(root) or error, root, "open the table") from error
    raise AssertionError("the last attempt returns or raises")


def _obstacle(root: str) -> OSError | None:
    """Return the error that the library does not name if a file stands in the place of a table's directory."""
    in_the_way = is_local(root) and os.path.lexists(root) and not Path(root).is_dir()
    return OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) if in_the_way else None


def _reach(root: Path) -> None:
    """Raise StoreError if nobody can tell whether there is a table."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            (root / "_delta_log").stat()
    except OSError as error:
        raise StoreError(f"{root}: {error.strerror}") from error


def open_table(
    root: str, options: dict[str, str], check: Callable[[DeltaTable], None] = check_writable
) -> DeltaTable:
    """Return the table at its newest version if it passes `check`. Raise StoreError."""
    table = open_or_none(root, options)
    if table is None:
        if is_local(root):
            _reach(Path(root))
            for place in (Path(root).parent, Path(root)):
                if place.exists() and not place.is_dir():
                    raise StoreError(
                        f"{place}: is a file; a store is a directory; name one by --store"
                    )
        raise StoreError(f"{root}: there is no table; a collector that uses this store makes it")
    check(table)
    return table


def create(root: str, options: dict[str, str], config: StoreConfig) -> DeltaTable:
    """Make the table, or open it if another collector made it first."""
    return DeltaTable.create(
        root,
        SCHEMA,
        mode="ignore",
        partition_by=["day"],
        description=DESCRIPTION,
        configuration=properties(config, local=is_local(root)),
        storage_options=options,
        post_commithook_properties=NO_HOOKS,
        raise_if_key_not_exists=False,
    )


_EPOCH = date(1970, 1, 1)


class DataFile(NamedTuple):
    """A Parquet file; `day` counts from 1970-01-01, `path` is relative to the table."""

    path: str
    day: int
    size: int
    rows: int

    @classmethod
    def of(cls, add: Add) -> Self:
        """Return the file that a log entry adds; `rows` is 0 where the entry does not say."""
        day = date.fromisoformat(add.partition_values["day"] or "")
        return cls(add.path, (day - _EPOCH).days, add.size, row_count(add) or 0)


class TableSnapshot:
    """One version of the table in a store."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    @classmethod
    def open(cls, path: str, *, options: dict[str, str]) -> Self:
        """Open the newest version in the store `path`, a directory or URL. Raise StoreError if it cannot be read."""
        return cls(open_table(table_root(path), options, check_readable))

    def version(self) -> int:
        return self._table.version()

    def refresh(self) -> bool:
        """Advance to the newest version; return whether it is a newer one. Raise StoreError."""
        before = self._table.version()
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise refusal(error, self._table.table_uri, "read the table") from error
        return self._table.version() != before

    def file_uris(self) -> list[str]:
        """Return the Parquet files of this version: absolute paths, or URLs.

        The files lack the column `day`; their paths have it (`day=2025-01-31/`)."""
        return self._table.file_uris()

    def files(self) -> list[DataFile]:
        return data_files(self._table)


def data_files(table: DeltaTable) -> list[DataFile]:
    """Return all files of the version that `table` stands at, in the order of their days."""
    actions = table.get_add_actions(flatten=True)
    columns = ("path", "partition.day", "size_bytes", "num_records")
    rows = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
    files = [
        DataFile(path, (day - _EPOCH).days, size, count or 0) for path, day, size, count in rows
    ]
    return sorted(files, key=lambda file: file.day)


def same_values(table: DeltaTable, columns: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return for each file the columns that have one value in all of its rows, by the log's statistics."""
    actions = table.get_add_actions(flatten=True)
    found: dict[str, dict[str, str]] = {path: {} for path in actions.column("path").to_pylist()}
    for column in columns:
        low, high = f"min.{column}", f"max.{column}"
        if low in actions.schema.names and high in actions.schema.names:
            values = (actions.column(name).to_pylist() for name in ("path", low, high))
            for path, least, most in zip(*values, strict=True):
                if least is not None and least == most:
                    found[path][column] = least
    return found
