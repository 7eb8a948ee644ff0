"""Read the columns of a batch as lists of values."""

from __future__ import annotations

from itertools import chain, repeat

from tailrace.rows.batch import BlockRows
from tailrace.rows.schema import ROW


def rows_column(rows, name):
    """Return one column of a part's rows (`ROW`)."""
    if isinstance(rows, BlockRows):
        return rows.block.column(rows.columns()[ROW.index(name)])
    return rows[ROW.index(name)]


def column(batch, name):
    """Return one column of the table for all rows. `wall` has microseconds since 1970, rounded towards zero."""
    if name == "wall":
        return [
            time if time is None else time // 1000 if time >= 0 else -(-time // 1000)
            for time in column(batch, "time")
        ]
    if name not in ROW:
        return list(chain.from_iterable(repeat(getattr(run, name), run.rows) for run in batch.runs))
    return list(chain.from_iterable(rows_column(part.rows, name) for part in batch.parts))
