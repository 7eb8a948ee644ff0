"""Read rows of data files to draw a window, where there are no usable precomputed sums. The rows around recently
read windows are cached, and a sample of all rows (the overview) for the first windows."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.dataset as ds  # type: ignore[import-untyped]  # it has no types

from tailrace.query.engine import literal
from tailrace.query.filters import quote
from tailrace.query.table import TableReader
from tailrace.rollups.events import EVENTS
from tailrace.rollups.pieces import NONE, FrameTexts, Ints, Longs, Pieces, Truths, coded, numbers

ROWS_KEPT = 200_000
"""Maximum size of the cached blocks in rows, beside the overview. A row takes 120 bytes of memory at most."""

RANGE_ROWS = 5
"""Size in rows of the range of one lane in a cached block. A block of few rows consists mainly of its ranges."""

BLOCK_ROWS = 60_000
"""Maximum estimated number of rows of a window and its margins. Reading more takes longer than the margins save in
later reads."""

MOST = 0.6
"""If a larger fraction of the rows is needed, their stored times are not compared with the window when they are read.
The comparison would take longer than the other rows."""

_MARGINS = (8, 4, 2, 1)
"""Margins that may be read before and after a window, in lengths of the window."""

_BOUND = 2**62
FARTHEST = 2**63 - 1

SAMPLE_ROWS = 100_000
"""Approximate number of rows to read for one window. If the window has more, only a sample of them is read. The sample
should fit into a block (`BLOCK_ROWS`), because the range bar and the lanes show the same sample."""

OVERVIEW = 4
"""Maximum number of rows in the overview, in multiples of `SAMPLE_ROWS`. A window of a quarter of the lanes needs a
sample that is four times as large as one of all lanes."""

_DRAWS = 2**31
"""The rows of a sample are chosen by a hash of the row. A cached row has this hash modulo `_DRAWS`, its `draw`."""

StoredLane = tuple[str, str, str, int | None]


class Since(NamedTuple):
    """A range of rows of one lane (stream or substream), from `since` (inclusive) to `before` (exclusive): stored
    times if `timed` is true, otherwise ticks. `number` is the index of the lane in the drawing."""

    number: int
    timed: bool
    since: int
    before: int

    def widened(self, margin: int) -> Since:
        """Return this range, extended on both sides by `margin` times its length."""
        more = margin * (self.before - self.since)
        since, before = max(self.since - more, -_BOUND), min(self.before + more, _BOUND)
        return self._replace(since=min(since, self.since), before=max(before, self.before))


class RowSample(NamedTuple):
    """The share of the rows that is read for a window. One in `inside` is read of the rows that begin in the window,
    and one in `before` is read of the rows that begin earlier. Both numbers are powers of two.

    `opens` is the stored time (ns) at which the window begins, or None if both shares are equal."""

    inside: int = 1
    before: int = 1
    opens: int | None = None

    @classmethod
    def of(cls, inside: float, all_rows: float, opens: int | None) -> RowSample:
        """Return a sample of about `SAMPLE_ROWS` rows, given estimates of the rows in the window and of all rows."""
        before = _one_in(all_rows)
        one_in = before if opens is None else _one_in(inside)
        return cls(one_in, before, None if one_in == before else opens)

    @property
    def sql(self) -> str:
        """SQL condition that selects the rows. Rows of one record are selected together. A larger sample has all rows
        of a smaller one, so that a picture only gains rows when the user zooms in."""
        chosen = 'hash("offset", start) % {} = 0'
        if self.opens is None:
            return "true" if self.inside == 1 else chosen.format(self.inside)
        earlier = chosen.format(self.before)
        return f"{chosen.format(self.inside)} AND (time >= {self.opens} OR {earlier})"

    def chosen(self, draws: Ints, spots: Longs) -> Truths:
        """Return which rows are in the sample, as the SQL condition does, given their draws and stored times."""
        found: Truths = draws % self.inside == 0
        if self.opens is not None:
            found &= (spots >= self.opens) | (draws % self.before == 0)
        return found

    def weighed(self, pieces: Pieces) -> Pieces:
        """Return sampled rows, each with a weight: the number of rows for which it stands."""
        if self.before == 1:
            return pieces
        early = False if self.opens is None else pieces.spot < self.opens
        weight = np.where(early, self.before, self.inside)
        busy = np.minimum(pieces.busy, FARTHEST // weight) * weight
        return pieces._replace(events=pieces.events * weight, busy=busy)


WHOLE = RowSample()


def _one_in(rows: float) -> int:
    found = 1
    while rows > found * SAMPLE_ROWS:
        found *= 2
    return found


Ranges = Mapping[tuple[StoredLane, bool], Since]
"""Ranges of rows by lane (a stream or substream), and by whether they are ranges of stored times."""


_IN_STREAMS = "(source, session, stream) IN (SELECT (source, session, stream) FROM near)"
"""SQL condition that leaves out most rows of other lanes, before the rows' labels are computed."""


