"""Translate the keyword arguments of `Store`'s methods into SQL. Each value becomes a parameter of the statement, and
each column name must be a column of the view.

A query also has a `scope`, which selects the gaps whose missing events may belong to the query's rows. A gap has a
source, a session and mostly a stream, but no name and no time."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self, SupportsIndex, TypedDict

from tailrace.errors import QueryError
from tailrace.query.completeness import EVERYTHING, Scope, Window
from tailrace.query.filters import JobFilter, RowCondition, RunLabel, Selection, all_of, one_of
from tailrace.query.statement import Parameters
from tailrace.query.views import GAPS, View

TimeBound = datetime | str | SupportsIndex
"""A datetime with a time zone, an ISO 8601 text with up to nanoseconds (UTC without a zone), or Unix nanoseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"(:\d\d)[.,](\d{1,9})(?!\d)", re.ASCII)

TextFilter = str | Iterable[str]
"""One text, or several texts of which the column must equal one."""

StreamFilter = str | int | Iterable[str | int]

Labels = Mapping[str, str]
"""Keys and values of labels. A session is selected if its run has all of these labels."""

RankFilter = int | Iterable[int]


class PlaceKeywords(TypedDict, total=False):
    """Keyword arguments that select sessions by source, id, label, rank, node and job, and that select rows by time."""

    source: TextFilter | None
    session: TextFilter | None
    label: Labels | None
    rank: RankFilter | None
    node: TextFilter | None
    job: TextFilter | None
    since: TimeBound | None
    until: TimeBound | None


class StatisticsKeywords(PlaceKeywords, total=False):
    """Keyword arguments of `Store.stats`, which select the spans to measure."""

    stream: StreamFilter | None


class SessionKeywords(PlaceKeywords, total=False):
    """Keyword arguments of all methods of `Store` that return the rows of a view."""

    columns: TextFilter | None
    order: TextFilter | None
    limit: SupportsIndex | None


class StreamKeywords(SessionKeywords, total=False):
    """Keyword arguments of the `Store` methods that return rows with a column `stream`."""

    stream: StreamFilter | None


class GapKeywords(StreamKeywords, total=False):
    reason: TextFilter | None


class NamedKeywords(StreamKeywords, total=False):
    name: TextFilter | None


class EventKeywords(NamedKeywords, total=False):
    kind: TextFilter | None


class Question(NamedTuple):
    """A query to a store: an SQL statement with its parameters, the scope (which selects the gaps whose events may be
    missing from the answer), and the text of the Python call that made the query."""

    sql: str
    parameters: Parameters
    scope: Scope
    asked: str


class Filters(NamedTuple):
    """The conditions that the keyword arguments of a query set for the rows of a view. None stands for no condition."""

    source: TextFilter | None = None
    session: TextFilter | None = None
    stream: StreamFilter | None = None
    since: TimeBound | None = None
    until: TimeBound | None = None
    name: TextFilter | None = None
    kind: TextFilter | None = None
    reason: TextFilter | None = None
    labels: tuple[RunLabel, ...] | None = None
    job: JobFilter = JobFilter()

    @classmethod
    def of(
        cls,
        *,
        label: object = None,
        rank: object = None,
        node: TextFilter | None = None,
        job: TextFilter | None = None,
        **equal: Any,  # noqa: ANN401 - the fields know their types
    ) -> Self:
        """Return the filters for keywords such as those in `EventKeywords`. Raise QueryError for a wrong type."""
        if label is not None and (not isinstance(label, Mapping) or not label):
            example = "{'revision': '4a5b6c'}"
            raise QueryError(f"label: {label!r} is no mapping of texts, as in {example}")
        pairs = None if label is None else [_texts("label", pair) for pair in label.items()]
        labels = None if pairs is None else tuple(RunLabel(key, value) for key, value in pairs)
        ranks = None
        if rank is not None:
            ranks = tuple(rank) if isinstance(rank, Iterable) else (rank,)
            for each in ranks:
                if not isinstance(each, int) or isinstance(each, bool):
                    raise QueryError(f"rank: {each!r} is not a whole number")
        where = JobFilter(ranks, _all_texts("node", node), _all_texts("job", job))
        return cls(**equal, labels=labels, job=where)

    @property
    def selection(self) -> Selection:
        return Selection(
            _all_texts("source", self.source),
            _all_texts("session", self.session),
            _all_texts("stream", self.stream),
            self.labels,
            self.job,
        )

    @property
    def window(self) -> Window:
        since = None if self.since is None else unix_ns(self.since, "since")
        until = None if self.until is None else unix_ns(self.until, "until")
        return Window(self.selection, since, until)

    @property
    def scope(self) -> Scope:
        """Selects the gaps whose missing events may belong to the rows. Filters by name and time exclude no gap of a
        selected session, because gaps have no name and no time."""
        return self.window.scope

    def rows(self, view: View) -> RowCondition:
        """Return one SQL condition for a view. Without a column `time`, `since` and `until` select sessions."""
        timed = any(column.name == "time" for column in view.columns)
        equal = (("name", self.name), ("kind", self.kind), ("reason", self.reason))
        columns = [one_of(key, _texts(key, texts)) for key, texts in equal if texts is not None]
        return all_of([self.window.rows if timed else self.window.of_sessions, *columns])


