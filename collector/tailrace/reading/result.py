"""Return the rows that answer a query in several forms: Arrow tables, data frames, Python values.

A notebook shows the first rows of a result as a table, and the spans among these rows as an SVG picture."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow  # type: ignore[import-untyped]  # it has no types

from tailrace.errors import BrokenOffError, MissingPackageError
from tailrace.query import output
from tailrace.query.answer import AnswerColumn, Page, Shape
from tailrace.query.completeness import METADATA, Completeness
from tailrace.query.engine import ATTEMPTS
from tailrace.query.statement import Parameters
from tailrace.reading.question import Question, gaps_of
from tailrace.reading.snapshot import AnyEngine, SnapshotReader, StartedAnswer
from tailrace.terminal import printable
from tailrace.units import counted

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]  # it has no types
    import polars

T = TypeVar("T")


class Result:
    """The rows that answer a query. Each time you read them, the query runs again. You can read them as Arrow, as data
    frames, or by iteration as the dicts that `tailrace query --json` prints (nested values, JSON and `attributes` as
    objects). `count` returns their number, `print` and notebooks show the first rows (notebooks with a picture of
    spans), and any program that takes Arrow data takes a result.

    Until the store is refreshed, a result has the rows and the completeness of the store's snapshot. (Upkeep deletes
    files an hour after it has merged them. If a query needs a deleted file, the store takes the newest snapshot by
    itself, which `Store.version` shows.)

    Methods that run the query raise QueryError if the statement cannot run, UnknownError (a QueryError that lists the
    known names) for a source, session or stream that does not exist, StoreError if the table cannot be read, and
    IncompleteError if something is missing and you required completeness. If files are deleted while an iterator or a
    reader reads them, it raises BrokenOffError (a StoreError): read the result again. `arrow`, `df` and `pl` do this
    themselves. Several threads may read one result. Each iterator and each reader belongs to one thread."""

    def __init__(
        self, snapshot: SnapshotReader, question: Question, *, complete_only: bool
    ) -> None:
        self._snapshot = snapshot
        self._question = question
        self._complete_only = complete_only

    @property
    def completeness(self) -> Completeness:
        """Completeness of these rows: the events that are known to be missing, counted by reason.

        - A missing event has a source and a session. Its stream is mostly known; if not, it counts for every stream of
          its session. It has no name, kind or attributes, so filters on these do not exclude it, and neither does
          `limit`.
        - The time of a missing event is unknown. With `since` or `until`, every missing event counts whose session
          overlaps that time, however long the session is. A session lasts from its first byte or earliest event until
          its close or latest event.
        - The rows of `sql` may depend on any event, so every missing event of the table counts.
        - Only losses count that the collector has found so far. A collector that runs on the store is asked, once for
          each snapshot, which events it still awaits (`ledger.reorder_time`). If it does not answer, the rows do not
          count as complete. Some losses cannot be found at all (the blind spots in ARCHITECTURE).
        - If no event matches these sources, sessions, streams and times, the rows do not count as complete. A name
          that occurs neither in the table nor in a running collector raises UnknownError."""
        return self._snapshot.completeness(self._question.scope)

    def gaps(self) -> Result:
        """Return the gaps from which `completeness` is computed: the rows of the view `gaps` that may concern this
        result."""
        return Result(self._snapshot, gaps_of(self._question), complete_only=False)

    def require_complete(self) -> Result:
        """Return a result with the same rows, which must be complete. Raise IncompleteError if events are missing.

        Reading the returned result also raises IncompleteError if events are missing then, because `Store.refresh` may
        have changed the snapshot."""
        self.completeness.demand("`.gaps()`")
        return Result(self._snapshot, self._question, complete_only=True)

    def batches(self) -> pyarrow.RecordBatchReader:
        """Return a reader that yields the rows as Arrow record batches while the query finds them. Few batches are in
        memory at a time."""

        def batches() -> Iterator[pyarrow.RecordBatch]:
            try:
                yield from started.patience.batches(started.answer)
            finally:
                started.engine.close()

        started = self._begin(lambda engine, sql, values: engine.ask_arrow(sql, values))
        words = {METADATA: json.dumps(started.completeness.words)}
        schema = started.answer.schema.with_metadata(words)
        return pyarrow.RecordBatchReader.from_batches(schema, batches())

    def arrow(self) -> pyarrow.Table:
        """Return all rows as an Arrow table. The metadata of its schema states what is missing, as JSON under
        `tailrace.completeness`.

        If upkeep (merges and clean-up of the table) deletes files during the read, read the newest snapshot instead."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self.batches().read_all()
            except BrokenOffError:
                self._snapshot.refresh()
        return self.batches().read_all()

    def df(self) -> pandas.DataFrame:
        """Return all rows as a pandas data frame. Columns of whole numbers have the type `Int64`, which stays exact
        even with nulls. The frame's `attrs` state what is missing.

        Raise MissingPackageError if pandas is not installed (`pip install 'tailrace[pandas]'`)."""
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

        Raise MissingPackageError if polars is not installed (`pip install 'tailrace[polars]'`)."""
        frame: polars.DataFrame = _package("polars").from_arrow(self.arrow())
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Pass the rows to any program that takes Arrow data (PyCapsule interface), such as `polars.DataFrame(result)`."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        started = self._begin(
            lambda engine, sql, values: engine.ask(sql, Shape.JSON, parameters=values)
        )
        columns = started.answer.columns
        names = [column.name for column in columns]
        nested = [(column.name, column.objects) for column in columns if column.embedded]
        try:
            for page in started.patience.pages(started.answer):
                for row in page:
                    values = dict(zip(names, row, strict=True))
                    for name, objects in nested:
                        values[name] = _parsed(values[name], objects=objects)
                    yield values
        finally:
            started.engine.close()

    def __bool__(self) -> bool:
        """Raise TypeError, because a result has no truth value. Otherwise, `if result:` could be mistaken for a check
        whether there are rows."""
        raise TypeError("a result has no truth value: use .count() to find out whether it has rows")

    def count(self) -> int:
        """Return the number of rows, without reading them. (A result has no `len`, because `list` would call it and
        thus run the query twice.)"""
        started = self._begin(lambda engine, sql, values: engine.count(sql, values))
        started.engine.close()
        return started.answer

    def __repr__(self) -> str:
        """Return the text of the call that made this result, without running the query. (`print` shows the rows.)"""
        return f"<{self._question.asked}: rows when asked>"

    def __str__(self) -> str:
        """Return the first rows as a text table, followed by a line about missing events."""
        return "\n".join(text(*self._first()))

    def _repr_html_(self) -> str:
        """Return the first rows, and a line about missing events, as HTML for notebooks."""
        return "".join(html(*self._first()))

    def _begin(self, ask: Callable[[AnyEngine, str, Parameters], T]) -> StartedAnswer[T]:
        sql, values, scope, _ = self._question
        return self._snapshot.begin(
            lambda engine: ask(engine, sql, values), scope, complete_only=self._complete_only
        )

    def _first(self) -> tuple[list[AnswerColumn], Page, Completeness]:
        started = self._begin(lambda engine, sql, values: engine.ask(sql, parameters=values))
        try:
            return started.answer.columns, started.answer.next_page(), started.completeness
        finally:
            started.engine.close()


def _parsed(text: str | None, *, objects: bool) -> object:
    """Return the JSON value in a text, or the text itself if it is not JSON, such as NaN. With `objects`, decode only
    JSON objects."""
    if text is None or (objects and not text.startswith("{")):
        return text
    try:
        return json.loads(text, parse_constant=int)  # raises ValueError for a word such as NaN
    except (ValueError, RecursionError):
        return text


def _package(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        needs = f"this needs the package {name}: pip install 'tailrace[{name}]'"
        raise MissingPackageError(needs) from error


WIDTH, LABEL, BAR, MARGIN = 720, 160, 12, 3
"""Sizes in pixels: the width of the drawing and of the stream names on its left, the height of a span and a space."""

LANES = 40
"""Maximum number of lanes (rows of spans) in the drawing; further lanes are left out."""

CUT = 60
"""Maximum length (characters) of a name in a tooltip. The label of a stream has at most a third of this length."""

PLACE = ("source", "session", "stream", "substream")


class Bar(NamedTuple):
    """A span to draw, with its start and end in the drawing's unit of time. `end` is None while the span is open."""

    place: tuple[str, ...]
    name: str
    start: int
    end: int | None


