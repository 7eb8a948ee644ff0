"""A batch as Arrow: for each day its rows, in the order of the table's columns, without the day.

Names that come again and again are dictionaries, whose values all occur in the rows: then the file's writer
need not hash each row's string, and the smallest and greatest string are found among few.

Row columns are a block's buffers, which Arrow takes as they are, or lists of Python values: 9 ns an integer, 40 ns a string, 55 ns a name. A column of a run is
made from one value for each run and costs next to nothing. The GIL is held meanwhile.

arro3 reads the lists: pyarrow would cut fractions off without a word, and import pandas if it is installed,
which takes 30 MB and a quarter of a second.
"""

from __future__ import annotations

import sys
from array import array
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from arro3.core import Array, DataType

from tailrace.kernels import active
from tailrace.rows.batch import Batch, BlockRows, ListRows, RowRun, Rows
from tailrace.rows.block import Integers, Texts, Words
from tailrace.rows.schema import COLUMNS, ROW, RUN
from tailrace.store.joining import Joined, join

if TYPE_CHECKING or active():
    from tailrace.rows._columns import present, recoded

CODED = frozenset({"source", "format", "session", "stream", "kind", "name", "category"})
"""The columns whose few values are a dictionary."""

NAMES = pa.dictionary(pa.int32(), pa.string())
_ARRO_LONG, _ARRO_STRING = DataType.int64(), DataType.string()
_ARRO_NAMES = DataType.dictionary(DataType.int32(), DataType.string())
_ARRO_NANOSECONDS = DataType.timestamp("ns", tz="UTC")
_ARRO_MICROSECONDS = DataType.timestamp("us", tz="UTC")
_TYPES = {"string": pa.string(), "long": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}

SCHEMA = pa.schema(
    [
        pa.field(c.name, NAMES if c.name in CODED else _TYPES[c.type], nullable=c.nullable)
        for c in COLUMNS
        if c.name != "day"
    ]
)

_TIME = SCHEMA.field("time")


class DayRows(NamedTuple):
    """Rows of one day, which is counted from 1970-01-01; `rows` has the columns of `SCHEMA`."""

    day: int
    rows: pa.Table


def to_arrow(batch: Batch) -> list[DayRows]:
    """Return the rows of `batch` in order, cut where the day changes.

    Raise TypeError, OverflowError or UnicodeError, with the column's name as a note, for a value that
    its column cannot hold: the code that made such a row has a bug."""
    runs = groupby(batch.runs, key=attrgetter("day"))
    parts = groupby(batch.parts, key=attrgetter("day"))
    return [
        DayRows(day, _rows(list(of_day), join([part.rows for part in same_day], CODED)))
        for (day, of_day), (_, same_day) in zip(runs, parts, strict=True)
    ]


def with_day(day_rows: DayRows) -> pa.Table:
    """Return the rows with their day as the first column."""
    day, rows = day_rows
    days = _repeated([day], [rows.num_rows], pa.date32())
    return rows.add_column(0, pa.field("day", pa.date32(), nullable=False), days)


