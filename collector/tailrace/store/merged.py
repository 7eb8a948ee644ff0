"""Merge other tables into a local table, each in one commit and exactly once.

The commit records the id and the version of the merged table as a Delta transaction, which shows a repeated merge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from tailrace.clock import Clock
from tailrace.config.schema import StoreConfig
from tailrace.store import data_files, layout
from tailrace.store.data_files import NAMES, SCHEMA, DayRows
from tailrace.store.durable import LocalVersions
from tailrace.store.log import Add
from tailrace.store.refusal import refusal, refusing


class MergedTable:
    """A local table into which other tables are merged. Only the process that holds the store's lock may use it."""

    def __init__(self, root: Path, table: DeltaTable, clock: Clock) -> None:
        self._root = root
        self._table = table
        self._clock = clock
        self._versions = LocalVersions(root)
        self._versions.sync_newest()

    @classmethod
    def open(cls, store: Path, config: StoreConfig, clock: Clock) -> Self:
        """Open or create the table of a store. Raise StoreError, FullError or SyncError if that fails."""
        root = Path(layout.table_root(str(store)))
        with refusing(root, "open the table", DeltaError):
            return cls(root, layout.open_or_create(str(root), {}, config), clock)

    def merged(self, table_id: str) -> int | None:
        """Return the newest version of the table `table_id` that is merged into this table, or None if none is."""
        return self._table.transaction_version(_transaction(table_id))

    def add(self, rows: Iterable[DayRows], table_id: str, version: int) -> int:
        """Add the rows of one version of the table `table_id` in one durable commit. Return the number of rows. Raise
        FullError, StoreError or SyncError if that fails; no rows are added then."""
        added: list[Add] = []
        count = 0
        try:
            for day_rows in rows:
                added.append(data_files.write_rows(self._root, day_rows))
                count += day_rows.rows.num_rows
            merged = Transaction(_transaction(table_id), version, self._clock.wall_ns() // 10**6)
            data_files.commit(self._table, added, CommitProperties(app_transactions=[merged]))
        except (DeltaError, OSError) as error:
            data_files.discard(self._root, added)
            raise refusal(error, str(self._root), "merge") from error
        self._versions.sync(self._table.version())
        return count


def identity(store: Path) -> tuple[str, int]:
    """Return the id and the version of a store's table. Raise StoreError if the table cannot be read."""
    root = layout.table_root(str(store))
    with refusing(root, "read the table", DeltaError):
        table = layout.open_table(root, {})
        return str(table.metadata().id), table.version()


def by_day(rows: pa.Table) -> Iterable[DayRows]:
    """Split rows with a column `day` by day. Each part has the columns of a data file."""
    days = rows.column("day").combine_chunks().cast(pa.int32())
    for day in days.unique().to_pylist():
        chosen = rows.filter(pa.compute.equal(days, day))
        yield DayRows(
            day, pa.Table.from_arrays([_column(chosen, f) for f in SCHEMA], schema=SCHEMA)
        )


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    column = rows.column(field.name).combine_chunks()
    if field.type == NAMES:
        coded = column.cast(pa.string()).dictionary_encode()
        return pa.chunked_array([coded], NAMES)
    return pa.chunked_array([column.cast(field.type)], field.type)


def _transaction(table_id: str) -> str:
    return f"merged/{table_id}"
