"""Convert a batch to Arrow, and write it to Parquet files of a local table.

Files and their names are on disk before a log entry names the files. Each file has the rows of one day, with all
columns except the day. Columns with repeated strings are dictionary-encoded. Rows of rare kinds (`FEW_KINDS`) come
first, in a row group of their own, because readers search every file for such rows.

`to_arrow` uses the buffers of packed rows without a copy, and holds the GIL. In a batch of 100,000 rows, `write_rows`
takes 0.09 µs of CPU for a row; the library's writer took 0.3 µs (2026-11-23)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction
from pyarrow import parquet

from tailrace.errors import SyncError
from tailrace.filesystem import refusal_text
from tailrace.rows.batch import Batch, Coding, PackedRows, RowRun
from tailrace.rows.block import Buffer, Texts
from tailrace.rows.schema import CODED, COLUMNS, FEW_KINDS, RUN
from tailrace.store import durable, layout, schema
from tailrace.store.log import Add

NAMES = pa.dictionary(pa.int32(), pa.string())
_TYPES = {"string": pa.string(), "long": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}

SCHEMA = pa.schema(
    [
        pa.field(c.name, NAMES if c.name in CODED else _TYPES[c.type], nullable=c.nullable)
        for c in COLUMNS
        if c.name != "day"
    ]
)


class DayRows(NamedTuple):
    """The rows of one day (days since 1970-01-01) as an Arrow table with the columns of `SCHEMA`."""

    day: int
    rows: pa.Table


def to_arrow(batch: Batch) -> list[DayRows]:
    """Return the rows of `batch` as Arrow tables in order. A new table begins wherever the day changes.

    Raise TypeError, OverflowError or UnicodeError, with the column's name as a note, for a value that does not fit its
    column."""
    return [DayRows(day, _rows(runs, parts)) for day, runs, parts in batch.packed()]


def with_day(day_rows: DayRows) -> pa.Table:
    """Return the rows with an additional first column `day`."""
    day, rows = day_rows
    days = _repeated([day], [rows.num_rows], pa.date32())
    return rows.add_column(0, pa.field("day", pa.date32(), nullable=False), days)


def _rows(runs: list[RowRun], parts: list[PackedRows]) -> pa.Table:
    columns = []
    for field in SCHEMA:
        if field.name in RUN:
            columns.append(_run_column(runs, field.name))
        elif field.name in CODED:
            columns.append(_coded(field, parts))
        else:
            columns.append(pa.chunked_array([_array(field, part) for part in parts], field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _array(field: pa.Field, rows: PackedRows) -> pa.Array:
    values = rows.walls if field.name == "wall" else rows.values(field.name)
    if values is None:
        return _nulls(rows.rows, field.type)
    return pa.Array.from_buffers(field.type, rows.rows, _buffers(values.buffers))


def _buffers(buffers: list[Buffer | None]) -> list[pa.Buffer | None]:
    return [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]


def _nulls(count: int, type_: pa.DataType) -> pa.Array:
    """Return an Arrow column of `count` nulls. Columns of similar lengths share one buffer."""
    return _cached_nulls(1 << count.bit_length(), type_).slice(0, count)


_cached_nulls = cache(pa.nulls)


def _coded(field: pa.Field, parts: list[PackedRows]) -> pa.ChunkedArray:
    coding = Coding()
    indices = []
    for part in parts:
        words = part.words(field.name)
        if words is None:
            indices.append(_nulls(part.rows, pa.int32()))
            continue
        buffers = [words.valid, coding.codes(words, part.rows)]
        indices.append(pa.Array.from_buffers(pa.int32(), part.rows, _buffers(buffers)))
    return _dictionaries(coding.texts, indices, field.type)


def _dictionaries(texts: list[str], indices: list[pa.Array], type_: pa.DataType) -> pa.ChunkedArray:
    buffers = _buffers(Texts.of(texts).buffers)
    dictionary = pa.Array.from_buffers(pa.string(), len(texts), buffers)
    chunks = [pa.DictionaryArray.from_arrays(each, dictionary, safe=False) for each in indices]
    return pa.chunked_array(chunks, type_)


def _run_column(runs: list[RowRun], name: str) -> pa.ChunkedArray:
    codes: dict[str, int] = {}
    numbers = [codes.setdefault(getattr(run, name), len(codes)) for run in runs]
    counts = [run.rows for run in runs]
    if len(codes) == 1:
        # Columns of similar lengths share one buffer of zeros.
        indices = _zeros(1 << sum(counts).bit_length()).slice(0, sum(counts))
    else:
        indices = _repeated(numbers, counts, pa.int32())
    return _dictionaries(list(codes), [indices], NAMES)


@cache
def _zeros(count: int) -> pa.Array:
    return _repeated([0], [count], pa.int32())


def _repeated(numbers: list[int], counts: list[int], type_: pa.DataType) -> pa.Array:
    """Return an Arrow array of 32-bit numbers, each repeated as often as `counts` states."""
    pairs = zip(numbers, counts, strict=True)
    data = b"".join(number.to_bytes(4, sys.byteorder) * count for number, count in pairs)
    return pa.Array.from_buffers(type_, sum(counts), [None, pa.py_buffer(data)], null_count=0)


ROWS_MIN = 16_384
"""Minimum number of rows in a file whose rows of rare kinds get a row group of their own. The description of a row
group takes 2 KB."""

RUNS_MAX = 256
"""Maximum number of runs of consecutive rows that `few_first` moves. Moving a run takes 40 µs."""

_RUN = re.compile(b"\1+")
_LOWEST_BYTE = slice(0 if sys.byteorder == "little" else 3, None, 4)


def few_first(rows: pa.Table) -> tuple[pa.Table, int]:
    """Move the rows of rare kinds (`FEW_KINDS`) to the front. Return all rows, and the number of moved rows. Move no
    rows in a table of fewer than `ROWS_MIN` rows, or if the rows of rare kinds form more than `RUNS_MAX` runs."""
    if rows.num_rows < ROWS_MIN:
        return rows, 0
    marks = _marks(rows.column("kind").chunks)
    few = marks.count(1)
    found = _RUN.finditer(marks) if 0 < few < len(marks) else iter(())
    runs = [run.span() for run in islice(found, RUNS_MAX + 1)]
    if not 0 < len(runs) <= RUNS_MAX:
        return rows, 0
    bounds = [0, *(bound for run in runs for bound in run), len(marks)]
    others = [(begin, end) for begin, end in list(pairwise(bounds))[::2] if begin < end]
    return pa.concat_tables(rows.slice(b, e - b) for b, e in (*runs, *others)), few


def _marks(kinds: list[pa.DictionaryArray]) -> bytes:
    """Return one byte for each row: 1 for a row of a rare kind (`FEW_KINDS`), else 0."""
    # Find out which words of the dictionary are rare kinds only once, because all chunks share one dictionary. Then
    # translate the codes of all rows. A function of pyarrow would take 9 MB of memory.
    words = kinds[0].dictionary.to_pylist()
    few = bytes(word in FEW_KINDS for word in words).ljust(256, b"\0")
    if 1 not in few or len(few) > 256:
        return b""
    marks = []
    for indices in (chunk.indices for chunk in kinds):
        begin, codes = 4 * indices.offset, memoryview(indices.buffers()[1])  # a code has 4 bytes
        marks.append(bytes(codes[begin : begin + 4 * len(indices)])[_LOWEST_BYTE].translate(few))
    return b"".join(marks)


PAGE = 192 * 1024
"""Size (bytes) at which the writer ends a page of a column.

