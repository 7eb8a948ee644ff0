"""Rows of few kinds before all others, so that a file can have them in a row group of their own.

Readers look for them in every file (`query/parts.py`). Among events each of these rows costs whole pages of every column.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from tailrace.model.columns import FEW_KINDS

ROWS_MIN = 16_384
"""Rows of a file that is worth a second row group, whose description takes 2 KB."""

RUNS_MAX = 256
"""Runs of such rows that are moved. A slice costs some 40 µs, so more of them would cost more than they save."""

_RUN = re.compile(b"\1+")
_LOWEST_BYTE = slice(0 if sys.byteorder == "little" else 3, None, 4)


def few_first(rows: pa.Table) -> tuple[pa.Table, int]:
    """Return rows with those of few kinds first, and how many these are; both keep their order.

    Return the rows as they are, and 0, when they are less than `ROWS_MIN`, when all are of few kinds or none is,
    or when these lie in more than `RUNS_MAX` runs."""
    if rows.num_rows < ROWS_MIN:
        return rows, 0
    marks = _marks(rows.column("kind").chunks)
    few = marks.count(1)
    runs = [run.span() for run in _RUN.finditer(marks)] if 0 < few < len(marks) else []
    if not 0 < len(runs) <= RUNS_MAX:
        return rows, 0
    ordered = [*runs, *_between(runs, len(marks))]
    return pa.concat_tables(rows.slice(begin, end - begin) for begin, end in ordered), few


def _marks(kinds: list[pa.DictionaryArray]) -> bytes:
    """Return 1 for each row of few kinds and 0 for all others. All chunks have the first one's dictionary.

    pyarrow's own functions for this would take 9 MB of a collector."""
    words = kinds[0].dictionary.to_pylist()
    few = bytes(word in FEW_KINDS for word in words).ljust(256, b"\0")
    if 1 not in few or len(few) > 256:
        return b""
    return b"".join(_codes(chunk.indices)[_LOWEST_BYTE].translate(few) for chunk in kinds)


def _codes(indices: pa.Array) -> bytes:
    """Return 32-bit codes as bytes."""
    begin, data = 4 * indices.offset, memoryview(indices.buffers()[1])
    return bytes(data[begin : begin + 4 * len(indices)])


def _between(runs: list[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of so many rows that are in no run."""
    bounds = [0, *(bound for run in runs for bound in run), count]
    for begin, end in list(pairwise(bounds))[::2]:
        if begin < end:
            yield begin, end
