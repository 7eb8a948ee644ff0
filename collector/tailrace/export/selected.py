"""The rows to export: those of one snapshot that match the filters, and what they lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.config.schema import OWN_SOURCE
from tailrace.errors import BrokenOffError, UnknownError
from tailrace.export.noted import notes_of
from tailrace.export.progress import RowCount
from tailrace.query.answer import Answer, ArrowAnswer, Page, Shape
from tailrace.query.completeness import completeness
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, all_of
from tailrace.query.live import NOBODY, Live
from tailrace.query.patience import Patience
from tailrace.query.views import EVENTS, GAPS, View
from tailrace.reading.question import Filters
from tailrace.store.notes import ListedNotes

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]  # it has no types

T = TypeVar("T")

Left = Counter[str]
"""How many rows a writer left out, by what they are: the target has no place for them."""

_COUNTED = "kind NOT IN ('session', 'name', 'gap', 'heal')"

_THERE = f"""
SELECT source, strftime(part.readable(min(time)), '%Y-%m-%d %H:%M:%S'),
  strftime(part.readable(max(time)), '%Y-%m-%d %H:%M:%S')
FROM events WHERE {_COUNTED} GROUP BY source ORDER BY source
"""  # noqa: S608 - our own words
"""Each source, and the times of its first and last event."""


class Selected:
    """A selection of one snapshot. One question is asked at a time, and its answer read to the end.

    Methods raise QueryError and StoreError, and BrokenOffError if the snapshot's files were deleted."""

    def __init__(
        self, engine: Engine, filters: Filters, patience: Patience, live: Live = NOBODY
    ) -> None:
        """Raise UnknownError when no event is selected."""
        self.engine = engine
        self.filters = filters
        self.whole = completeness(engine, filters.scope, live)
        self._patience = patience
        self._version = engine.version
        self.events = self._count()

    @cached_property
    def notes(self) -> ListedNotes:
        """Return the notes that may concern the selection."""
        return notes_of(self.engine, self.filters)

    def condition(self, view: View) -> RowCondition:
        """Return the condition on a view's rows: of gaps, that they may concern the selected events."""
        return self.filters.scope.gaps if view is GAPS else self.filters.rows(view)

    def rows(self, view: View) -> str:
        """Return the statement that selects rows of a view, whose parameters are its condition's."""
        order = f" ORDER BY {view.order}" if view.order else ""
        return f"SELECT * FROM {view.name} WHERE {self.condition(view).sql}{order}"  # noqa: S608 - our own words

    def arrow(self, sql: str, values: tuple[object, ...] = ()) -> ArrowAnswer:
        return self._patience.make(lambda: self.engine.ask_arrow(sql, values))

    def batches(self, answer: ArrowAnswer, progress: RowCount) -> Iterator[pyarrow.RecordBatch]:
        for batch in self._patience.batches(answer):
            yield batch
            progress.add(batch.num_rows)

    def few_batches(self, sql: str, values: tuple[object, ...] = ()) -> list[pyarrow.RecordBatch]:
        """Return rows that are few enough to hold."""
        return list(self._patience.batches(self.arrow(sql, values)))

    def answer(self, sql: str, shape: Shape, values: tuple[object, ...] = ()) -> Answer:
        return self._patience.make(lambda: self.engine.ask(sql, shape, parameters=values))

    def pages(self, answer: Answer, progress: RowCount) -> Iterator[Page]:
        for page in self._patience.pages(answer):
            yield page
            progress.add(len(page))

    def few(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return rows of numbers, truth values and text that are few enough to hold."""
        return self._patience.make(lambda: list(self.engine.rows(sql, values)))

    def same(self) -> None:
        """Raise BrokenOffError unless all questions so far were of the same snapshot."""
        if self.engine.version != self._version:
            raise BrokenOffError("the table's files were deleted while they were read; ask again")

    def _count(self) -> int:
        """Return how many events match; the collector's own ones count if they are asked for."""
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
        """Return that no event is selected, and which there are."""
        times = self.few(_THERE)
        known = ", ".join(
            f"{source} ({first} to {last})" if first else f"{source} (without wall time)"
            for source, first, last in times
        )
        return f"{self.engine.table.root}: no event is selected; there are: {known or 'none yet'}"
