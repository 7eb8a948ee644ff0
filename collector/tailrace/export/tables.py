"""Write the view `events` as a table, in no particular order. The views `gaps` and `programs` and users' notes go to
further files.

The schema metadata of Parquet and Arrow files describes the missing events as JSON, as `tailrace.completeness`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, BinaryIO

import pyarrow  # type: ignore[import-untyped]  # it has no types
import pyarrow.parquet  # type: ignore[import-untyped]

from tailrace.export.output import Output, RowCount
from tailrace.export.selected import Left, Selected, note_columns, note_rows, note_table
from tailrace.query.answer import AnswerColumn, Page, Shape
from tailrace.query.completeness import METADATA
from tailrace.query.output import write_csv as csv_rows, write_json as json_rows
from tailrace.query.views import EVENTS, GAPS, PROGRAMS, View
from tailrace.store.notes import Note

_Write = Callable[[View, BinaryIO, RowCount], None]
_WriteNotes = Callable[[list[Note], BinaryIO], None]


def write_parquet(selected: Selected, output: Output, progress: RowCount) -> Left:
    open_ = partial(pyarrow.parquet.ParquetWriter, compression="zstd")
    return _write_arrow(open_, selected, output, progress)


def write_arrow(selected: Selected, output: Output, progress: RowCount) -> Left:
    return _write_arrow(pyarrow.ipc.new_file, selected, output, progress)


def write_csv(
    selected: Selected, output: Output, progress: RowCount, *, safe: bool = False
) -> Left:
    """Write CSV files. If `safe`, put a `'` before each text that a spreadsheet may take for a formula."""
    return _write_texts(partial(csv_rows, safe=safe), Shape.TEXT, selected, output, progress)


def write_jsonl(selected: Selected, output: Output, progress: RowCount) -> Left:
    return _write_texts(json_rows, Shape.JSON, selected, output, progress)


def _write_arrow(
    open_: Callable[[BinaryIO, pyarrow.Schema], Any],
    selected: Selected,
    output: Output,
    progress: RowCount,
) -> Left:
    """Write the files. `open_` returns the writer of an open file. The writer appends rows to the file."""

    def write(view: View, out: BinaryIO, progress: RowCount) -> None:
        answer = selected.arrow(selected.rows(view), selected.condition(view).values)
        words = {METADATA: json.dumps(selected.whole.words)}
        with open_(out, answer.schema.with_metadata(words)) as file:
            for batch in selected.batches(answer, progress):
                file.write_batch(batch)

    def write_notes(found: list[Note], out: BinaryIO) -> None:
        table = note_table(found)
        with open_(out, table.schema) as file:
            file.write_table(table)

    return _write_all(write, write_notes, selected, output, progress)


def _write_texts(
    write_rows: Callable[[Sequence[AnswerColumn], Iterable[Page], BinaryIO], object],
    shape: Shape,
    selected: Selected,
    output: Output,
    progress: RowCount,
) -> Left:
    def write(view: View, out: BinaryIO, progress: RowCount) -> None:
        answer = selected.answer(selected.rows(view), shape, selected.condition(view).values)
        write_rows(answer.columns, selected.pages(answer, progress), out)

    def write_notes(found: list[Note], out: BinaryIO) -> None:
        write_rows(note_columns(shape), [note_rows(found)], out)

    return _write_all(write, write_notes, selected, output, progress)


def _write_all(
    write: _Write, write_notes: _WriteNotes, selected: Selected, output: Output, progress: RowCount
) -> Left:
    """Write the events and, if the output can have several files, the gaps, the names of streams and the users' notes."""
    left: Left = Counter()
    write(EVENTS, output.main(), progress)
    for view in (GAPS, PROGRAMS):
        if (file := output.beside(view.name)) is not None:
            write(view, file, RowCount(None))
    if found := selected.notes.notes:
        file = output.beside("notes")
        if file is None:
            left["note"] += len(found)
        else:
            write_notes(found, file)
    return left