class RowQuery(NamedTuple):
    """The rows that a window needs from some data files: a sample of those in the ranges `ranges`.

    `rows` is an estimate of the number of rows in the ranges, before sampling, and `share` the fraction of the rows of
    the lanes that are in the ranges."""

    paths: Collection[str]
    ranges: Ranges
    sample: RowSample
    rows: float
    share: float = 1.0

    @property
    def sql(self) -> str:
        """SQL condition that selects the rows, and maybe rows outside of the ranges."""
        near, times = self.ranges.values(), "true"
        if self.share < MOST and all(each.timed for each in near):
            # All rows have a stored time in this range, so that DuckDB can skip parts of files.
            since, before = min(each.since for each in near), max(each.before for each in near)
            times = f"time >= {max(since, 0)} AND time < {before}"
        return f"{times} AND {self.sample.sql} AND {_IN_STREAMS}"


class CodedRows(NamedTuple):
    """Rows in which each text column holds codes of an Arrow dictionary (`texts`), and `NONE` for missing texts. `file`
    has the number of each row's data file, and `draw` the number by which the row is chosen for samples."""

    pieces: Pieces
    texts: dict[str, pa.Array]
    file: Ints
    draw: Ints

    @classmethod
    def of(cls, rows: pa.Table) -> CodedRows:
        """Return the rows of a DuckDB result, with codes for texts."""
        columns, texts = {}, {}
        for name in rows.column_names:
            if name in {"label", "member", "kind"}:
                columns[name], texts[name] = coded(rows.column(name))
            else:
                columns[name] = numbers(rows.column(name), NONE if name == "depth" else 0)
        file, draw = columns.pop("file"), columns.pop("draw")
        return cls(Pieces.of(rows.num_rows, **columns), texts, file, draw)

    def take(self, chosen: Longs) -> CodedRows:
        return CodedRows(self.pieces.take(chosen), self.texts, self.file[chosen], self.draw[chosen])

    def numbered(self, texts: FrameTexts) -> Pieces:
        """Return the rows with the numbers that `texts` assigns to their texts, in place of the codes."""
        columns: dict[str, Any] = {
            name: texts.numbered(getattr(self.pieces, name), dictionary)
            for name, dictionary in self.texts.items()
        }
        return self.pieces._replace(**columns)


