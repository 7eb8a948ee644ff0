"""Read rows of some data files of a table: DuckDB reads those of a local table itself, others come through Arrow."""

from __future__ import annotations

from collections.abc import Collection

import duckdb
import pyarrow.dataset as ds  # type: ignore[import-untyped]  # it has no types

from tailrace.query.engine import literal
from tailrace.query.filters import quote
from tailrace.query.table import TableReader


class RowSource:
    """The data files of one version of a table."""

    def __init__(self, table: TableReader, database: duckdb.DuckDBPyConnection) -> None:
        self.paths = [file.path for file in table.files()]
        self._table = table
        self._database = database

    def of(self, paths: Collection[str], name: str) -> str:
        """Return the relation of these files' rows; the database may know it by `name`."""
        if self._table.local:
            files = ", ".join(pattern(f"{self._table.root}/{path}") for path in paths)
            return f"read_parquet([{files}], hive_partitioning = false)"
        dataset = self._table.dataset()
        fragments = [each for each in dataset.get_fragments() if _ends(each.path, paths)]
        of_files = ds.FileSystemDataset(
            fragments, dataset.schema, dataset.format, dataset.filesystem
        )
        self._database.register(name, of_files)
        return name


def pattern(path: str) -> str:
    """Return the SQL of a pattern that matches only this path."""
    return quote(literal(path))


def _ends(path: str, ends: Collection[str]) -> bool:
    return "/".join(path.rsplit("/", 2)[-2:]) in ends
