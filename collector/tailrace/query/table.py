"""The table as DuckDB gets to see it: one version at a time, and a newer one when asked."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deltalake.exceptions import DeltaError

from tailrace.errors import StoreError
from tailrace.store.layout import TABLE_NAME, is_local, open_table, table_root
from tailrace.store.lock import is_held
from tailrace.store.refusal import line
from tailrace.store.schema import SCHEMA, check_readable
from tailrace.store.snapshot import TableSnapshot

if TYPE_CHECKING:
    import pyarrow.dataset  # type: ignore[import-untyped]  # it has no types


class AddedFile(NamedTuple):
    """A Parquet file of rows of one day; `path` is relative to the table."""

    path: str
    day: date


class TableReader(TableSnapshot):
    """Raises StoreError, naming the table, where there is none or where it cannot be read.

    Files of a version stay for at least an hour after a newer one has replaced them; a statement,
    or a process that was stopped, may take longer than that.
    """

    def __init__(self, store: str, options: dict[str, str], version: int | None = None) -> None:
        """Open the newest version, or `version` if that can still be had."""
        root = table_root(store)
        self.local = is_local(root)
        self.root = str(Path(root).absolute()) if self.local else root
        self.seen_at = self.root
        """Where the database finds the files of a local table."""
        super().__init__(open_table(self.root, options, check_readable))
        if version is not None and version != self._table.version():
            self._go_to(version)

    def enter(self, room: str) -> None:
        """Make `room` the working directory, and have the files of a local table seen there."""
        os.chdir(room)
        if self.local:
            Path(TABLE_NAME).symlink_to(self.root)
            self.seen_at = TABLE_NAME

    @property
    def watched(self) -> bool:
        """Whether a collector has the store now. One behind a URL is taken to have one, since nothing
        there says that it has none."""
        return not self.local or is_held(Path(self.root).parent)

    def file_uris(self) -> list[str]:
        """The files of this version: paths, or URLs."""
        uris = super().file_uris()
        if not self.local:
            return uris
        # The library percent-encodes the table's own path; in it are only DAY/FILE.
        return ["/".join([self.seen_at, *uri.rsplit("/", 2)[1:]]) for uri in uris]

    def files_by_age(self) -> list[AddedFile]:
        """The snapshot's files, by their days and, in these, by when they were written."""
        actions = self._table.get_add_actions(flatten=True)
        columns = ("partition.day", "modification_time", "path")
        rows = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
        return [AddedFile(path, day) for day, _, path in sorted(rows)]

    def missing_files(self) -> list[str]:
        """Those of a local table's files that are not there any more."""
        if not self.local:
            return []
        return [file for file in self.file_uris() if not Path(file).exists()]

    def lacking(self) -> set[str]:
        """Columns of ours that the table does not have yet, being of an older schema."""
        return set(SCHEMA.names) - {field.name for field in self._table.schema().fields}

    def dataset(self) -> pyarrow.dataset.Dataset:
        """The snapshot for readers that cannot open its files by themselves."""
        try:
            dataset = self._table.to_pyarrow_dataset()
        except (DeltaError, OSError) as error:
            raise StoreError(f"{self.root}: cannot be read: {line(error)}") from error
        if not self.lacking():
            return dataset
        import pyarrow  # noqa: PLC0415 - only an old table behind a URL needs it by itself

        return dataset.replace_schema(pyarrow.schema(SCHEMA))

    def _go_to(self, version: int) -> None:
        """Stay at the newest version where this one is gone."""
        try:
            self._table.load_as_version(version)
        except (DeltaError, OSError):
            self._table.update_incremental()
