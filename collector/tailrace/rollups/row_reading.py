"""Read rows of data files as pieces of a frame, batch by batch, where there are no sums of them."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.dataset as ds  # type: ignore[import-untyped]  # it has no types

from tailrace.query.engine import literal
from tailrace.query.filters import quote
from tailrace.query.table import TableReader
from tailrace.rollups import row_blocks
from tailrace.rollups.events import EVENTS
from tailrace.rollups.pieces import FrameTexts, Pieces
from tailrace.rollups.row_blocks import (
    CodedRows,
    KeptBlocks,
    LaneName,
    Ranges,
    RowBlock,
    Since,
    by_lane,
    margin_of,
)


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


BATCH = 131_072

_NEVER = -(2**63) + 1

_SQL = """
SELECT l.number, e.what, e.timed, e.depth::INTEGER AS depth, e.edge, e.spot, e.start, e."count", e.busy, e.longest,
  e.label, e.member, e."offset", e.kind, e.least, e.most, e.latest
FROM ({events}) AS e
JOIN near AS l ON l.source = e.source AND l.session = e.session AND l.stream = e.stream
  AND l.substream IS NOT DISTINCT FROM e.substream
WHERE CASE WHEN e.timed THEN e.spot >= l.since AND e.spot < l.before
  ELSE e.spot >= l.tick_since AND e.spot < l.tick_before END
"""

_SCHEMA = pa.schema(
    [
        ("number", pa.int32()), ("source", pa.string()), ("session", pa.string()), ("stream", pa.string()),
        ("substream", pa.int64()), ("since", pa.int64()), ("before", pa.int64()), ("tick_since", pa.int64()),
        ("tick_before", pa.int64()),
    ]
)  # fmt: skip


class RowReader:
    """Reads rows for one frame. `lanes` are the names of its lanes."""

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        rows: RowSource,
        lanes: Sequence[LaneName],
        texts: FrameTexts,
        kept: KeptBlocks,
    ) -> None:
        self._database = database
        self._rows = rows
        self._lanes = lanes
        self._texts = texts
        self._kept = kept

    def read(
        self, paths: Collection[str], near: Collection[Since], about: float
    ) -> Iterator[Pieces]:
        """Yield the rows of some files in some lanes, from memory where they were read before. There are about so
        many in these ranges."""
        if not paths or not near:
            return
        asked = by_lane(near, self._lanes)
        margin = margin_of(about)
        block = self._block(paths, asked, margin) if margin else None
        if block is not None:
            yield block.within(asked).numbered(self._texts)
            return
        for rows in self._read(paths, near):
            yield CodedRows.of(rows).numbered(self._texts)

    def _block(self, paths: Collection[str], asked: Ranges, margin: int) -> RowBlock | None:
        """Return a block with these rows, from memory or read now; None if too many rows lie beside them."""
        block = self._kept.with_all(paths, asked)
        if block is not None:
            return block
        wide = {name: each.widened(margin) for name, each in asked.items()}
        tables, rows = [], 0
        with closing(self._read(paths, wide.values())) as batches:
            for table in batches:
                tables.append(table)
                rows += table.num_rows
                if rows > row_blocks.ROWS_KEPT:
                    return None
        block = RowBlock(paths, wide, CodedRows.of(pa.concat_tables(tables)))
        self._kept.keep(block)
        return block

    def _read(self, paths: Collection[str], near: Collection[Since]) -> Generator[pa.Table]:
        """Yield the rows in batches. The first batch is empty, so that there is always one."""
        self._database.register("near", self._near(near))
        events = EVENTS.format(rows=self._rows.of(paths, "near_rows"), condition=_times(near))
        try:
            # Whoever stops early leaves the answer open, which holds up the next question.
            with self._database.sql(_SQL.format(events=events)).to_arrow_reader(BATCH) as reader:
                yield reader.schema.empty_table()
                for batch in reader:
                    yield pa.Table.from_batches([batch])
        finally:
            self._database.unregister("near")

    def _near(self, near: Collection[Since]) -> pa.Table:
        rows: dict[int, list[object]] = {}
        for each in near:
            names = self._lanes[each.number]
            row = rows.setdefault(each.number, [each.number, *names, 0, _NEVER, 0, _NEVER])
            at = 5 if each.timed else 7
            row[at : at + 2] = each.since, each.before
        columns = zip(*rows.values(), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]  # fmt: skip
        return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def _times(near: Collection[Since]) -> str:
    """Return the condition on the rows that are read, by the times that the lanes say they have."""
    if any(not each.timed for each in near):
        return "true"
    since, before = min(each.since for each in near), max(each.before for each in near)
    return f"time >= {max(since, 0)} AND time < {before}"
