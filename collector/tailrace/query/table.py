"""Give DuckDB one version of the table at a time, and a newer one on request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from deltalake.exceptions import DeltaError

from tailrace.errors import StoreError
from tailrace.query.statistics import FileStatistics, Region
from tailrace.store.layout import TABLE_NAME, TableSnapshot, is_local, open_table, table_root
from tailrace.store.presence import directories, is_held
from tailrace.store.refusal import line
from tailrace.store.schema import SCHEMA, check_readable

if TYPE_CHECKING:
    import pyarrow.dataset  # type: ignore[import-untyped]  # it has no types


class AddedFile(NamedTuple):
    """A Parquet file of rows of one day. `path` is relative to the table."""

    path: str
    day: date


class TableReader(TableSnapshot):
    """One version of a table. Methods raise StoreError, which names the table, if it is missing or cannot
    be read.

    Files of a version stay for at least an hour after a newer version has replaced them. A statement, or
    a process that was stopped, may take longer than that."""

    def __init__(self, store: str, options: dict[str, str], version: int | None = None) -> None:
        """Open the newest version, or `version` if it can still be read."""
        root = table_root(store)
        self.local = is_local(root)
        self.root = str(Path(root).absolute()) if self.local else root
        self.seen_at = self.root
        """The directory under which the database finds the files of a local table."""
        super().__init__(open_table(self.root, options, check_readable))
        if version is not None and version != self._table.version():
            self._go_to(version)
        self._statistics = self._table.version(), FileStatistics(self._table)

    def enter(self, room: str) -> None:
        """Make `room` the working directory, and link the files of a local table there."""
        os.chdir(room)
        if self.local:
            Path(TABLE_NAME).symlink_to(self.root)
            self.seen_at = TABLE_NAME

    @property
    def watched(self) -> bool:
        """Return whether a collector has the store now. A store behind a URL always counts as watched,
        because nothing there says otherwise, and so does one whose collectors cannot be looked for."""
        watchers = self.watchers
        return watchers is None or bool(watchers)

    @property
    def watchers(self) -> list[str] | None:
        """Return the names of the collectors that have the store now; None if nobody can tell, as behind a URL."""
        if not self.local:
            return None
        try:
            found = directories(Path(self.root).parent)
            return [name for name, directory in found.items() if is_held(directory)]
        except OSError:
            return None

    @property
    def statistics(self) -> FileStatistics:
        """Return what the log states of the files of this version. The log is read once for each version."""
        if self._statistics[0] != self._table.version():
            self._statistics = self._table.version(), FileStatistics(self._table)
        return self._statistics[1]

    def file_uris(self) -> list[str]:
        """Return the files of this version: paths, or URLs."""
        if not self.local:
            return super().file_uris()
        return [f"{self.seen_at}/{unquote(path)}" for path in self.statistics.paths]

    def picked(self, regions: Sequence[Region], *, timed: bool = False) -> list[str]:
        """Return the files of a local table that may have rows of these regions; at least one, if there are any, for
        the database to learn its columns. See `FileStatistics.numbers` for `timed`."""
        uris, numbers = self.file_uris(), self.statistics.numbers(regions, timed=timed)
        return [uris[number] for number in numbers] or uris[:1]

    def files_by_age(self) -> list[AddedFile]:
        """Return the snapshot's files, ordered by day and then by the time at which they were written."""
        actions = self._table.get_add_actions(flatten=True)
        columns = ("partition.day", "modification_time", "path")
        rows = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
        return [AddedFile(path, day) for day, _, path in sorted(rows)]

    def missing_files(self) -> list[str]:
        """Return the files of a local table that no longer exist."""
        if not self.local:
            return []
        return [file for file in self.file_uris() if not Path(file).exists()]

    def lacking(self) -> set[str]:
        """Return the columns that the table does not have yet because its schema is older."""
        return {field.name for field in SCHEMA.fields} - {
            field.name for field in self._table.schema().fields
        }

    def dataset(self) -> pyarrow.dataset.Dataset:
        """Return the snapshot as a dataset, for readers that cannot open its files themselves."""
        try:
            dataset = self._table.to_pyarrow_dataset()
        except (DeltaError, OSError) as error:
            raise StoreError(f"{self.root}: cannot be read: {line(error)}") from error
        if not self.lacking():
            return dataset
        import pyarrow  # noqa: PLC0415 - only an old table behind a URL needs it here

        return dataset.replace_schema(pyarrow.schema(SCHEMA))

    def _go_to(self, version: int) -> None:
        """Load a version, or stay at the newest if that version is gone."""
        try:
            self._table.load_as_version(version)
        except (DeltaError, OSError):
            self._table.update_incremental()
