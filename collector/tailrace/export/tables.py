"""Write the view `events` as a table, in no particular order. The views `gaps` and `programs` and users' notes go to
further files.

The schema metadata of Parquet and Arrow files describes the missing events as JSON, as `tailrace.completeness`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow  # type: ignore[import-untyped]  # it has no types
import pyarrow.parquet  # type: ignore[import-untyped]

from tailrace.export.output import Output, RowCount
from tailrace.export.selected import Left, Selected, note_columns, note_rows, note_table
from tailrace.query.answer import Shape
from tailrace.query.completeness import METADATA
from tailrace.query.output import write_csv as csv_rows, write_json as json_rows
from tailrace.query.views import EVENTS, GAPS, PROGRAMS, View
from tailrace.store.notes import Note

_Write = Callable[[Selected, View, BinaryIO, RowCount], None]
_WriteNotes = Callable[[list[Note], BinaryIO], None]


def write_parquet(selected: Selected, output: Output, progress: RowCount) -> Left:
    def parquet(selected: Selected, view: View, out: BinaryIO, progress: RowCount) -> None:
        schema, batches = _arrow(selected, view, progress)
        with pyarrow.parquet.ParquetWriter(out, schema, compression="zstd") as file:
            for batch in batches:
                file.write_batch(batch)

    def notes(found: list[Note], out: BinaryIO) -> None:
        pyarrow.parquet.write_table(note_table(found), out, compression="zstd")

    return _all(parquet, notes, selected, output, progress)


def write_arrow(selected: Selected, output: Output, progress: RowCount) -> Left:
    def arrow(selected: Selected, view: View, out: BinaryIO, progress: RowCount) -> None:
        schema, batches = _arrow(selected, view, progress)
        with pyarrow.ipc.new_file(out, schema) as file:
            for batch in batches:
                file.write_batch(batch)

    def notes(found: list[Note], out: BinaryIO) -> None:
        table = note_table(found)
        with pyarrow.ipc.new_file(out, table.schema) as file:
            file.write_table(table)

    return _all(arrow, notes, selected, output, progress)


def write_csv(
    selected: Selected, output: Output, progress: RowCount, *, safe: bool = False
) -> Left:
    """Write CSV files. If `safe`, put a `'` before each text that a spreadsheet may take for a formula."""

    def csv(selected: Selected, view: View, out: BinaryIO, progress: RowCount) -> None:
        answer = selected.answer(selected.rows(view), Shape.TEXT, selected.condition(view).values)
        csv_rows(answer.columns, selected.pages(answer, progress), out, safe=safe)

    def notes(found: list[Note], out: BinaryIO) -> None:
        csv_rows(note_columns(Shape.TEXT), [note_rows(found)], out, safe=safe)

    return _all(csv, notes, selected, output, progress)


def write_jsonl(selected: Selected, output: Output, progress: RowCount) -> Left:
    def jsonl(selected: Selected, view: View, out: BinaryIO, progress: RowCount) -> None:
        answer = selected.answer(selected.rows(view), Shape.JSON, selected.condition(view).values)
        json_rows(answer.columns, selected.pages(answer, progress), out)

    def notes(found: list[Note], out: BinaryIO) -> None:
        json_rows(note_columns(Shape.JSON), [note_rows(found)], out)

    return _all(jsonl, notes, selected, output, progress)


def _all(
    write: _Write, write_notes: _WriteNotes, selected: Selected, output: Output, progress: RowCount
) -> Left:
    """Write the events and, if the output can have several files, the gaps, the names of streams and the users' notes."""
    left: Left = Counter()
    write(selected, EVENTS, output.main(), progress)
    for view in (GAPS, PROGRAMS):
        if (file := output.beside(view.name)) is not None:
            write(selected, view, file, RowCount(None))
    if found := selected.notes.notes:
        file = output.beside("notes")
        if file is None:
            left["note"] += len(found)
        else:
            write_notes(found, file)
    return left


def _arrow(
    selected: Selected, view: View, progress: RowCount
) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    answer = selected.arrow(selected.rows(view), selected.condition(view).values)
    words = {METADATA: json.dumps(selected.whole.words)}
    return answer.schema.with_metadata(words), selected.batches(answer, progress)
