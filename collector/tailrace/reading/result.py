"""Return the answer to a question in several forms, and draw a sketch of its first rows.

In notebooks the sketch is a small SVG of spans. The sketch has exactly the rows of the table beside it, so
the sketch does not represent the whole answer.
"""

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
from tailrace.query.answer import AnswerColumn, ArrowAnswer, Page, Shape
from tailrace.query.completeness import METADATA, Completeness
from tailrace.query.engine import ATTEMPTS
from tailrace.query.remote import RemoteArrowAnswer
from tailrace.query.statement import Parameters
from tailrace.reading.question import Question, gaps_of
from tailrace.reading.snapshot import AnyEngine, SnapshotReader, StartedAnswer
from tailrace.terminal import printable

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
    store that is asked later moves to the newest snapshot by itself, which `Store.version` shows.)

    Methods that ask raise QueryError when the statement cannot run, UnknownError (a QueryError that lists
    the known names) for a source, session or stream that does not exist, StoreError when the table cannot
    be read, and IncompleteError when something is missing and the caller forbade it. If files are deleted
    while an iterator or a reader reads them, it stops with BrokenOffError (a StoreError): ask again.
    `arrow`, `df` and `pl` do so themselves. Several threads may ask one result. Each iterator and each
    reader belongs to one thread."""

    def __init__(
        self, snapshot: SnapshotReader, question: Question, *, complete_only: bool
    ) -> None:
        self._snapshot = snapshot
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
        return self._snapshot.completeness(self._question.scope)

    def gaps(self) -> Result:
        """Return the gaps that `completeness` sums up, as rows of the view `gaps`."""
        return Result(self._snapshot, gaps_of(self._question), complete_only=False)

    def require_complete(self) -> Result:
        """Return the same rows, and raise IncompleteError if anything is missing: now, or when the rows
        are read after a refresh."""
        self.completeness.demand("`.gaps()`")
        return Result(self._snapshot, self._question, complete_only=True)

    def batches(self) -> pyarrow.RecordBatchReader:
        """Return the rows as Arrow record batches, as they are found. Few are in memory at a time."""
        started = self._begin(lambda engine, sql, values: engine.ask_arrow(sql, values))
        words = {METADATA: json.dumps(started.completeness.words)}
        schema = started.answer.schema.with_metadata(words)
        return pyarrow.RecordBatchReader.from_batches(schema, _batches(started))

    def arrow(self) -> pyarrow.Table:
        """Return all rows as an Arrow table. Its schema's metadata states what is missing, as JSON, under
        `tailrace.completeness`.

        If files are deleted while they are read, ask the newest snapshot instead."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self.batches().read_all()
            except BrokenOffError:
                self._snapshot.refresh()
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
        """Raise an error, because the truth value would hide whether the answer is empty."""
        raise TypeError("whether there are rows must be asked: use .count()")

    def count(self) -> int:
        """Return the number of rows, without fetching them. (There is no `len`: `list` would call it, and so ask
        twice.)"""
        started = self._begin(lambda engine, sql, values: engine.count(sql, values))
        started.engine.close()
        return started.answer

    def __repr__(self) -> str:
        """Return a description of the question, without running it. To see rows, use `print`."""
        return f"<{self._question.asked}: rows when asked>"

    def __str__(self) -> str:
        """Return the first rows as a text table, followed by the missing events."""
        return "\n".join(text(*self._first()))

    def _repr_html_(self) -> str:
        """Return the first rows and the missing events as HTML, for notebooks."""
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


def _batches(
    started: StartedAnswer[ArrowAnswer | RemoteArrowAnswer],
) -> Iterator[pyarrow.RecordBatch]:
    try:
        yield from started.patience.batches(started.answer)
    finally:
        started.engine.close()


def _parsed(text: str | None, *, objects: bool) -> object:
    """Return the parsed JSON. Return a text unchanged if the text is invalid JSON (DuckDB allows NaN), or if
    the column is one of objects and the text is not an object."""
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


WIDTH, LABEL, BAR, MARGIN = 720, 160, 12, 3
"""Sizes in pixels: the width of the drawing, the width of the stream names on its left, the height of a span,
and the space between spans."""

LANES = 40
"""Maximum number of lanes in the drawing. The first rows of an answer may nest deeper."""

CUT = 60
"""Maximum length (characters) of a name in a tooltip. A stream's label has a third of this length."""

