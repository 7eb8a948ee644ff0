"""The notes that people made about ranges of time (`store.notes`), as an export carries them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from tailrace.query.answer import AnswerColumn, Page, Shape
from tailrace.query.engine import Engine
from tailrace.reading.question import Filters
from tailrace.store.notes import ListedNotes, Note, NoteStore

_COLUMNS = (
    ("id", "VARCHAR"), ("from", "BIGINT"), ("to", "BIGINT"), ("text", "VARCHAR"), ("source", "VARCHAR"),
    ("session", "VARCHAR"), ("stream", "VARCHAR"), ("made", "BIGINT"),
)  # fmt: skip
"""The columns of a table of notes; times are Unix nanoseconds."""

_ARROW = {"VARCHAR": pa.string(), "BIGINT": pa.int64()}


def notes_of(engine: Engine, filters: Filters) -> ListedNotes:
    """Return the notes that may concern what the filters select. Raise StoreError."""
    kept = NoteStore(engine.store, engine.options).list()
    return kept._replace(notes=[note for note in kept.notes if _concerns(note, filters)])


def columns(shape: Shape) -> list[AnswerColumn]:
    """Return the columns of a table of notes."""
    return [AnswerColumn(number, *column, shape) for number, column in enumerate(_COLUMNS)]


def rows(notes: Iterable[Note]) -> Page:
    """Return notes as rows of these columns."""
    return [tuple(words[name] for name, _ in _COLUMNS) for words in map(msgspec.to_builtins, notes)]


def table(notes: Iterable[Note]) -> pa.Table:
    """Return notes as a table of Arrow."""
    schema = pa.schema([(name, _ARROW[type_]) for name, type_ in _COLUMNS])
    return pa.Table.from_pylist([msgspec.to_builtins(note) for note in notes], schema=schema)


def _concerns(note: Note, filters: Filters) -> bool:
    """Return whether a note may be about selected rows.

    A note without a source, session or stream is about all of them. Filters by label exclude no note, nor do those by job."""
    sources, sessions, streams, *_ = filters.selection
    since, until = filters.window[1:]
    return (
        (not note.source or sources is None or note.source in sources)
        and (not note.session or sessions is None or any(map(note.session.startswith, sessions)))
        and (not note.stream or streams is None or note.stream in streams)
        and (since is None or note.to >= since)
        and (until is None or note.from_ < until)
    )
