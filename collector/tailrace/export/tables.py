"""Write the view `events` as a table, and the view `gaps` beside it.

Rows come as the table has them, all kinds of them, in no order. A file that can carry words says what is
missing: the schema's metadata of Parquet and Arrow has it as JSON, under `tailrace.completeness`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow  # type: ignore[import-untyped]  # it has no types
import pyarrow.parquet  # type: ignore[import-untyped]

from tailrace.export.output import Output
from tailrace.export.progress import RowCount
from tailrace.export.selected import Left, Selected
from tailrace.query.answer import Shape
from tailrace.query.completeness import METADATA
from tailrace.query.output import write_csv as csv_rows, write_json as json_rows
from tailrace.query.views import EVENTS, GAPS, View

_Write = Callable[[Selected, View, BinaryIO, RowCount], None]


def write_parquet(selected: Selected, output: Output, progress: RowCount) -> Left:
    def parquet(selected: Selected, view: View, out: BinaryIO, progress: RowCount) -> None:
        schema, batches = _arrow(selected, view, progress)
        with pyarrow.parquet.ParquetWriter(out, schema, compression="zstd") as file:
            for batch in batches:
                file.write_batch(batch)

    return _both(parquet, selected, output, progress)


def write_arrow(selected: Selected, output: Output, progress: RowCount) -> Left:
    def arrow(selected: Selected, view: View, out: BinaryIO, progress: RowCount) -> None:
        schema, batches = _arrow(selected, view, progress)
        with pyarrow.ipc.new_file(out, schema) as file:
            for batch in batches:
                file.write_batch(batch)

    return _both(arrow, selected, output, progress)


def write_csv(selected: Selected, output: Output, progress: RowCount) -> Left:
    def csv(selected: Selected, view: View, out: BinaryIO, progress: RowCount) -> None:
        answer = selected.answer(selected.rows(view), Shape.TEXT, selected.condition(view).values)
        csv_rows(answer.columns, selected.pages(answer, progress), out)

    return _both(csv, selected, output, progress)


def write_jsonl(selected: Selected, output: Output, progress: RowCount) -> Left:
    def jsonl(selected: Selected, view: View, out: BinaryIO, progress: RowCount) -> None:
        answer = selected.answer(selected.rows(view), Shape.JSON, selected.condition(view).values)
        json_rows(answer.columns, selected.pages(answer, progress), out)

    return _both(jsonl, selected, output, progress)


def _both(write: _Write, selected: Selected, output: Output, progress: RowCount) -> Left:
    """Write the events and, where there are several files, the gaps. Everything has a place in a table."""
    write(selected, EVENTS, output.main(), progress)
    gaps = output.beside("gaps")
    if gaps is not None:
        write(selected, GAPS, gaps, RowCount(None))
    return Counter()


def _arrow(
    selected: Selected, view: View, progress: RowCount
) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    answer = selected.arrow(selected.rows(view), selected.condition(view).values)
    words = {METADATA: json.dumps(selected.whole.words)}
    return answer.schema.with_metadata(words), selected.batches(answer, progress)
