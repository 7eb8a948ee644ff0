"""Write the sidecar of a data file: sums of its short spans, and each of its long spans.

A sum covers the short spans of one lane (stream or substream) that begin in the same bucket, a slice of time. At level
k, a bucket is 2 ** k wide: in nanoseconds for rows with a stored time, in ticks for other rows. A span is short if it
is shorter than the bucket, where a tick counts as 2 ** `scale` ns.

Each level has buckets four times as wide as the level below. The lowest level is chosen so that its sums and long spans
are at most `SHARE` of the number of spans. A level with hardly fewer sums than the level below is left out (`SAVES`).

The content of a sidecar depends on its data file alone. The process needs memory for a few row groups and for the
sums; DuckDB writes to disk what exceeds `MEMORY`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow import parquet

from tailrace.query.catalog import ViewCatalog, nothing
from tailrace.query.table import TableReader
from tailrace.rollups.events import COLUMNS, EVENTS, EXTENTS, JOINED, LANE, SPAN, LaneExtent, added
from tailrace.rollups.sidecar import (
    LEAST_ROWS,
    RollupHeader,
    RollupProgress,
    SidecarLane,
    Sidecars,
)
from tailrace.store.refusal import line

SHARE = 0.25
MEMORY = "256MB"
SAMPLE = 32_768
"""Number of rows of a data file that serve as a sample to choose the lowest level (the narrowest buckets)."""

GROUPS = 4
"""Number of row groups that are read at a time. Files that upkeep merged have small row groups."""

STEP = 2
"""Base-2 logarithm of the ratio between the bucket widths of two successive levels."""

HIGHEST = 52
SAVES = 0.9
"""Maximum number of sums of a level (the sums by buckets of one width), as a share of the number of sums of the level
below. A larger level is left out."""

FEW = 16
"""If a level (the sums by buckets of one width) has at most this number of sums, no level with wider buckets is
computed."""

EACH = "events"
"""Table in the temporary database with the events of the batch of rows that was read last."""

_WORDS = ["source", "format", "session", "stream", "kind", "name"]
_FAR = ["source", "session", "format", "stream", "substream", "kind", "depth", "start", "end", "time"]  # fmt: skip

_BATCH = "(SELECT *, 0 AS file FROM batch)"

_EXTENTS = f"""
SELECT * EXCLUDE (file) FROM ({EXTENTS.format(rows=_BATCH)}) AS e(file, {", ".join(LaneExtent._fields)})
"""  # noqa: S608 - our own words

_PACES = """
SELECT source, session, min(time) AS first_time, max(time) AS last_time, min(start) AS first_start,
  max(start) AS last_start
FROM batch WHERE time IS NOT NULL AND start IS NOT NULL GROUP BY source, session
"""

_LANES = f"""
CREATE TABLE lanes AS
SELECT row_number() OVER (ORDER BY source, session, stream, substream) - 1 AS number,
  coalesce(p.scale, 0)::INTEGER AS scale, e.*
FROM ({JOINED.format(extents="extents")}) AS e
LEFT JOIN (
  SELECT source, session, least(greatest(floor(log2(nullif(
    (max(last_time)::DOUBLE - min(first_time)) / nullif(max(last_start)::DOUBLE - min(first_start), 0), 0)) + 0.01), 0), 40) AS scale
  FROM paces GROUP BY source, session
) AS p USING (source, session)
"""  # noqa: S608 - our own words

_IN_LANES = f"""
SELECT l.number AS lane, l.scale, e.* EXCLUDE (file, {LANE})
FROM ({EVENTS.format(rows=_BATCH, condition="true")}) AS e
JOIN lanes AS l ON l.source = e.source AND l.session = e.session AND l.stream = e.stream
  AND l.substream IS NOT DISTINCT FROM e.substream
"""  # noqa: S608 - our own words

_BOUND = "(1::BIGINT << greatest({level} - CASE WHEN timed THEN scale ELSE 0 END, 0))"
"""SQL expression for the least duration (ticks) of a long span. Shorter spans are summed by buckets of 2 ** `level`."""

_EDGE = "(edge >> {level}) * (1::BIGINT << {level})"

_FIRST_LEVEL = f"""
SELECT min(level) FROM (
  SELECT level,
    count(DISTINCT (lane, timed, depth, edge >> level)) FILTER (longest < {_BOUND.format(level="level")})
    + count(*) FILTER (longest >= {_BOUND.format(level="level")}) AS size
  FROM sample, (SELECT unnest(range(0, {HIGHEST}, {STEP}))::INTEGER AS level)
  WHERE what = {SPAN} GROUP BY level
) WHERE size <= ? * (SELECT count(*) FROM sample WHERE what = {SPAN})
"""  # noqa: S608 - our own words

_CELLS = """
SELECT level::TINYINT AS level, lane::INTEGER AS lane, what, timed, depth::INTEGER AS depth, edge, spot, start, "count",
  busy, longest, label, member, "offset", kind, least, most, latest