def sketch(columns: Sequence[AnswerColumn], page: Page) -> Iterator[str]:
    """Yield the parts of an SVG that draws the spans among some rows, if there are any whose times can be compared."""
    unit, bars = _bars([column.name for column in columns], page)
    if not bars:
        return
    first = min(bar.start for bar in bars)
    last = max(bar.start if bar.end is None else bar.end for bar in bars)
    lanes = _lanes(bars)
    height = (len(lanes) + 1) * (BAR + MARGIN)
    yield f'<svg width="{WIDTH}" height="{height}" role="img" font-size="10" font-family="sans-serif">'
    yield f"<title>{counted(len(bars), 'span')} over {last - first} {unit}</title>"
    scale = (WIDTH - LABEL - 1) / ((last - first) or 1)
    before: tuple[str, ...] = ()
    for number, lane in enumerate(lanes):
        y = number * (BAR + MARGIN)
        if lane[0].place != before:
            before = lane[0].place
            yield f'<text x="0" y="{y + BAR - 2}" fill="currentColor">{_text(before[-1:], CUT // 3)}</text>'
        for bar in lane:
            end = last if bar.end is None else bar.end
            x, width = LABEL + (bar.start - first) * scale, max((end - bar.start) * scale, 1.0)
            style = 'fill="#4a7db5"'
            length = f"{end - bar.start} {unit}"
            if bar.end is None:
                style, length = 'fill="none" stroke="#4a7db5" stroke-dasharray="3"', "open"
            yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" {style}>'
            yield f"<title>{_text((bar.name,), CUT)}: {length}</title></rect>"
    yield f'<text x="{LABEL}" y="{height - MARGIN}" fill="currentColor">{last - first} {unit}</text></svg>'