class RowBlock(NamedTuple):
    """Cached rows of some data files: for each lane (a stream or substream), one row in `one_in` of the rows in one
    range of times or ticks. `paths` has the number of each file."""

    paths: dict[str, int]
    ranges: Ranges
    one_in: int
    rows: CodedRows

    @property
    def size(self) -> int:
        return self.rows.pieces.rows + RANGE_ROWS * (len(self.ranges) + len(self.paths))

    def serves(self, asked: RowQuery) -> bool:
        """Return whether the block has the asked rows of its files."""
        found = ((self.ranges.get(name), each) for name, each in asked.ranges.items())
        return self.one_in <= asked.sample.inside and all(
            known is not None and known.since <= each.since and each.before <= known.before
            for known, each in found
        )

    def of(self, paths: Collection[str]) -> RowBlock:
        """Return the block without the rows of files that are not in `paths`."""
        left = {path: number for path, number in self.paths.items() if path in paths}
        chosen = np.flatnonzero(np.isin(self.rows.file, list(left.values())))
        return self._replace(paths=left, rows=self.rows.take(chosen))

    def within(self, asked: RowQuery) -> CodedRows:
        """Return the asked rows, with the lane numbers of the asked ranges. The block must have them."""
        pieces, _, file, draw = self.rows
        size = 2 * (1 + max((each.number for each in self.ranges.values()), default=0))
        number, since, before = np.full(size, NONE, np.int32), *np.zeros((2, size), np.int64)
        for name, each in asked.ranges.items():
            at = 2 * self.ranges[name].number + each.timed
            number[at], since[at], before[at] = each.number, each.since, each.before
        of: Longs = 2 * pieces.number.astype(np.int64) + pieces.timed
        inside = (pieces.spot >= since[of]) & (pieces.spot < before[of])
        if len(asked.paths) < len(self.paths):
            inside &= np.isin(file, [self.paths[path] for path in asked.paths])
        chosen = np.flatnonzero(inside & asked.sample.chosen(draw, pieces.spot))
        found = self.rows.take(chosen)
        return found._replace(pieces=found.pieces._replace(number=number[of[chosen]]))


class KeptBlocks:
    """The blocks of rows that were used last, with a total size of at most `ROWS_KEPT` rows, and the overview."""

    def __init__(self) -> None:
        self.overview: RowBlock | None = None
        self._blocks: list[RowBlock] = []

    def serving(self, asked: RowQuery) -> list[tuple[RowBlock, set[str]]]:
        """Return the cached blocks that have the asked rows of some of the files, each with those of these files that no
        earlier block has."""
        left, found = set(asked.paths), []
        overview = [] if self.overview is None else [self.overview]
        for block in [*self._blocks[::-1], *overview]:
            if (shared := left & block.paths.keys()) and block.serves(asked):
                found.append((block, shared))
                left -= shared
        used = [block for block, _ in found if block is not self.overview]
        self._blocks = [
            each for each in self._blocks if not any(each is its for its in used)
        ] + used
        return found

    def follow(self, files: Collection[str], plain: Collection[str]) -> None:
        """Forget the blocks that have rows of none of `files`, the table's files. Forget the overview's rows of files
        that are not in `plain`, the files without sums."""
        if self.overview is not None and not self.overview.paths.keys() <= set(plain):
            self.overview = self.overview.of(plain)
        self._blocks = [each for each in self._blocks if not each.paths.keys().isdisjoint(files)]

    def keep(self, block: RowBlock) -> None:
        self._blocks.append(block)
        while sum(each.size for each in self._blocks) > ROWS_KEPT:
            del self._blocks[0]


class RowSource:
    """Makes the rows in the data files of one version of a table available to DuckDB."""

    def __init__(self, table: TableReader, database: duckdb.DuckDBPyConnection) -> None:
        self.paths = [file.path for file in table.files()]
        self.database = database
        self._root = table.root if table.local else None
        if not table.local:
            # Read the list of files now, because the table may move to a newer version later.
            self._dataset = table.dataset()
            fragments = self._dataset.get_fragments()
            self._fragments = {"/".join(each.path.rsplit("/", 2)[-2:]): each for each in fragments}

    def of(self, paths: Sequence[str], name: str) -> str:
        """Return SQL for the rows of the given data files. Its column `file` is the index of a row's file in `paths`.
        For a table at a URL, register the files in DuckDB as the relation `name`."""
        if self._root is not None:
            # Each path is a glob pattern that matches exactly this file.
            files = ", ".join(quote(literal(f"{self._root}/{path}")) for path in paths)
            return f"(SELECT *, file_index AS file FROM read_parquet([{files}], hive_partitioning = false))"  # noqa: S608 - our own words
        dataset, chosen = self._dataset, []
        for number, path in enumerate(paths):
            plain = self._fragments[path]
            # Arrow fills a column with the value to which the expression limits it.
            limits = plain.partition_expression & (ds.field("file") == number)
            chosen.append(dataset.format.make_fragment(plain.path, dataset.filesystem, limits))
        schema = dataset.schema.append(pa.field("file", pa.int64()))
        of_files = ds.FileSystemDataset(chosen, schema, dataset.format, dataset.filesystem)
        self.database.register(name, of_files)
        return name