FROM cells ORDER BY level, edge
"""
_LONG_SPANS = """
SELECT lane::INTEGER AS lane, timed, depth::INTEGER AS depth, spot, start, longest, label, "offset"
FROM longs ORDER BY floor(log2(greatest(longest, 1))), spot
"""


def build(
    source: str | BinaryIO,
    sidecars: Sidecars,
    path: str,
    pause: Callable[[], object] = lambda: None,
) -> None:
    """Write the sidecar of one data file. `path` is its path in the table, and `source` its location or the open file.
    Call `pause` before each batch of rows.

    Raise OSError or pyarrow's errors if a file cannot be read or written, and duckdb's IOException or
    OutOfMemoryException if disk space or memory is too small."""
    file = parquet.ParquetFile(source, read_dictionary=_WORDS)
    with (
        TemporaryDirectory(prefix="tailrace-rollups-") as spill,
        duckdb.connect(
            config={"memory_limit": MEMORY, "threads": 1, "temp_directory": spill}
        ) as database,
    ):
        database.execute("SET preserve_insertion_order = false")
        database.execute(f"CREATE SCHEMA part; CREATE VIEW stored AS {nothing()}")
        ViewCatalog().prepare(database, "part.numbers")
        lanes = _note_lanes(database, _batches(file, _FAR, pause))
        first = _first_level(database, file)
        _sum_up(database, _batches(file, COLUMNS, pause), first)
        _add_levels(database, first)
        sql = "SELECT level, count(*) FROM cells GROUP BY level ORDER BY level"
        levels, sizes = zip(*database.execute(sql).fetchall() or [(first, 0)], strict=True)
        header = RollupHeader(path, file.metadata.num_rows, list(levels), list(sizes), lanes)
        sidecars.write(header, _reader(database, _CELLS), _reader(database, _LONG_SPANS))


def _reader(database: duckdb.DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    return database.cursor().sql(sql).to_arrow_reader(65_536)


def _batches(
    file: parquet.ParquetFile, columns: Sequence[str], pause: Callable[[], object]
) -> Iterator[pa.Table]:
    groups = iter(range(file.num_row_groups))
    while some := list(islice(groups, GROUPS)):
        pause()
        yield file.read_row_groups(some, columns=list(columns), use_threads=False)


def _gather(
    database: duckdb.DuckDBPyConnection, batches: Iterable[pa.Table], sqls: dict[str, str]
) -> None:
    """Read a data file in batches (the relation `batch`). Run each statement in `sqls` on each batch, and append its
    rows to the table whose name is the statement's key in `sqls`. Only the table `events` is replaced for each
    batch."""
    made = False
    for batch in batches:
        database.register("batch", batch)
        for table, sql in sqls.items():
            into = (
                f"INSERT INTO {table}"
                if made and table != EACH
                else f"CREATE OR REPLACE TABLE {table} AS"
            )
            database.execute(f"{into} {sql}")
        database.unregister("batch")
        made = True


def _note_lanes(
    database: duckdb.DuckDBPyConnection, batches: Iterable[pa.Table]
) -> list[SidecarLane]:
    """Create the table `lanes` with the lanes (streams and substreams) that have rows in the data file, and return
    these lanes."""
    _gather(database, batches, {"extents": _EXTENTS, "paces": _PACES})
    database.execute(_LANES)
    fields = ", ".join(("scale", *LaneExtent._fields))
    rows = database.execute(f"SELECT {fields} FROM lanes ORDER BY number").fetchall()  # noqa: S608 - our own words
    return [SidecarLane(scale, LaneExtent(*extent)) for scale, *extent in rows]


def _first_level(database: duckdb.DuckDBPyConnection, file: parquet.ParquetFile) -> int:
    """Return the lowest level of the sidecar, estimated from `SAMPLE` rows in the middle of the data file."""
    middle = file.read_row_group(file.num_row_groups // 2, columns=list(COLUMNS), use_threads=False)
    batch = middle.slice(max(0, (middle.num_rows - SAMPLE) // 2), SAMPLE)
    _gather(database, [batch], {"sample": _IN_LANES})
    ((level,),) = database.execute(_FIRST_LEVEL, [SHARE]).fetchall()
    return HIGHEST if level is None else int(level)


def _sum_up(database: duckdb.DuckDBPyConnection, batches: Iterable[pa.Table], first: int) -> None:
    """Create the table `longs` with the spans at least as long as a bucket, and `cells` with the sums of all other
    events."""
    bound = _BOUND.format(level=first)
    of_batch = {
        EACH: _IN_LANES,
        "longs": f"FROM {EACH} WHERE longest >= {bound}",
        "parts": _level(f"(FROM {EACH} WHERE longest < {bound})", first),
    }
    _gather(database, batches, of_batch)
    database.execute(
        f"DROP TABLE {EACH}; CREATE TABLE cells AS {_level('parts', first)}; DROP TABLE parts"
    )


def _add_levels(database: duckdb.DuckDBPyConnection, first: int) -> None:
    database.execute("CREATE TABLE finer AS FROM cells")
    ((kept,),) = database.execute("SELECT count(*) FROM finer").fetchall()
    for level in range(first + STEP, HIGHEST + 1, STEP):
        low, high = _BOUND.format(level=level - STEP), _BOUND.format(level=level)
        longer = f"(FROM longs WHERE longest >= {low} AND longest < {high})"
        rows = f"(FROM finer UNION ALL BY NAME {longer})"
        database.execute(
            f"CREATE TABLE coarser AS {_level(rows, level)}; DROP TABLE finer; ALTER TABLE coarser RENAME TO finer"
        )
        ((size,),) = database.execute("SELECT count(*) FROM finer").fetchall()
        if size <= SAVES * kept:
            database.execute("INSERT INTO cells BY NAME FROM finer")
            kept = size
        if size <= FEW:
            break


def _level(rows: str, level: int) -> str:
    """Return SQL that sums events by bucket. A bucket is 2 ** `level` wide. `rows` is SQL for single events or for sums
    by narrower buckets."""
    return added(rows, f"{level} AS level, lane, scale", _EDGE.format(level=level))


logger = logging.getLogger(__name__)


class SidecarWriter:
    """Writes the missing sidecars of a table's data files with at least `least_rows` rows. The constructor removes the
    sidecars of deleted data files. If a sidecar could not be written, it is not tried again."""

    def __init__(
        self,
        store: str,
        options: dict[str, str],
        sidecars: Sidecars,
        least_rows: int = LEAST_ROWS,
    ) -> None:
        """Raise StoreError if the table cannot be read."""
        self._table = TableReader(store, options)
        self._sidecars = sidecars
        self._least_rows = least_rows
        self._done: set[str] = set()
        self._failed: set[str] = set()
        self.progress = RollupProgress()
        # Readers of a local table may still use data files of older versions.
        root = Path(self._table.root)
        local = root.glob("day=*/*.parquet") if self._table.local else ()
        paths = [str(path.relative_to(root)) for path in local]
        sidecars.sweep(paths or [file.path for file in self._table.files()])

    def write(self, pause: Callable[[], object] = lambda: None) -> Iterator[str]:
        """Write the sidecars that the newest version of the table lacks, those of the newest files first. Yield the path of
        each data file that got one, and log failures. Call `pause` before each batch of rows. Raise StoreError if the table
        cannot be read."""
        self._table.refresh()
        files = self._table.files()
        rows = {file.path: file.rows for file in files if file.rows >= self._least_rows}
        self._done = {
            path for path in rows if path in self._done or self._sidecars.find(path) is not None
        }
        self._count(rows)
        for path in [each.path for each in reversed(self._table.files_by_age())]:
            if path not in rows or path in self._done | self._failed:
                continue
            written = self._write(path, pause)
            (self._done if written else self._failed).add(path)
            self._count(rows)
            if written:
                yield path

    def _count(self, rows: Mapping[str, int]) -> None:
        done = sum(rows[path] for path in self._done)
        failed = sum(rows[path] for path in self._failed & rows.keys())
        self.progress = RollupProgress(done, sum(rows.values()) - failed)

    def _write(self, path: str, pause: Callable[[], object]) -> bool:
        try:
            if self._table.local:
                opened = (Path(self._table.root) / path).open("rb")
            else:
                opened = self._table.dataset().filesystem.open_input_file(path)
            with opened as source:
                build(source, self._sidecars, path, pause)
        except (
            OSError,
            pa.ArrowException,
            duckdb.IOException,
            duckdb.OutOfMemoryException,
        ) as error:
            logger.warning("%s: no roll-up was made: %s", path, line(error))
            return False
        return True
