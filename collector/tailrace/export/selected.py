"""Select the rows to export: the rows of one snapshot that match the filters, with their gaps and users' notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from tailrace.config.schema import OWN_SOURCE
from tailrace.errors import DELETED, BrokenOffError, UnknownError
from tailrace.export.output import ExportTarget, RowCount
from tailrace.query.answer import AnswerColumn, ArrowAnswer, Page, RowAnswer, Shape
from tailrace.query.completeness import completeness
from tailrace.query.engine import ATTEMPTS, Engine
from tailrace.query.filters import RowCondition, all_of
from tailrace.query.live import NOBODY, Live
from tailrace.query.patience import Patience
from tailrace.query.views import EVENTS, GAPS, View
from tailrace.reading.question import Filters
from tailrace.store.notes import ListedNotes, Note, NoteStore

_NOTE_COLUMNS = (
    ("id", "VARCHAR"), ("from", "BIGINT"), ("to", "BIGINT"), ("text", "VARCHAR"), ("source", "VARCHAR"),
    ("session", "VARCHAR"), ("stream", "VARCHAR"), ("made", "BIGINT"),
)  # fmt: skip
"""The names and SQL types of the columns in an exported table of users' notes. Times are Unix nanoseconds."""

_NOTE_TYPES = {"VARCHAR": pa.string(), "BIGINT": pa.int64()}


def note_columns(shape: Shape) -> list[AnswerColumn]:
    """Return the columns of an exported table of users' notes. `shape` determines how their values are converted."""
    return [AnswerColumn(number, *column, shape) for number, column in enumerate(_NOTE_COLUMNS)]


def note_rows(notes: Iterable[Note]) -> Page:
    return [
        tuple(words[name] for name, _ in _NOTE_COLUMNS) for words in map(msgspec.to_builtins, notes)
    ]


def note_table(notes: Iterable[Note]) -> pa.Table:
    schema = pa.schema([(name, _NOTE_TYPES[type_]) for name, type_ in _NOTE_COLUMNS])
    return pa.Table.from_pylist([msgspec.to_builtins(note) for note in notes], schema=schema)


def _concerns(note: Note, filters: Filters) -> bool:
    """Return whether a user's note may concern selected rows. A note without a source, session or stream applies to all
    of them. Filters by label or by job exclude no note."""
    sources, sessions, streams, *_ = filters.selection
    since, until = filters.window[1:]
    return (
        (not note.source or sources is None or note.source in sources)
        and (not note.session or sessions is None or any(map(note.session.startswith, sessions)))
        and (not note.stream or streams is None or note.stream in streams)
        and (since is None or note.to >= since)
        and (until is None or note.from_ < until)
    )


Left = Counter[str]
"""Number of rows that a writer has left out because the target format cannot hold them, by kind of row."""

_COUNTED = "kind NOT IN ('session', 'name', 'gap', 'heal')"

_THERE = f"""
SELECT source, strftime(part.readable(min(time)), '%Y-%m-%d %H:%M:%S'),
  strftime(part.readable(max(time)), '%Y-%m-%d %H:%M:%S')
FROM events WHERE {_COUNTED} GROUP BY source ORDER BY source
"""  # noqa: S608 - our own words
"""SQL for the sources that have events, with the times of the first and last event of each source."""


