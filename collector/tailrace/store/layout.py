"""Define the table `events` on disk: its path, properties, encodings and data files.

The encodings of merged files, and of all files at a URL, were chosen by measurement: zstd level 1 with delta-packed
counters and times takes 0.40 CPU s for a million rows and 9.6 B for a row; the library's defaults take 0.92 CPU s and
29.6 B. A reader changes nothing on disk and takes no lock: the files of a version stay for `REMOVED_HOURS` after a
newer version has replaced them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError, TableNotFoundError

from tailrace.config.load import STORE_KEYS
from tailrace.config.schema import StoreConfig
from tailrace.errors import StoreError
from tailrace.filesystem import is_local
from tailrace.store import schema
from tailrace.store.durable import NO_HOOKS, sync_new
from tailrace.store.log import Add, Stats
from tailrace.store.refusal import is_broken_off, is_conflict, refusal, refusing

TABLE_NAME = "events"

MERGED_ROW_GROUP = 131_072
"""Maximum number of rows in a row group of a merged file. Smaller groups compress worse; queries rarely skip larger ones."""

LOG_RETENTION = {"local": "interval 15 minutes", "remote": "interval 1 hours"}
"""Time for which the log file of a version is kept after a later checkpoint replaces it, for a table in a directory
(`local`) and for a table at a URL (`remote`). A merge needs all log files since the version with which it began."""

REMOVED_HOURS = 1
"""Time (hours) for which a data file stays on disk for readers after its removal from the table."""

REMOVED_RETENTION = "interval 150 minutes"
"""Time for which the Delta log keeps the entry of a removed data file. A vacuum finds the file by this entry, up to an
hour after the end of `REMOVED_HOURS`."""

TRANSACTION_RETENTION = "interval 36500 days"
"""Time for which the Delta log keeps a collector's spool position after its last commit; in practice, no limit. Without
the position, the rows of the spool would be stored twice."""

STATED = (
    "source", "format", "session", "stream", "substream", "seq", "kind", "start", "end", "time", "wall",
)  # fmt: skip
"""Columns whose minimum and maximum the Delta log states for each file that a collector writes."""

STATISTICS = "delta.dataSkippingStatsColumns"
MERGED_STATED = ",".join(name for name in STATED if name != "wall")
"""Columns whose minimum and maximum the Delta log states for merged files, as a comma-separated list.

The timestamp `wall` is left out: the library truncates its maximum to milliseconds, so readers would skip files with
matching rows."""

OPEN_TRIES = 5

_PACKED = ("seq", "id", "parent", "start", "end", "time", "wall", "missing", "offset", "end_offset")


def table_root(store: str) -> str:
    """Return the directory or URL of the table in a store."""
    return f"{store.removeprefix('file://').rstrip('/')}/{TABLE_NAME}"


_EPOCH = date(1970, 1, 1)


def date_of(day: int) -> date:
    """Return the date of a day, given as the number of days since 1970-01-01."""
    return _EPOCH + timedelta(days=day)


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
    """Return the table at its newest version, or None if there is no table. Raise StoreError if it cannot be opened.
    Retry if log files were removed during the read, or if an object store sent an incomplete response."""
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
    """Return a "not a directory" error if a file is where the table's directory should be, otherwise None."""
    in_the_way = is_local(root) and os.path.lexists(root) and not Path(root).is_dir()
    return OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) if in_the_way else None


def open_table(
    root: str, options: dict[str, str], check: Callable[[DeltaTable], None] = schema.check_writable
) -> DeltaTable:
    """Return the table at its newest version. Raise StoreError if it cannot be opened, or if `check` rejects it."""
    if (table := open_or_none(root, options)) is not None:
        check(table)
        return table
    if is_local(root):
        try:
            with suppress(FileNotFoundError, NotADirectoryError):
                (Path(root) / "_delta_log").stat()
        except OSError as error:  # for example, this user lacks the permission
            raise StoreError(
                f"{root}: cannot be looked up: {error.strerror}; name another store by {STORE_KEYS}"
            ) from error
        for place in (Path(root).parent, Path(root)):
            if place.exists() and not place.is_dir():
                raise StoreError(f"{place}: is a file; a store is a directory; name one by --store")
    raise StoreError(
        f"{root}: not a Tailrace store: check the path (a collector creates its store when it starts)"
    )


def open_or_create(root: str, options: dict[str, str], config: StoreConfig) -> DeltaTable:
    """Open the table, or create it, durably on a local disk. Raise StoreError if this version may not write to it."""
    table = open_or_none(root, options)
    if table is None:
        table = create(root, options, config)
        if is_local(root):
            sync_new(Path(root))
    schema.check_writable(table)
    return table


def create(root: str, options: dict[str, str], config: StoreConfig) -> DeltaTable:
    """Create the table. If another collector has created it meanwhile, open that table."""
    return DeltaTable.create(
        root,
        schema.SCHEMA,
        mode="ignore",
        partition_by=["day"],
        description=schema.DESCRIPTION,
        configuration={
            schema.VERSION_PROPERTY: str(schema.SCHEMA_VERSION),
            "delta.checkpointInterval": "1000000000",
            "delta.enableExpiredLogCleanup": "false",
            STATISTICS: MERGED_STATED,
            "delta.logRetentionDuration": LOG_RETENTION["local" if is_local(root) else "remote"],
            "delta.deletedFileRetentionDuration": REMOVED_RETENTION,
            "delta.setTransactionRetentionDuration": TRANSACTION_RETENTION,
            "delta.targetFileSize": str(int(config.compact_size)),
        },
        storage_options=options,
        post_commithook_properties=NO_HOOKS,
        raise_if_key_not_exists=False,
    )


class DataFile(NamedTuple):
    """A Parquet file of the table. `day` counts days from 1970-01-01; `path` is relative to the table."""

    path: str
    day: int
    size: int
    rows: int

    @classmethod
    def of(cls, add: Add) -> Self:
        """Return the data file that a log entry adds. `rows` is 0 if the entry does not state the number of rows."""
        day = date.fromisoformat(add.partition_values["day"] or "")
        rows = msgspec.json.decode(add.stats or b"{}", type=Stats).num_records or 0
        return cls(add.path, (day - _EPOCH).days, add.size, rows)


class TableSnapshot:
    """One version of the table in a store, for reading."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    @classmethod
    def open(cls, path: str, *, options: dict[str, str]) -> Self:
        """Open the newest version of the table in a store. Raise StoreError if the table is not readable."""
        return cls(open_table(table_root(path), options, schema.check_readable))

    def version(self) -> int:
        return self._table.version()

    def refresh(self) -> bool:
        """Move to the newest version. Return whether the version has changed. Raise StoreError if it cannot be read."""
        before = self._table.version()
        with refusing(self._table.table_uri, "read the table", DeltaError):
            self._table.update_incremental()
        return self._table.version() != before

    def file_uris(self) -> list[str]:
        """Return the absolute paths or URLs of the Parquet files of this version."""
        return self._table.file_uris()

    def files(self) -> list[DataFile]:
        return data_files(self._table)


def data_files(table: DeltaTable) -> list[DataFile]:
    """Return all data files of the version at which `table` is open, sorted by day."""
    actions = table.get_add_actions(flatten=True)
    columns = ("path", "partition.day", "size_bytes", "num_records")
    rows = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
    files = (
        DataFile(path, (day - _EPOCH).days, size, count or 0) for path, day, size, count in rows
    )
    return sorted(files, key=lambda file: file.day)


def same_values(table: DeltaTable, columns: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return, for each data file, the columns that have one value in all rows, and this value, as far as the file's
    statistics in the Delta log show it."""
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
