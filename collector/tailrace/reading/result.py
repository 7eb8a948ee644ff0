"""The answer to a question, in the shape that the caller wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow  # type: ignore[import-untyped]  # it has no types

from tailrace.errors import BrokenOffError, MissingPackageError
from tailrace.query.answer import AnswerColumn, ArrowAnswer, Page, Shape
from tailrace.query.completeness import METADATA, Completeness
from tailrace.query.engine import ATTEMPTS
from tailrace.query.guard import Parameters
from tailrace.query.remote import RemoteArrowAnswer
from tailrace.reading import sketch
from tailrace.reading.asking import Asker, Begun, SharedSnapshot
from tailrace.reading.question import Question, gaps_of

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]  # it has no types
    import polars

T = TypeVar("T")


class Result:
    """Rows that are queried anew each time somebody reads them: as Arrow, as data frames, or by iteration
    as the dicts that `tailrace query --json` prints (nested values, JSON and `attributes` as objects). `count`
    counts, `print` and notebooks (with a drawing of spans) show the first rows, and any consumer of Arrow takes a
    result.

    Everything read from one result comes from the store's snapshot: the same rows, and the same
    completeness, until the store is refreshed. (Upkeep deletes files an hour after it merged them. A
    store that is asked later moves to the newest snapshot by itself, and `Store.version` tells.)

    Methods that ask raise QueryError when the statement cannot run, UnknownError (a QueryError that lists
    the known names) for a source, session or stream that does not exist, StoreError when the table cannot
    be read, and IncompleteError when something is missing and the caller forbade it. If files are deleted
    while an iterator or a reader reads them, it stops with BrokenOffError (a StoreError): ask again.
    `arrow`, `df` and `pl` do so themselves. Several threads may ask one result. Each iterator and each
    reader belongs to one thread."""

    def __init__(self, asking: SharedSnapshot, question: Question, *, complete_only: bool) -> None:
        self._asking = asking
        self._question = question
        self._complete_only = complete_only

    @property
    def completeness(self) -> Completeness:
        """Return what is known to be missing from these rows.

        - A missing event has a source and a session. It has a stream, unless nobody knows which; then it
          counts for every stream of its session. It has no name, kind or attributes, so filters on these,
          and limits, exclude no missing event.
        - Nobody knows when a missing event happened. With `since` or `until`, every missing event of each
          session that overlaps that time counts, however long the session is. A session lasts from its
          first byte, or its earliest event, to its close, or its latest event.
        - An answer to `sql` may concern everything, so everything that the whole table lacks counts.
        - The result states what the collector has found so far. A collector that runs on the store is
          asked once for each snapshot which events it still waits for (`ledger.reorder_time`). If it does
          not answer, nothing is called complete. The blind spots in ARCHITECTURE remain.
        - Where no event at all matches these sources, sessions, streams and times, nothing is called
          complete. A name that neither a row nor a running collector has raises UnknownError."""
        return self._asking.completeness(self._question.scope)

    def gaps(self) -> Result:
        """Return the gaps that `completeness` sums up, as rows of the view `gaps`."""
        return Result(self._asking, gaps_of(self._question), complete_only=False)

    def require_complete(self) -> Result:
        """Return the same rows, and raise IncompleteError if anything is missing: now, or when the rows
        are read after a refresh."""
        self.completeness.demand("`.gaps()`")
        return Result(self._asking, self._question, complete_only=True)

    def batches(self) -> pyarrow.RecordBatchReader:
        """Return the rows as Arrow record batches, as they are found. Few are in memory at a time."""
        begun = self._begin(lambda engine, sql, values: engine.ask_arrow(sql, values))
        words = {METADATA: json.dumps(begun.completeness.words)}
        schema = begun.answer.schema.with_metadata(words)
        return pyarrow.RecordBatchReader.from_batches(schema, _batches(begun))

    def arrow(self) -> pyarrow.Table:
        """Return all rows as an Arrow table. Its schema's metadata states what is missing, as JSON, under
        `tailrace.completeness`.

        If files are deleted while they are read, ask the newest snapshot instead."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self.batches().read_all()
            except BrokenOffError:
                self._asking.refresh()
        return self.batches().read_all()

    def df(self) -> pandas.DataFrame:
        """Return all rows as a pandas data frame. Whole numbers stay exact beside nulls (`Int64`), and
        `attrs` states what is missing.

        Raise MissingPackageError without pandas (`pip install 'tailrace[pandas]'`)."""
        library = _package("pandas")
        table = self.arrow()
        exact = {
            getattr(pyarrow, dtype.lower())(): getattr(library, f"{dtype}Dtype")()
            for dtype in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
        } | {pyarrow.bool_(): library.BooleanDtype()}
        frame: pandas.DataFrame = table.to_pandas(types_mapper=exact.get)
        frame.attrs[METADATA.decode()] = json.loads(table.schema.metadata[METADATA])
        return frame

    def pl(self) -> polars.DataFrame:
        """Return all rows as a polars data frame.

        Raise MissingPackageError without polars (`pip install 'tailrace[polars]'`)."""
        frame: polars.DataFrame = _package("polars").from_arrow(self.arrow())
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows to any consumer of Arrow (PyCapsule interface): `polars.DataFrame(result)`."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        begun = self._begin(
            lambda engine, sql, values: engine.ask(sql, Shape.JSON, parameters=values)
        )
        columns = begun.answer.columns
        names = [column.name for column in columns]
        nested = [(column.name, column.objects) for column in columns if column.embedded]
        try:
            for page in begun.patience.pages(begun.answer):
                for row in page:
                    values = dict(zip(names, row, strict=True))
                    for name, objects in nested:
                        values[name] = _parsed(values[name], objects=objects)
                    yield values
        finally:
            begun.engine.close()

    def __bool__(self) -> bool:
        """Refuse, since an answer that is empty and one that is not would look alike."""
        raise TypeError("whether there are rows must be asked: use .count()")

    def count(self) -> int:
        """Return the number of rows, without fetching them. (There is no `len`: `list` would call it, and so ask
        twice.)"""
        begun = self._begin(lambda engine, sql, values: engine.count(sql, values))
        begun.engine.close()
        return begun.answer

    def __repr__(self) -> str:
        """Describe the question without asking it; see `print`."""
        return f"<{self._question.asked}: rows when asked>"

    def __str__(self) -> str:
        """Return the first rows as a table, and what is missing."""
        return "\n".join(sketch.text(*self._first()))

    def _repr_html_(self) -> str:
        """Return the same as HTML, for notebooks."""
        return "".join(sketch.html(*self._first()))

    def _begin(self, ask: Callable[[Asker, str, Parameters], T]) -> Begun[T]:
        sql, values, scope, _ = self._question
        return self._asking.begin(
            lambda engine: ask(engine, sql, values), scope, complete_only=self._complete_only
        )

    def _first(self) -> tuple[list[AnswerColumn], Page, Completeness]:
        begun = self._begin(lambda engine, sql, values: engine.ask(sql, parameters=values))
        try:
            return begun.answer.columns, begun.answer.next_page(), begun.completeness
        finally:
            begun.engine.close()


def _batches(begun: Begun[ArrowAnswer | RemoteArrowAnswer]) -> Iterator[pyarrow.RecordBatch]:
    try:
        yield from begun.patience.batches(begun.answer)
    finally:
        begun.engine.close()


def _parsed(text: str | None, *, objects: bool) -> object:
    """Parse JSON. Text that DuckDB calls JSON although it is not (it allows NaN) stays text, and so does text in a
    column of objects that is none."""
    if text is None or (objects and not text.startswith("{")):
        return text
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(word: str) -> None:
    raise ValueError(word)


def _package(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        needs = f"this needs the package {name}: pip install 'tailrace[{name}]'"
        raise MissingPackageError(needs) from error
