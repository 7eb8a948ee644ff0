"""Read sidecars page by page, and keep the pages that were used last.

A page is a row group of a sidecar's file as columns in memory. The footer of the file says which levels and edges, or which
lengths and times, a page has, so a window reads few of them. KeptPages of coarse levels serve any window, and stay.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow import parquet

from tailrace.rollups.pieces import NONE, coded, numbers
from tailrace.rollups.places import Ints, Longs

MEMORY = 48 * 2**20
"""Bytes of pages that are kept."""

_WORDS = ["label", "member", "kind"]
_NULLS = {"depth": NONE}


class SidecarPage(NamedTuple):
    """Rows of a sidecar. A column without any value is not there; `texts` are codes, with the dictionary of each."""

    rows: int
    columns: dict[str, Any]
    texts: dict[str, tuple[Ints, pa.Array]]
    bytes: int


class PagedFile:
    """A file of a sidecar: bounds of two columns in each of its pages, in which the pages are ordered."""

    def __init__(self, path: str, outer: str, inner: str) -> None:
        """Raise OSError and pyarrow's errors."""
        self.path = path
        file = parquet.ParquetFile(path)
        self.footer = file.metadata
        places = {name: number for number, name in enumerate(file.schema_arrow.names)}
        self.outer = self._bounds(places[outer])
        self.inner = self._bounds(places[inner])
        self.rows = np.array(
            [self.footer.row_group(each).num_rows for each in range(self.footer.num_row_groups)], np.int64
        )  # fmt: skip

    def _bounds(self, column: int) -> tuple[Longs, Longs]:
        of_pages = (self.footer.row_group(each).column(column) for each in range(self.footer.num_row_groups))  # fmt: skip
        found = [each.statistics for each in of_pages]
        return np.array([each.min for each in found], np.int64), np.array([each.max for each in found], np.int64)  # fmt: skip

    def read(self, number: int) -> SidecarPage:
        """Read a page. Raise OSError and pyarrow's errors."""
        words = [name for name in _WORDS if name in self.footer.schema.names]
        with parquet.ParquetFile(self.path, metadata=self.footer, read_dictionary=words) as file:
            table = file.read_row_group(number, use_threads=False)
        columns, texts = {}, {}
        for name in table.column_names:
            column = table.column(name)
            if column.null_count == table.num_rows:
                continue
            if name in words:
                texts[name] = coded(column)
            else:
                columns[name] = numbers(column, _NULLS.get(name, 0))
        size = sum(each.nbytes for each in columns.values())
        size += sum(codes.nbytes + dictionary.nbytes for codes, dictionary in texts.values())
        return SidecarPage(table.num_rows, columns, texts, size)


class KeptPages:
    """The pages that were read last, up to some memory."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._kept: OrderedDict[tuple[str, int], SidecarPage] = OrderedDict()
        self._bytes = 0

    def of(self, file: PagedFile, number: int) -> SidecarPage:
        """Return a page, from memory or from disk. Raise OSError and pyarrow's errors."""
        key = file.path, number
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        page = file.read(number)
        self._kept[key] = page
        self._bytes += page.bytes
        while self._bytes > self._memory and self._kept:
            self._bytes -= self._kept.popitem(last=False)[1].bytes
        return page

    def forget(self, path: str) -> None:
        """Forget the pages of a file."""
        for key in [key for key in self._kept if key[0] == path]:
            self._bytes -= self._kept.pop(key).bytes
