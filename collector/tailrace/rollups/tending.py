"""Make the sidecars that the data files of a table lack, and remove those of files that are gone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from tailrace.query.table import TableReader
from tailrace.rollups.building import build
from tailrace.rollups.sidecar import LEAST_ROWS, Sidecars
from tailrace.store.refusal import line

logger = logging.getLogger(__name__)


def tend(
    store: str, options: dict[str, str], sidecars: Sidecars, least_rows: int = LEAST_ROWS
) -> Iterator[str]:
    """Make the sidecars that large files of the newest version lack; yield the path of each file that got one.

    First remove the sidecars of files that no longer exist. A file that cannot be read, or whose sidecar
    cannot be written, is left to the next time, and the log says so; so is one for which memory or disk do not
    suffice. Raise StoreError if the table cannot be read.
    """
    table = TableReader(store, options)
    files = table.files()
    sidecars.sweep(_existing(table) or [file.path for file in files])
    for file in sorted(files, key=lambda each: -each.rows):
        if file.rows < least_rows or sidecars.find(file.path) is not None:
            continue
        try:
            with _opened(table, file.path) as source:
                build(source, sidecars, file.path)
        except (
            OSError,
            pa.ArrowException,
            duckdb.IOException,
            duckdb.OutOfMemoryException,
        ) as error:
            logger.warning("%s: no roll-up was made: %s", file.path, line(error))
            continue
        yield file.path


def _existing(table: TableReader) -> list[str]:
    """Return the data files on a local disk, also those of versions that somebody may still read."""
    if not table.local:
        return []
    root = Path(table.root)
    return [str(path.relative_to(root)) for path in root.glob("day=*/*.parquet")]


def _opened(table: TableReader, path: str) -> BinaryIO:
    if table.local:
        return (Path(table.root) / path).open("rb")
    opened: BinaryIO = table.dataset().filesystem.open_input_file(path)
    return opened
