"""A batch as Arrow, in the order of the table's columns.

Row columns are lists of Python values: 9 ns an integer, 20 to 40 ns a short string. A run column is
made from one value for each run, which `take` repeats for 3 ns a row; a list of strings would take 25.
A row of 17 columns takes about 250 ns, with the GIL held.
"""

from __future__ import annotations

import sys

from arro3.core import Array, DataType, RecordBatch

from tailrace.model.columns import COLUMNS, ROW, RUN, Batch
from tailrace.store.schema import SCHEMA, TYPES

_ROW_TYPES = {column.name: TYPES[column.type] for column in COLUMNS}


def to_arrow(batch: Batch) -> RecordBatch:
    """Return the rows of `batch`.

    Raise TypeError, OverflowError or UnicodeError, with the column's name as a note, for a value that its
    column cannot hold: the code that made such a row has a bug."""
    rows = dict(zip(ROW, batch.columns, strict=True))
    index = _run_of_each_row(batch)
    arrays = [
        _run_column(batch, column.name).take(index)
        if column.name in RUN
        else _row_column(column.name, rows[column.name])
        for column in COLUMNS
    ]
    return RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _row_column(name: str, values: list[object]) -> Array:
    try:
        return Array(values, _ROW_TYPES[name])
    except (TypeError, OverflowError, UnicodeError) as error:
        error.add_note(f"in column {name!r}")
        raise


def _run_column(batch: Batch, name: str) -> Array:
    values = [getattr(run, name) for run in batch.runs]
    if name == "day":
        return Array(values, DataType.int32()).cast(DataType.date32())
    return Array(values, DataType.string())


def _run_of_each_row(batch: Batch) -> Array:
    """Return each row's run number: the four bytes of an int32, repeated for each row of the run."""
    numbers = (i.to_bytes(4, sys.byteorder) * run.rows for i, run in enumerate(batch.runs))
    return Array.from_buffer(memoryview(b"".join(numbers)).cast("i"))
