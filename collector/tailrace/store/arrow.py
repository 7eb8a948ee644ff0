"""A batch as Arrow, in the order of the table's columns.

Row columns are lists of Python values: 9 ns an integer, 20 to 40 ns a short string. A run's columns
are made from one value a run: `take` repeats it for 3 ns a row, a list of strings would cost 25.
About 250 ns a row of 17 columns altogether, with the GIL held.
"""

from __future__ import annotations

import sys

from arro3.core import Array, DataType, RecordBatch

from tailrace.model.columns import COLUMNS, ROW, RUN, Batch
from tailrace.store.schema import SCHEMA, TYPES

_ROW_TYPES = {column.name: TYPES[column.type] for column in COLUMNS}


def to_arrow(batch: Batch) -> RecordBatch:
    """The rows of `batch`. Raise TypeError, OverflowError or UnicodeError, with the column's name
    as a note, for a value that its column cannot hold: such a row is a bug of what made it."""
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
    """For each row the number of its run: an int32's four bytes repeated `rows` times."""
    numbers = (i.to_bytes(4, sys.byteorder) * run.rows for i, run in enumerate(batch.runs))
    return Array.from_buffer(memoryview(b"".join(numbers)).cast("i"))