PLACE = ("source", "session", "stream", "substream")


class Bar(NamedTuple):
    """A drawn span, with its start and end in units of the axis. `end` is None while the span is open."""

    place: tuple[str, ...]
    name: str
    start: int
    end: int | None


def sketch(columns: Sequence[AnswerColumn], page: Page) -> Iterator[str]:
    """Yield the parts of an SVG. Yield nothing if the rows have no spans on a common axis."""
    unit, bars = _bars([column.name for column in columns], page)
    if not bars:
        return
    first = min(bar.start for bar in bars)
    last = max(bar.start if bar.end is None else bar.end for bar in bars)
    lanes = _lanes(bars)
    height = (len(lanes) + 1) * (BAR + MARGIN)
    yield f'<svg width="{WIDTH}" height="{height}" role="img" font-size="10" font-family="sans-serif">'
    yield f"<title>{len(bars)} spans over {last - first} {unit}</title>"
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
            style = 'fill="none" stroke="#4a7db5" stroke-dasharray="3"'
            style = style if bar.end is None else 'fill="#4a7db5"'
            yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" {style}>'
            yield f"<title>{_text((bar.name,), CUT)}: {_length(bar, unit)}</title></rect>"
    yield f'<text x="{LABEL}" y="{height - MARGIN}" fill="currentColor">{last - first} {unit}</text></svg>'


def _bars(names: list[str], page: Page) -> tuple[str, list[Bar]]:
    """Return the unit of the axis, and the spans.

    The unit is nanoseconds if all spans have wall time, otherwise ticks if all spans are of one session. The
    types of the values are checked, because a statement may give a column any name."""
    rows = [dict(zip(names, row, strict=True)) for row in page]
    spans = [row for row in rows if _is_span(row)]
    wall = [
        (
            row.get("time"),
            None if row["end"] is None else _sum(row.get("time"), row.get("duration")),
        )
        for row in spans
    ]
    if all(
        isinstance(start, int) and (row["end"] is None or end is not None)
        for row, (start, end) in zip(spans, wall, strict=True)
    ):
        return "ns", [_bar(row, *times) for row, times in zip(spans, wall, strict=True)]
    if "session" in names and len({row["session"] for row in spans}) == 1:
        return "ticks", [_bar(row, row["start"], row["end"]) for row in spans]
    return "", []


def _is_span(row: dict[str, Any]) -> bool:
    """Return whether a row is a span that is open, or ends no earlier than its start."""
    start, end = row.get("start"), row.get("end")
    if not isinstance(start, int) or "name" not in row:
        return False
    if row.get("open") == "true":
        return end is None
    return row.get("open") == "false" and isinstance(end, int) and end >= start


def _sum(first: object, second: object) -> int | None:
    return first + second if isinstance(first, int) and isinstance(second, int) else None


def _bar(row: dict[str, Any], start: Any, end: int | None) -> Bar:  # noqa: ANN401 - checked above
    place = tuple(str(row[key]) for key in PLACE if row.get(key) is not None)
    return Bar(place, str(row["name"]), start, end)


def _lanes(bars: list[Bar]) -> list[list[Bar]]:
    """Return lanes of spans that do not overlap. The lanes of a stream are adjacent, and the longest span is
    placed first."""
    lanes: dict[tuple[str, ...], list[list[Bar]]] = {}
    for bar in sorted(
        bars, key=lambda bar: (bar.place, bar.start, bar.end is not None, -(bar.end or 0))
    ):
        own = lanes.setdefault(bar.place, [])
        free = next((lane for lane in own if _is_over(lane[-1], bar.start)), None)
        if free is None:
            own.append([bar])
        else:
            free.append(bar)
    return [lane for own in lanes.values() for lane in own][:LANES]


def _is_over(bar: Bar, time: int) -> bool:
    return bar.end is not None and bar.end <= time


def _length(bar: Bar, unit: str) -> str:
    return "open" if bar.end is None else f"{bar.end - bar.start} {unit}"


def _text(words: Sequence[str], most: int) -> str:
    text = printable("".join(words)[: most + 1])
    return escape(text if len(text) <= most else f"{text[: most - 1]}…")


ROWS = 20
CELLS = 80
"""Maximum width (terminal cells) of a value in HTML. A longer value is cut."""


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
        return f"the first {shown} rows"
    return "1 row" if shown == 1 else f"{shown} rows"
