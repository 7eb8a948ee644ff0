"""The table as readers see it: one version, its files, and the way to the next version.

A reader changes nothing on disk and takes no lock. The files of a version stay on disk for at least
`layout.REMOVED_HOURS` after a newer version has replaced them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple, Self

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tailrace.store import layout
from tailrace.store.log import Add, row_count
from tailrace.store.refusal import refusal
from tailrace.store.schema import check_readable

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
        return cls(layout.open_table(layout.table_root(path), options, check_readable))

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
