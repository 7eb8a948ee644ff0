"""A batch as Arrow: for each day its rows, in the order of the table's columns, without the day.

Names that come again and again are dictionaries, whose values all occur in the rows: then the file's writer
need not hash each row's string, and the smallest and greatest string are found among few.

Arrow takes the buffers of packed rows as they are. A column of a run is made from one value for each run and costs next to nothing.
The GIL is held meanwhile.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from tailrace.rows.batch import Batch, RowRun
from tailrace.rows.block import Buffer, Texts
from tailrace.rows.joining import Coding, PackedRows
from tailrace.rows.schema import CODED, COLUMNS, RUN

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
    """Rows of one day, which is counted from 1970-01-01; `rows` has the columns of `SCHEMA`."""

    day: int
    rows: pa.Table


def to_arrow(batch: Batch) -> list[DayRows]:
    """Return the rows of `batch` in order, cut where the day changes.

    Raise TypeError, OverflowError or UnicodeError, with the column's name as a note, for a value that
    its column cannot hold: the code that made such a row has a bug."""
    return [DayRows(day, _rows(runs, parts)) for day, runs, parts in batch.packed()]


def with_day(day_rows: DayRows) -> pa.Table:
    """Return the rows with their day as the first column."""
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
    """Return a column of times, numbers or texts that rarely repeat."""
    values = rows.walls if field.name == "wall" else rows.values(field.name)
    if values is None:
        return _nulls(rows.rows, field.type)
    return pa.Array.from_buffers(field.type, rows.rows, _buffers(values.buffers))


def _buffers(buffers: list[Buffer | None]) -> list[pa.Buffer | None]:
    return [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]


def _nulls(count: int, type_: pa.DataType) -> pa.Array:
    """Return a column without a value. All such columns share their memory, which a commit would have for each."""
    return _nulls_of(1 << count.bit_length(), type_).slice(0, count)


@cache
def _nulls_of(count: int, type_: pa.DataType) -> pa.Array:
    return pa.nulls(count, type_)


def _coded(field: pa.Field, parts: list[PackedRows]) -> pa.ChunkedArray:
    """Return a column of words, coded by one dictionary for all parts."""
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
    indices = _zeros(sum(counts)) if len(codes) == 1 else _repeated(numbers, counts, pa.int32())
    return _dictionaries(list(codes), [indices], NAMES)


def _zeros(count: int) -> pa.Array:
    """Return the codes of a column with one value. All such columns share their memory."""
    return _zeros_of(1 << count.bit_length()).slice(0, count)


@cache
def _zeros_of(count: int) -> pa.Array:
    return _repeated([0], [count], pa.int32())


def _repeated(numbers: list[int], counts: list[int], type_: pa.DataType) -> pa.Array:
    """Return 32-bit numbers, each as often as its count says."""
    pairs = zip(numbers, counts, strict=True)
    data = b"".join(number.to_bytes(4, sys.byteorder) * count for number, count in pairs)
    return pa.Array.from_buffers(type_, sum(counts), [None, pa.py_buffer(data)], null_count=0)