def _rows(runs: list[RowRun], parts: list[Rows | Joined]) -> pa.Table:
    columns = []
    for field in SCHEMA:
        if field.name in RUN:
            columns.append(_run_column(runs, field.name))
        elif field.name in CODED:
            columns.append(_coded(field, parts))
        else:
            columns.append(pa.chunked_array([_array(field, part) for part in parts], field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _array(field: pa.Field, rows: Rows | Joined) -> pa.Array:
    """Return a column of times, numbers or texts that rarely repeat."""
    if field.name == "wall":
        nanoseconds = Array(_array(_TIME, rows)).cast(_ARRO_NANOSECONDS)
        return pa.array(nanoseconds.cast(_ARRO_MICROSECONDS))
    if isinstance(rows, list):
        return pa.array(_listed(field, rows))
    values, count = rows.column(field.name), rows.rows
    if values is None:
        return _nulls(count, field.type)
    valid = None if values.valid is None else pa.py_buffer(values.valid)
    if isinstance(values, Integers):
        buffers = [valid, pa.py_buffer(values.values)]
    elif isinstance(values, Texts):
        buffers = [valid, pa.py_buffer(values.ends), pa.py_buffer(values.data)]
    else:
        raise TypeError(f"the block has words in column {field.name!r}")
    return pa.Array.from_buffers(field.type, count, buffers)


def _nulls(count: int, type_: pa.DataType) -> pa.Array:
    """Return a column without a value. All such columns share their memory, which a commit would have for each."""
    return _nulls_of(1 << count.bit_length(), type_).slice(0, count)


@cache
def _nulls_of(count: int, type_: pa.DataType) -> pa.Array:
    return pa.nulls(count, type_)


def _listed(field: pa.Field, rows: ListRows) -> Array:
    try:
        values = rows[ROW.index(field.name)]
        column = Array(values, _ARRO_LONG if field.type == pa.int64() else _ARRO_STRING)
        if column.null_count and not field.nullable:
            raise TypeError("a row has no value")  # noqa: TRY301 - the note below is for all errors
    except (TypeError, OverflowError, UnicodeError) as error:
        error.add_note(f"in column {field.name!r}")
        raise
    return column


def _coded(field: pa.Field, parts: list[Rows | Joined]) -> pa.ChunkedArray:
    """Return a column of words, coded by one dictionary for all parts."""
    codes: dict[str, int] = {}
    tables: dict[int, array[int]] = {}
    indices = [
        _codes_of_list(field, part, codes)
        if isinstance(part, list)
        else _codes_of_block(field, part, codes, tables)
        for part in parts
    ]
    dictionary = pa.array(Array(list(codes), _ARRO_STRING))
    chunks = [pa.DictionaryArray.from_arrays(each, dictionary, safe=False) for each in indices]
    return pa.chunked_array(chunks, field.type)


def _codes_of_list(field: pa.Field, rows: ListRows, codes: dict[str, int]) -> pa.Array:
    coded = pa.array(_listed(field, rows).cast(_ARRO_NAMES))
    words = coded.dictionary.to_pylist()
    if not codes:
        codes |= {word: code for code, word in enumerate(words)}
        return coded.indices
    table = pa.array(Array([codes.setdefault(w, len(codes)) for w in words], DataType.int32()))
    return table.take(coded.indices)


def _codes_of_block(
    field: pa.Field, rows: BlockRows | Joined, codes: dict[str, int], tables: dict[int, array[int]]
) -> pa.Array:
    """Return a block's codes in the dictionary `codes`, to which its new words are added. `tables` has, for each list of
    texts that blocks share, the codes that are known so far, -1 for the other ones."""
    words, count = rows.column(field.name), rows.rows
    if words is None:
        return _nulls(count, pa.int32())
    if not isinstance(words, Words):
        raise TypeError(f"the block has no words in column {field.name!r}")
    table, texts = tables.setdefault(id(words.texts), array("i")), words.texts
    table.frombytes(b"\xff" * (4 * max(0, words.known - len(table))))
    for code in present(words.codes, count, words.known, words.valid):
        if table[code] < 0:
            table[code] = codes.setdefault(texts[code], len(codes))
    valid = None if words.valid is None else pa.py_buffer(words.valid)
    buffers = [valid, pa.py_buffer(recoded(words.codes, count, table))]
    return pa.Array.from_buffers(pa.int32(), count, buffers)


def _run_column(runs: list[RowRun], name: str) -> pa.DictionaryArray:
    codes: dict[str, int] = {}
    numbers = [codes.setdefault(getattr(run, name), len(codes)) for run in runs]
    counts = [run.rows for run in runs]
    indices = _zeros(sum(counts)) if len(codes) == 1 else _repeated(numbers, counts, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(Array(list(codes), _ARRO_STRING)))


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
