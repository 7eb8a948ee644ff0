"""The answer to a question, in whichever shape is wanted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow  # type: ignore[import-untyped]  # it has no types

from tailrace.errors import MissingPackageError
from tailrace.query.answer import ArrowAnswer, Column, Page, Shape
from tailrace.query.completeness import Completeness
from tailrace.query.guard import Parameters
from tailrace.query.remote import RemoteArrowAnswer
from tailrace.reading import preview
from tailrace.reading.asking import Asker, Asking, Begun
from tailrace.reading.question import Question, gaps_of

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]  # it has no types
    import polars

T = TypeVar("T")

METADATA = b"tailrace.completeness"


class Result:
    """Rows that are looked for when they are wanted, and each time anew: as Arrow, as data frames, by
    iteration as dicts of what `tailrace query --json` prints (nested values and JSON as objects). `len`
    counts, `print` and notebooks show the first rows, and what takes Arrow takes a result.

    All that is got from one result is of the store's snapshot: the same rows, and what is missing of
    them, until the store is refreshed. (Upkeep deletes files an hour after it has merged them; a store
    that is asked later goes on to the newest snapshot by itself, and `Store.version` tells.)

    Everything that asks raises QueryError when the statement cannot be run, UnknownError (a QueryError
    that lists what there is) for a source, session or stream that there is not, StoreError when the table
    cannot be read, and IncompleteError when something is missing and that was forbidden. An answer
    that is still being read when its files are deleted may be broken off with StoreError: ask again.
    A result may be asked from several threads; each iterator and each reader belongs to one.
    """

    def __init__(self, asking: Asking, question: Question, *, complete_only: bool) -> None:
        self._asking = asking
        self._question = question
        self._complete_only = complete_only

    @property
    def completeness(self) -> Completeness:
        """What is missing of these rows, as far as it is known and can be told.

        - A missing event has a source and a session. It has a stream, unless nobody knows which; then
          it counts for every stream of its session. It has neither name nor kind nor attributes:
          choosing rows by these, or limiting them, leaves out nothing that is missing.
        - Nobody knows when it happened. With `since` or `until`, what is missing of the sessions of
          that time counts, however long they are: sessions go from their first byte, or their
          earliest event, to their close, or their latest event.
        - An answer to `sql` may be about everything: what is missing of the whole table counts.
        - Known is what the collector has found by now. Where one runs on the store, it is asked what it
          still waits for (`ledger.reorder_time`), once a snapshot; what it does not say is not complete.
          The blind spots in ARCHITECTURE stay blind.
        - Where there is no event at all of these sources, sessions, streams and times, nothing is
          complete. One that no row has, and that no running collector has, is an UnknownError.
        """
        return self._asking.completeness(self._question.scope)

    def gaps(self) -> Result:
        """The gaps that `completeness` sums up, as rows of the view `gaps`."""
        return Result(self._asking, gaps_of(self._question), complete_only=False)

    def require_complete(self) -> Result:
        """The same rows, if nothing is missing of them: raise IncompleteError, now or when they are
        asked for after a refresh, if anything is."""
        self.completeness.demand("`.gaps()`")
        return Result(self._asking, self._question, complete_only=True)

    def batches(self) -> pyarrow.RecordBatchReader:
        """Rows as Arrow record batches, as they are found; no more than a few are in memory."""
        begun = self._begin(lambda engine, sql, values: engine.ask_arrow(sql, values))
        words = {METADATA: json.dumps(_words(begun.completeness))}
        schema = begun.answer.schema.with_metadata(words)
        return pyarrow.RecordBatchReader.from_batches(schema, _batches(begun))

    def arrow(self) -> pyarrow.Table:
        """All rows as an Arrow table. What is missing is in its schema's metadata, as JSON, under
        `tailrace.completeness`."""
        return self.batches().read_all()

    def df(self) -> pandas.DataFrame:
        """All rows as a pandas data frame, whole numbers exact beside nulls (`Int64`). What is missing
        is in its `attrs`. Raise MissingPackageError without pandas (`pip install 'tailrace[pandas]'`)."""
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
        """All rows as a polars data frame. Raise MissingPackageError without polars
        (`pip install 'tailrace[polars]'`)."""
        frame: polars.DataFrame = _package("polars").from_arrow(self.arrow())
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """For what takes Arrow (PyCapsule interface): `polars.DataFrame(result)`."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        begun = self._begin(
            lambda engine, sql, values: engine.ask(sql, Shape.JSON, parameters=values)
        )
        columns = begun.answer.columns
        names = [column.name for column in columns]
        nested = [column.name for column in columns if column.embedded]
        try:
            for page in begun.patience.pages(begun.answer):
                for row in page:
                    values = dict(zip(names, row, strict=True))
                    for name in nested:
                        values[name] = _parsed(values[name])
                    yield values
        finally:
            begun.engine.close()

    def __len__(self) -> int:
        """How many rows there are: counted, not fetched. (`list` asks this, too, before it fetches.)"""
        begun = self._begin(lambda engine, sql, values: engine.count(sql, values))
        begun.engine.close()
        return begun.answer

    def __repr__(self) -> str:
        """Asks nothing; see `print`."""
        return f"<{self._question.asked}: rows when asked>"

    def __str__(self) -> str:
        """The first rows as a table, and what is missing."""
        return "\n".join(preview.text(*self._first()))

    def _repr_html_(self) -> str:
        """The same, for notebooks."""
        return "".join(preview.html(*self._first()))

    def _begin(self, ask: Callable[[Asker, str, Parameters], T]) -> Begun[T]:
        sql, values, scope, _ = self._question
        return self._asking.begin(
            lambda engine: ask(engine, sql, values), scope, complete_only=self._complete_only
        )

    def _first(self) -> tuple[list[Column], Page, Completeness]:
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


def _words(whole: Completeness) -> dict[str, object]:
    return {"complete": whole.complete, **whole._asdict()}


def _parsed(text: str | None) -> object:
    """What is called JSON and is not (DuckDB lets NaN be) stays text."""
    if text is None:
        return None
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