BATCH = 131_072

_NEVER = -(2**63) + 1

_SQL = """
SELECT l.number, e.what, e.timed, e.depth::INTEGER AS depth, e.edge, e.spot, e.start, e."count" AS events, e.busy, e.longest,
  e.label, e.member, e."offset", e.kind, e.least, e.most, e.latest, e.file::INTEGER AS file,
  (hash(e."offset", e.start) % {draws})::INTEGER AS draw
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
    """Reads rows of data files for the drawing of one window. `lanes` are the keys of the drawn lanes."""

    def __init__(
        self, rows: RowSource, lanes: Sequence[StoredLane], texts: FrameTexts, kept: KeptBlocks
    ) -> None:
        self._rows = rows
        self._lanes = lanes
        self._texts = texts
        self._kept = kept

    def read(self, asked: RowQuery) -> Iterator[Pieces]:
        """Yield the asked rows, from cached blocks if possible."""
        left = set(asked.paths)
        for block, paths in self._kept.serving(asked):
            yield self._pieces(block.within(asked._replace(paths=paths)), asked.sample)
            left -= paths
        if not left or not asked.ranges:
            return
        asked = asked._replace(paths=sorted(left))
        if (wide := self._with_margins(asked)) is not None:
            new = self._block(wide, ROWS_KEPT)
            if new is not None:
                self._kept.keep(new)
                yield self._pieces(new.within(asked), asked.sample)
                return
        for rows in self._read(asked):
            yield self._pieces(CodedRows.of(rows), asked.sample)

    def look_over(self, paths: Collection[str], rows: float) -> None:
        """Read a sample of all rows of the lanes in some data files, and keep it as the overview. Do nothing if there
        are so few rows that no window needs a sample."""
        if rows <= SAMPLE_ROWS:
            return
        one_in = _one_in(rows / OVERVIEW)
        everything = {
            (lane, timed): Since(number, timed, -FARTHEST, FARTHEST)
            for number, lane in enumerate(self._lanes)
            for timed in (False, True)
        }
        query = RowQuery(sorted(paths), everything, RowSample(one_in, one_in), rows)
        self._kept.overview = self._block(query, 2 * OVERVIEW * SAMPLE_ROWS)

    def _pieces(self, rows: CodedRows, sample: RowSample) -> Pieces:
        return sample.weighed(rows.numbered(self._texts))

    def _with_margins(self, asked: RowQuery) -> RowQuery | None:
        """Return the query for a block that is worth caching, or None."""
        if asked.sample != WHOLE:
            return asked if asked.sample.opens is None else None
        for margin in _MARGINS:
            if asked.rows * (1 + 2 * margin) <= BLOCK_ROWS:
                wide = {name: each.widened(margin) for name, each in asked.ranges.items()}
                return asked._replace(ranges=wide, share=0)
        return None

    def _block(self, asked: RowQuery, most: int) -> RowBlock | None:
        """Read a block of rows. Return None if it would have more than `most` rows."""
        tables, rows = [], 0
        with closing(self._read(asked)) as batches:
            for table in batches:
                tables.append(table)
                rows += table.num_rows
                if rows > most:
                    return None
        numbers_of = {path: number for number, path in enumerate(asked.paths)}
        found = CodedRows.of(pa.concat_tables(tables))
        return RowBlock(numbers_of, asked.ranges, asked.sample.inside, found)

    def _read(self, asked: RowQuery) -> Generator[pa.Table]:
        """Yield rows in batches. The first batch is empty, so that the columns are known even without rows."""
        database = self._rows.database
        database.register("near", self._near(asked.ranges.values()))
        rows = self._rows.of(list(asked.paths), "near_rows")
        events = EVENTS.format(rows=rows, condition=asked.sql)
        try:
            # Close the reader even if the caller stops early. An open result would block the next statement of this
            # connection.
            sql = _SQL.format(events=events, draws=_DRAWS)
            with database.sql(sql).to_arrow_reader(BATCH) as reader:
                yield reader.schema.empty_table()
                for batch in reader:
                    yield pa.Table.from_batches([batch])
        finally:
            database.unregister("near")

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