def _bars(names: list[str], page: Page) -> tuple[str, list[Bar]]:
    """Return the spans among some rows, and their unit of time: nanoseconds if all have wall time, ticks if all are of
    one session. Otherwise return no spans. Check all types, because an SQL statement may give these names to any
    columns."""
    rows = [dict(zip(names, row, strict=True)) for row in page]
    spans = [row for row in rows if _is_span(row)]
    bars = []
    for row in spans:
        start = row.get("time")
        length = 0 if row["end"] is None else row.get("duration")
        if not isinstance(start, int) or not isinstance(length, int):
            break
        bars.append(_bar(row, start, None if row["end"] is None else start + length))
    if len(bars) == len(spans):
        return "ns", bars
    if "session" in names and len({row["session"] for row in spans}) == 1:
        return "ticks", [_bar(row, row["start"], row["end"]) for row in spans]
    return "", []


def _is_span(row: dict[str, Any]) -> bool:
    """Return whether a row is a span that can be drawn: an open span, or a span that does not end before its start."""
    start, end = row.get("start"), row.get("end")
    if not isinstance(start, int) or "name" not in row:
        return False
    if row.get("open") == "true":
        return end is None
    return row.get("open") == "false" and isinstance(end, int) and end >= start


def _bar(row: dict[str, Any], start: int, end: int | None) -> Bar:
    place = tuple(str(row[key]) for key in PLACE if row.get(key) is not None)
    return Bar(place, str(row["name"]), start, end)


def _lanes(bars: list[Bar]) -> list[list[Bar]]:
    """Distribute spans over lanes (rows of the drawing), so that the spans in one lane do not overlap. The lanes of a
    stream are adjacent. The longest of several spans with one start is placed first."""
    lanes: dict[tuple[str, ...], list[list[Bar]]] = {}
    for bar in sorted(
        bars, key=lambda bar: (bar.place, bar.start, bar.end is not None, -(bar.end or 0))
    ):
        own = lanes.setdefault(bar.place, [])
        ended = (lane for lane in own if (end := lane[-1].end) is not None and end <= bar.start)
        if (free := next(ended, None)) is None:
            own.append([bar])
        else:
            free.append(bar)
    return [lane for own in lanes.values() for lane in own][:LANES]


def _text(words: Sequence[str], most: int) -> str:
    text = printable("".join(words)[: most + 1])
    return escape(text if len(text) <= most else f"{text[: most - 1]}…")


ROWS = 20
CELLS = 80
"""Maximum width (terminal cells) of a value in the HTML table. A longer value is cut off."""


def text(columns: Sequence[AnswerColumn], page: Page, whole: Completeness) -> Iterator[str]:
    yield from output.layout(columns, [page[:ROWS]], width=shutil.get_terminal_size().columns)
    yield f"[{_rows(page)}; {whole.text}]"


def html(columns: Sequence[AnswerColumn], page: Page, whole: Completeness) -> Iterator[str]:
    yield "<table><thead><tr>"
    for column in columns:
        yield f"<th>{_cell(column.name)}</th>"
    yield "</tr></thead><tbody>"
    for row in page[:ROWS]:
        yield "<tr>"
        for column, value in zip(columns, row, strict=True):
            side = "right" if column.number else "left"
            shown = output.NULL if value is None else str(value)
            yield f'<td style="text-align: {side}">{_cell(shown)}</td>'
        yield "</tr>"
    yield "</tbody></table>"
    yield from sketch(columns, page[:ROWS])
    yield f"<p>{_rows(page)}; "
    yield whole.text if whole.complete else f"<strong>{escape(whole.text)}</strong>"
    yield "</p>"


def _cell(value: str) -> str:
    return escape(output.clip(printable(value[: 2 * CELLS]), CELLS))


def _rows(page: Page) -> str:
    shown = min(len(page), ROWS)
    if len(page) > ROWS:
        return f"the first {counted(shown, 'row')}"
    return counted(shown, "row")
