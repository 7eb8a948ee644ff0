"""Read rows of data files as pieces of a frame, batch by batch, where there are no sums of them.

Rows around the last windows stay in memory, so that a window beside or inside of these reads nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.dataset as ds  # type: ignore[import-untyped]  # it has no types

from tailrace.query.engine import literal
from tailrace.query.filters import quote
from tailrace.query.table import TableReader
from tailrace.rollups.events import EVENTS
from tailrace.rollups.pieces import NONE, FrameTexts, Longs, Pieces, coded, numbers

ROWS_KEPT = 200_000
"""The most rows that are kept, in one block or in several. A row takes about 120 bytes."""

BLOCK_ROWS = 60_000
"""About how many rows a block has at most. To read more at once would take longer than it saves."""

_MARGINS = (8, 4, 2, 1)
"""How much more than a window is read before and behind it, in lengths of the window: the first margin with which a
block has at most about `BLOCK_ROWS` rows."""

_BOUND = 2**62

StoredLane = tuple[str, str, str, int | None]


class Since(NamedTuple):
    """Since when, and before when, rows of a lane are read, in times or in ticks. `number` is the lane's in the frame."""

    number: int
    timed: bool
    since: int
    before: int

    def widened(self, margin: int) -> Since:
        """Return the range with `margin` times its length more on both sides."""
        more = margin * (self.before - self.since)
        since, before = max(self.since - more, -_BOUND), min(self.before + more, _BOUND)
        return self._replace(since=min(since, self.since), before=max(before, self.before))


Ranges = Mapping[tuple[StoredLane, bool], Since]
"""Ranges of times (True) and of ticks, by lane."""


class CodedRows(NamedTuple):
    """Rows whose texts are codes of dictionaries, `NONE` for those that are not there."""

    pieces: Pieces
    labels: pa.Array
    members: pa.Array
    kinds: pa.Array

    @classmethod
    def of(cls, rows: pa.Table) -> CodedRows:
        """Return rows as the database answers with them."""
        column = {name: rows.column(name) for name in rows.column_names}
        label, member, kind = (coded(column[name]) for name in ("label", "member", "kind"))
        pieces = Pieces(
            number=numbers(column["number"]),
            what=numbers(column["what"]),
            timed=numbers(column["timed"]),
            depth=numbers(column["depth"], NONE),
            edge=numbers(column["edge"]),
            spot=numbers(column["spot"]),
            start=numbers(column["start"]),
            events=numbers(column["count"]),
            busy=numbers(column["busy"]),
            longest=numbers(column["longest"]),
            label=label[0].astype(np.int64),
            member=member[0].astype(np.int64),
            offset=numbers(column["offset"]),
            kind=kind[0].astype(np.int64),
            least=numbers(column["least"]),
            most=numbers(column["most"]),
            latest=numbers(column["latest"]),
            open=np.zeros(rows.num_rows, np.bool_),
        )
        return cls(pieces, label[1], member[1], kind[1])

    def numbered(self, texts: FrameTexts) -> Pieces:
        """Return the rows with the numbers that their texts have in a frame."""
        pieces = self.pieces
        return pieces._replace(
            label=texts.numbered(pieces.label, self.labels),
            member=texts.numbered(pieces.member, self.members),
            kind=texts.numbered(pieces.kind, self.kinds),
        )


class RowBlock:
    """Rows of some files, in a range of times or ticks for each lane. A row has the number of its lane in the frame for
    which the block was read."""

    def __init__(
        self,
        paths: Collection[str],
        ranges: Ranges,
        rows: CodedRows,
    ) -> None:
        self.rows = rows
        self._paths = frozenset(paths)
        self._ranges = ranges

    def has(self, paths: Collection[str], asked: Ranges) -> bool:
        """Return whether all rows in these ranges of these files are here."""
        if self._paths != frozenset(paths):
            return False
        found = ((self._ranges.get(name), each) for name, each in asked.items())
        return all(
            known is not None and known.since <= each.since and each.before <= known.before
            for known, each in found
        )

    def within(self, asked: Ranges) -> CodedRows:
        """Return the rows in these ranges, with the numbers that their lanes have there."""
        pieces = self.rows.pieces
        size = 2 * (1 + max((each.number for each in self._ranges.values()), default=0))
        number, since, before = np.full(size, NONE, np.int32), *np.zeros((2, size), np.int64)
        for name, each in asked.items():
            at = 2 * self._ranges[name].number + each.timed
            number[at], since[at], before[at] = each.number, each.since, each.before
        of: Longs = 2 * pieces.number.astype(np.int64) + pieces.timed
        chosen = np.flatnonzero((pieces.spot >= since[of]) & (pieces.spot < before[of]))
        return self.rows._replace(pieces=pieces.take(chosen)._replace(number=number[of[chosen]]))


class KeptBlocks:
    """The blocks that were used last."""

    def __init__(self) -> None:
        self._blocks: list[RowBlock] = []

    def with_all(self, paths: Collection[str], asked: Ranges) -> RowBlock | None:
        """Return a block with all rows in these ranges, None if there is none."""
        for place, block in enumerate(self._blocks):
            if block.has(paths, asked):
                self._blocks.append(self._blocks.pop(place))
                return block
        return None

    def keep(self, block: RowBlock) -> None:
        """Keep a block, and forget those that were not used for longest."""
        self._blocks.append(block)
        while sum(each.rows.pieces.rows for each in self._blocks) > ROWS_KEPT:
            del self._blocks[0]


def margin_of(rows: float) -> int:
    """Return the margin for a window that has about so many rows; 0 if it has too many."""
    return next((each for each in _MARGINS if rows * (1 + 2 * each) <= BLOCK_ROWS), 0)


def by_lane(near: Iterable[Since], lanes: Sequence[StoredLane]) -> Ranges:
    """Return ranges by the names of their lanes."""
    return {(lanes[each.number], each.timed): each for each in near}


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
        lanes: Sequence[StoredLane],
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
                if rows > ROWS_KEPT:
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
    """Return the condition on the rows that are read, by the ranges of their lanes."""
    if any(not each.timed for each in near):
        return "true"
    since, before = min(each.since for each in near), max(each.before for each in near)
    return f"time >= {max(since, 0)} AND time < {before}"