def select(
    view: View,
    *,
    columns: TextFilter | None = None,
    order: TextFilter | None = None,
    limit: SupportsIndex | None = None,
    **keywords: Any,  # noqa: ANN401 - `Filters.of` knows their types
) -> Question:
    """Return the SQL query for the rows of a view that keyword arguments such as those in `EventKeywords` select."""
    filters = Filters.of(**keywords)
    rows = filters.rows(view)
    shown = "*"
    if columns is not None:
        shown = ", ".join(_column(view, name) for name in _texts("columns", columns))
        if not shown:
            raise QueryError("columns: name at least one")
    sql = f"SELECT {shown} FROM {view.name} WHERE {rows.sql}{_order(view, order)}"  # noqa: S608 - our own words
    values = list(rows.values)
    if limit is not None:
        try:
            values.append(operator.index(limit))
        except TypeError:
            raise QueryError(f"limit: {limit!r} is not a whole number") from None
        if operator.index(limit) < 0:
            raise QueryError(f"limit: {limit} is negative")
        sql += " LIMIT ?"
    chosen = filters._asdict() | {"columns": columns, "order": order, "limit": limit}
    asked = ", ".join(f"{key}={value!r}" for key, value in chosen.items() if value is not None)
    return Question(sql, values, filters.scope, f"{view.name}({asked})")


def gaps_of(question: Question) -> Question:
    """Return the SQL query for the gaps whose missing events may belong to the rows that the query `question`
    selects."""
    gaps = question.scope.gaps
    sql = f"SELECT * FROM gaps WHERE {gaps.sql}{_order(GAPS, None)}"  # noqa: S608 - our own words
    return Question(sql, gaps.values, question.scope, f"gaps of {question.asked}")


def statement(sql: str, parameters: Parameters) -> Question:
    """Return the caller's SQL statement as a query (`Question`). Its scope is all gaps, because the statement may read
    any rows."""
    if isinstance(parameters, str) or not isinstance(parameters, dict | list | tuple):
        raise QueryError("parameters: pass a list for ? or a dict for $name")
    return Question(sql, parameters, EVERYTHING, f"sql({' '.join(sql.split())!r})")


def _order(view: View, order: TextFilter | None) -> str:
    """Return the ORDER BY clause for the keyword `order`. A column with the prefix `-` is sorted in descending order."""
    if order is None:
        return f" ORDER BY {view.order}" if view.order else ""
    names = [
        f"{_column(view, name.removeprefix('-'))} {'DESC' if name.startswith('-') else 'ASC'}"
        for name in _texts("order", order)
    ]
    return f" ORDER BY {', '.join(names)}" if names else ""


def _column(view: View, name: str) -> str:
    names = [column.name for column in view.columns]
    if name not in names:
        raise QueryError(f"{view.name} has no column {name!r}; it has {', '.join(names)}")
    return f'"{name}"'


def _all_texts(keyword: str, values: StreamFilter | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(_texts(keyword, values))


def _texts(keyword: str, values: object) -> list[str]:
    """Return the value of a keyword as a list of texts. A stream may also be a number. Raise QueryError otherwise."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    texts = []
    for each in several:
        text = str(each) if keyword == "stream" and isinstance(each, int) else each
        if not isinstance(text, str):
            raise QueryError(f"{keyword}: {text!r} is not text")
        texts.append(text)
    return texts


def unix_ns(time: TimeBound, keyword: str) -> int:
    """Return a time as Unix nanoseconds. Raise QueryError, which names the keyword, if the value is not a time."""
    nanoseconds = 0
    if isinstance(time, str):
        if fraction := _FRACTION.search(time):
            nanoseconds = int(fraction[2].ljust(9, "0"))
        try:
            found = datetime.fromisoformat(_FRACTION.sub(r"\1", time, count=1))
        except ValueError:
            example = "write it as 2026-11-21 08:30:00Z"
            raise QueryError(f"{keyword}: {time!r} is not a time; {example}") from None
        time = found if found.tzinfo else found.replace(tzinfo=UTC)
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            how = "add one, for example tzinfo=UTC"
            raise QueryError(f"{keyword}: {time!r} has no time zone; {how}")
        return (time - _EPOCH) // timedelta(microseconds=1) * 1000 + nanoseconds
    try:
        return operator.index(time)
    except TypeError:
        kinds = "a datetime, text or a whole number of Unix nanoseconds"
        raise QueryError(f"{keyword}: {time!r} is not {kinds}") from None