With pages of 1 MiB, the library's default, the writer would need buffers above `heaps.LARGE`, and the system clears new
memory for each of them (docs/decisions/speed.md, D173)."""

TEXT_MAX = 256
"""Maximum length (characters) of a string in the Delta log's minimum or maximum of a column."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write_rows(root: Path, day_rows: DayRows) -> Add:
    """Write rows of one day durably to a new data file, and return the Delta log action that adds the file. If that
    fails, leave no file. Raise OSError if the file cannot be written, and SyncError if a sync fails."""
    date = str(layout.date_of(day_rows.day))
    directory = root / f"day={date}"
    if not directory.is_dir():
        with _naming(root):
            directory.mkdir(exist_ok=True)
    rows, few = few_first(day_rows.rows)
    numbers = [each.name for each in rows.schema if each.type not in (pa.string(), NAMES)]
    # Write to a buffer in memory, because pyarrow's file classes hide the error number of a full disk.
    data = pa.BufferOutputStream()
    footers: list[parquet.FileMetaData] = []
    with parquet.ParquetWriter(
        data,
        rows.schema,
        compression="zstd",
        compression_level=1,
        data_page_size=PAGE,
        use_dictionary=sorted(CODED),
        column_encoding={**dict.fromkeys(numbers, "DELTA_BINARY_PACKED"), "attributes": "PLAIN"},
        write_statistics=numbers,
        store_schema=False,
        metadata_collector=footers,
    ) as writer:
        for group in (rows.slice(0, few), rows.slice(few)):
            if group.num_rows:
                writer.write_table(group, row_group_size=group.num_rows)
    path = directory / _new_name()
    _write(path, data.getvalue())
    found = path.stat()
    return Add(
        path=str(path.relative_to(root)),
        size=found.st_size,
        partition_values={"day": date},
        modification_time=found.st_mtime_ns // 10**6,
        stats=msgspec.json.encode(_statistics(rows, footers[0])).decode(),
    )