class Selected:
    """The rows of one snapshot that match the user's filters. Each answer must be read to its end before the next
    query. Methods raise QueryError or StoreError if the table cannot be read, and BrokenOffError if upkeep has
    deleted files of the snapshot."""

    def __init__(
        self, engine: Engine, filters: Filters, patience: Patience, live: Live = NOBODY
    ) -> None:
        """Raise UnknownError if the filters select no event."""
        self.engine = engine
        self.filters = filters
        self.whole = completeness(engine, filters.scope, live)
        self._patience = patience
        self._version = engine.version
        self.events = self._count()

    @cached_property
    def notes(self) -> ListedNotes:
        """Notes that users saved in `tailrace view` and that may concern the selected rows."""
        kept = NoteStore(self.engine.store, self.engine.options).list()
        return kept._replace(notes=[note for note in kept.notes if _concerns(note, self.filters)])

    def condition(self, view: View) -> RowCondition:
        """Return the SQL condition for the selected rows of a view. For the view `gaps`, it selects all gaps that may
        concern the selected rows."""
        return self.filters.scope.gaps if view is GAPS else self.filters.rows(view)

    def rows(self, view: View) -> str:
        """Return SQL for the selected rows of a view, with the parameters of `condition(view)`."""
        order = f" ORDER BY {view.order}" if view.order else ""
        return f"SELECT * FROM {view.name} WHERE {self.condition(view).sql}{order}"  # noqa: S608 - our own words

    def arrow(self, sql: str, values: tuple[object, ...] = ()) -> ArrowAnswer:
        return self._patience.make(lambda: self.engine.ask_arrow(sql, values))

    def batches(self, answer: ArrowAnswer, progress: RowCount) -> Iterator[pa.RecordBatch]:
        for batch in self._patience.batches(answer):
            yield batch
            progress.add(batch.num_rows)

    def answer(self, sql: str, shape: Shape, values: tuple[object, ...] = ()) -> RowAnswer:
        return self._patience.make(lambda: self.engine.ask(sql, shape, parameters=values))

    def pages(self, answer: RowAnswer, progress: RowCount) -> Iterator[Page]:
        for page in self._patience.pages(answer):
            yield page
            progress.add(len(page))

    def few(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of an SQL statement, which must fit in memory and have only numbers, booleans and text."""
        return self._patience.make(lambda: list(self.engine.rows(sql, values)))

    def same(self) -> None:
        """Raise BrokenOffError if the engine no longer reads the snapshot of this selection."""
        if self.engine.version != self._version:
            raise BrokenOffError(DELETED)

    def _count(self) -> int:
        """Return the number of selected events. The collector's own events count only if the filters name its
        source. Raise UnknownError if there is none."""
        rows = self.filters.rows(EVENTS)
        asked_for_own = OWN_SOURCE in (self.filters.selection.sources or ())
        producers = RowCondition("source <> ?", (OWN_SOURCE,))
        chosen = all_of([rows, *([] if asked_for_own else [producers])])
        sql = f"SELECT count(*) FROM events WHERE {_COUNTED} AND ({chosen.sql})"  # noqa: S608 - our own words
        ((count,),) = self.few(sql, chosen.values)
        if not count:
            raise UnknownError(self._nothing())
        return int(count)

    def _nothing(self) -> str:
        times = self.few(_THERE)
        known = ", ".join(
            f"{source} ({first} to {last})" if first else f"{source} (without wall time)"
            for source, first, last in times
        )
        whole = self.whole
        lacking = whole.unknown or any(whole.missing.values()) or whole.awaited or whole.unasked
        lacks = f"; not complete: {whole.text}" if lacking else ""
        return f"{self.engine.table.root}: no event is selected{lacks}; there are: {known or 'none yet'}"


Target = TypeVar("Target", bound=ExportTarget)


class Exported(NamedTuple):
    """The outcome of an export: the selected rows, and the number of rows that the writer left out, by kind."""

    selected: Selected
    left: Left

    @property
    def text(self) -> str:
        """Sentence for the user about the missing events, and about the rows that the writer left out."""
        whole = self.selected.whole
        parts = [f"{'complete' if whole.complete else 'not complete'}: {whole.text}"]
        if self.left:
            left = ", ".join(f"{count} x {what}" for what, count in sorted(self.left.items()))
            parts.append(f"left out: {left}")
        return "; ".join(parts)

    @property
    def words(self) -> dict[str, object]:
        """Members of a JSON object about the missing events, and about the rows that the writer left out."""
        return {**self.selected.whole.words, "left_out": dict(self.left)}


def export(
    write: Callable[[Selected, Target, RowCount], Left],
    select: Callable[[], Selected],
    output: Target,
    progress: RowCount,
) -> Exported:
    """Write the rows that `select` takes from the newest snapshot. If upkeep deletes files of it meanwhile, start
    again. Raise BrokenOffError after `ATTEMPTS` attempts, QueryError or StoreError if the table cannot be read, and
    ExportError if the output cannot be written."""
    for attempt in range(ATTEMPTS):
        selected = select()
        progress.begin(selected.events)
        try:
            left = write(selected, output, progress)
            selected.same()
            if unreadable := len(selected.notes.unreadable):
                left["note that cannot be read"] += unreadable
        except BrokenOffError:
            if attempt == ATTEMPTS - 1:
                raise
            output.restart()
        else:
            return Exported(selected, left)
        finally:
            progress.end()
            selected.engine.close()
    raise AssertionError("unreachable")
