"""Read what each version of the table added from the log's own files, local or behind a URL.

Merging files makes versions, too. Such a version says that it changes no data (`dataChange` false), so it
adds nothing here. See the Delta transaction log protocol, "Add File and Remove File".
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]  # it has no types

from tailrace.errors import StoreError
from tailrace.query.table import AddedFile
from tailrace.rows.schema import COLUMNS

PAGE_ROWS = 2000

Row = tuple[Any, ...]
"""A row as stored: the values of all COLUMNS, with `day` as a date."""


class Commit(NamedTuple):
    """One version: the files with new rows, and all paths that it adds and removes."""

    new: list[AddedFile]
    added: list[str]
    removed: list[str]


class _Add(msgspec.Struct, rename="camel"):
    path: str
    data_change: bool
    partition_values: dict[str, str]


class _Remove(msgspec.Struct):
    path: str


class _Action(msgspec.Struct):
    add: _Add | None = None
    remove: _Remove | None = None


_ACTION = msgspec.json.Decoder(_Action)
_STORED = [column.name for column in COLUMNS if column.name != "day"]


class Commits:
    """The log and the files of the table at `root`."""

    def __init__(self, root: str, options: dict[str, str]) -> None:
        self._root = root
        self._files = PyFileSystem(DeltaStorageHandler(root, options or None))

    def read(self, version: int) -> Commit | None:
        """Return what a version did, or None if the log does not have it yet, or no longer."""
        path = f"_delta_log/{version:020}.json"
        try:
            with self._files.open_input_file(path) as file:
                lines = file.read().splitlines()
            actions = [_ACTION.decode(line) for line in lines]
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"{self._root}/{path}: cannot be read: {error}") from error
        adds = [action.add for action in actions if action.add]
        return Commit(
            [
                AddedFile(unquote(add.path), date.fromisoformat(add.partition_values["day"]))
                for add in adds
                if add.data_change
            ],
            [unquote(add.path) for add in adds],
            [unquote(action.remove.path) for action in actions if action.remove],
        )

    def rows(self, file: AddedFile) -> Iterator[list[Row]]:
        """Yield the rows of a file, a page at a time. Raise FileNotFoundError when upkeep has deleted it."""
        try:
            with ParquetFile(self._files.open_input_file(file.path)) as parquet:
                for batch in parquet.iter_batches(PAGE_ROWS, columns=_STORED):
                    columns = (batch.column(name).to_pylist() for name in _STORED)
                    yield [(file.day, *row) for row in zip(*columns, strict=True)]
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise StoreError(f"{self._root}/{file.path}: cannot be read: {error}") from error