def renamed(root: Path, add: Add) -> Add:
    """Rename a data file durably, and return the Delta log action that adds it under its new name. Raise OSError if the
    rename fails, and SyncError if a sync fails."""
    path = Path(add.path).with_name(_new_name())
    with _naming((root / path).parent):
        (root / add.path).rename(root / path)
    return msgspec.structs.replace(add, path=str(path))


def discard(root: Path, added: list[Add]) -> None:
    """Remove data files that no log entry names. If a file cannot be removed, the vacuum removes it later."""
    with suppress(OSError):
        for add in added:
            (root / add.path).unlink(missing_ok=True)


def commit(table: DeltaTable, added: list[Add], properties: CommitProperties) -> None:
    """Write a version of the table that adds the given data files. Raise the Delta library's exceptions if that fails."""
    table.create_write_transaction(
        [
            AddAction(
                add.path, add.size, add.partition_values, add.modification_time, add.data_change,
                add.stats or "{}",
            )
            for add in added
        ],
        "append", schema.SCHEMA, ["day"],
        post_commithook_properties=durable.NO_HOOKS, commit_properties=properties,
    )  # fmt: skip
    # Advance `table` to the new version, because the library does not.
    table.update_incremental()


def _new_name() -> str:
    return f"part-{uuid4()}.parquet"


@contextmanager
def _naming(directory: Path) -> Iterator[None]:
    """Sync a directory at the end of the `with` block, within which the caller creates or renames files in this
    directory."""
    # Open the directory first, so that the block changes nothing if no file descriptor is free.
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
        _fsync(fd, directory)
    finally:
        os.close(fd)


def _fsync(fd: int, path: Path) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        why = refusal_text(error.errno, path)
        raise SyncError(f"{path}: cannot be brought to disk: {why}") from error


def _write(path: Path, data: pa.Buffer) -> None:
    try:
        with _naming(path.parent), path.open("xb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            _fsync(file.fileno(), path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _statistics(rows: pa.Table, metadata: parquet.FileMetaData) -> dict[str, Any]:
    """Return the number of rows of a data file, and bounds of the columns in `layout.STATED`, for the Delta log."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number, name in enumerate(rows.schema.names):
        if name not in layout.STATED:
            continue
        column = rows.column(number)
        nulls[name] = column.null_count
        if name in CODED:
            # Take minimum and maximum from the dictionary, which all chunks share. They are exact, because each value
            # of the dictionary occurs in the rows.
            values = column.chunk(0).dictionary.to_pylist()
            bounds = (min(values), max(values)) if values else None
        else:
            # Use raw values: to convert times, pyarrow would import an installed pandas, which takes 45 MB of memory.
            chunks = [group.column(number).statistics for group in groups]
            stated = [(each.min_raw, each.max_raw) for each in chunks if each.has_min_max]
            bounds = (
                (min(low for low, _ in stated), max(high for _, high in stated)) if stated else None
            )
        if bounds and name == "wall":
            bounds = (_spelled(bounds[0]), _spelled(bounds[1]))
        if bounds and all(isinstance(each, int) or len(each) <= TEXT_MAX for each in bounds):
            least[name], most[name] = bounds
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _spelled(microseconds: int) -> str:
    """Return a Unix time (µs) in the timestamp format of the Delta log."""
    return f"{_EPOCH + timedelta(microseconds=microseconds):%Y-%m-%dT%H:%M:%S.%fZ}"
