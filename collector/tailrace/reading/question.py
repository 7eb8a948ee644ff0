"""Translate the keyword arguments of `Store`'s methods into SQL. Each value becomes a parameter of the statement, and
each column name must be a column of the view.

A query also has a `scope`, which selects the gaps whose missing events may belong to the query's rows. A gap has a
source, a session and mostly a stream, but no name and no time.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, SupportsIndex, TypedDict

from tailrace.errors import QueryError
from tailrace.query.completeness import EVERYTHING, Scope, Window
from tailrace.query.filters import JobFilter, RowCondition, RunLabel, Selection, all_of, one_of
from tailrace.query.statement import Parameters
from tailrace.query.views import GAPS, View

TimeBound = datetime | str | SupportsIndex
"""Type of the keywords `since` and `until`: a datetime with a time zone, an ISO 8601 text with up to nanoseconds (UTC
unless the text has a zone), or Unix nanoseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"(:\d\d)[.,](\d{1,9})(?!\d)", re.ASCII)

TextFilter = str | Iterable[str]
"""Type of a keyword that filters by a column: one text, or several texts. In each selected row, the column equals one
of them.
"""

StreamFilter = str | int | Iterable[str | int]

Labels = Mapping[str, str]
"""Type of the keyword `label`: the values of labels by their keys. The run of a selected session has all of these
labels.
"""

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
    """Keyword arguments of those methods of `Store` whose rows have a column `stream`."""

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
    """The conditions that the rows of a view must meet, by keyword. A row must meet all of them. None stands for no
    condition.
    """

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

    def rows(self, view: View) -> RowCondition:
        """Return the conditions of these filters as one SQL condition for a view. If the view has no column `time`,
        `since` and `until` apply to the times of the rows' sessions."""
        timed = any(column.name == "time" for column in view.columns)
        columns = [
            *_equal("name", self.name),
            *_equal("kind", self.kind),
            *_equal("reason", self.reason),
        ]
        return all_of([self.window.rows if timed else self.window.of_sessions, *columns])

    @property
    def scope(self) -> Scope:
        """Scope that selects the gaps whose events may be missing from the selected rows.

        Gaps have no name and no time. The scope therefore ignores the condition on names, and selects whole sessions by
        `since` and `until`."""
        return self.window.scope


def select(
    view: View,
    *,
    columns: TextFilter | None = None,
    order: TextFilter | None = None,
    limit: SupportsIndex | None = None,
    label: Labels | None = None,
    rank: RankFilter | None = None,
    node: TextFilter | None = None,
    job: TextFilter | None = None,
    **equal: Any,  # noqa: ANN401 - `Filters` knows their types
) -> Question:
    """Return the SQL query for the rows of a view that keyword arguments such as those in `EventKeywords` select. Raise
    QueryError if a value does not have the type that its keyword requires."""
    filters = Filters(**equal, labels=labels_of(label), job=job_of(rank, node, job))
    rows = filters.rows(view)
    sql = f"SELECT {_columns(view, columns)} FROM {view.name} WHERE {rows.sql}{_order(view, order)}"  # noqa: S608 - our own words
    values = list(rows.values)
    if limit is not None:
        sql += " LIMIT ?"
        values.append(_limit(limit))
    chosen = filters._asdict() | {"columns": columns, "order": order, "limit": limit}
    asked = ", ".join(f"{key}={value!r}" for key, value in chosen.items() if value is not None)
    return Question(sql, values, filters.scope, f"{view.name}({asked})")


def window_of(
    *,
    label: Labels | None = None,
    rank: RankFilter | None = None,
    node: TextFilter | None = None,
    job: TextFilter | None = None,
    **equal: Any,  # noqa: ANN401 - `Filters` knows their types
) -> Window:
    """Return the window of sources, sessions, streams and times that keyword arguments select (`StatisticsKeywords`).
    Raise QueryError if a value does not have the type that its keyword requires."""
    return Filters(**equal, labels=labels_of(label), job=job_of(rank, node, job)).window


def gaps_of(question: Question) -> Question:
    """Return the SQL query for the gaps whose missing events may belong to the answer to `question`."""
    gaps = question.scope.gaps
    sql = f"SELECT * FROM gaps WHERE {gaps.sql}{_order(GAPS, None)}"  # noqa: S608 - our own words
    return Question(sql, gaps.values, question.scope, f"gaps of {question.asked}")


def statement(sql: str, parameters: Parameters) -> Question:
    """Return the caller's SQL statement as a `Question`. Its scope is all gaps of the table, because the statement may
    read any rows. Raise QueryError unless `parameters` is a list, tuple or dict."""
    if isinstance(parameters, str) or not isinstance(parameters, dict | list | tuple):
        raise QueryError("parameters: pass a list for ? or a dict for $name")
    return Question(sql, parameters, EVERYTHING, f"sql({' '.join(sql.split())!r})")


def _columns(view: View, columns: TextFilter | None) -> str:
    if columns is None:
        return "*"
    names = [_column(view, name) for name in _texts("columns", columns)]
    if not names:
        raise QueryError("columns: name at least one")
    return ", ".join(names)


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


def _limit(limit: SupportsIndex) -> int:
    try:
        number = operator.index(limit)
    except TypeError:
        raise QueryError(f"limit: {limit!r} is not a whole number") from None
    if number < 0:
        raise QueryError(f"limit: {number} is negative")
    return number


def labels_of(label: object) -> tuple[RunLabel, ...] | None:
    """Return the run labels that the keyword `label` selects, or None. Raise QueryError unless the value is a mapping
    of texts to texts.
    """
    if label is None:
        return None
    if not isinstance(label, Mapping) or not label:
        raise QueryError(f"label: {label!r} is no mapping of texts, as in {{'revision': '4a5b6c'}}")
    return tuple(RunLabel(*_texts("label", pair)) for pair in label.items())


def job_of(rank: object, node: TextFilter | None, job: TextFilter | None) -> JobFilter:
    """Return the filter by rank, node and job for the keywords of these names. Raise QueryError unless ranks are whole
    numbers, and nodes and jobs are texts."""
    ranks = None if rank is None else tuple(_whole(rank))
    return JobFilter(ranks, _all_texts("node", node), _all_texts("job", job))


def _whole(values: object) -> Iterable[int]:
    for each in values if isinstance(values, Iterable) else (values,):
        if not isinstance(each, int) or isinstance(each, bool):
            raise QueryError(f"rank: {each!r} is not a whole number")
        yield each


def _all_texts(keyword: str, values: StreamFilter | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(_texts(keyword, values))


def _equal(column: str, values: StreamFilter | None) -> Iterable[RowCondition]:
    if values is not None:
        yield one_of(column, _texts(column, values))


def _texts(keyword: str, values: object) -> list[str]:
    """Return the value of a keyword as a list of texts. The value may be one text or several. A stream may also be a
    number. Raise QueryError for any other type."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    texts = []
    for each in several:
        text = str(each) if keyword == "stream" and isinstance(each, int) else each
        if not isinstance(text, str):
            raise QueryError(f"{keyword}: {text!r} is not text")
        texts.append(text)
    return texts


def unix_ns(time: TimeBound, keyword: str) -> int:
    """Return the Unix nanoseconds of a time given for the keyword `since` or `until`. Raise QueryError, which names the
    keyword, if the value is not a time."""
    if isinstance(time, str):
        return _of_text(time, keyword)
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise QueryError(
                f"{keyword}: {time!r} has no time zone; add one, for example tzinfo=UTC"
            )
        return _of_datetime(time)
    try:
        return operator.index(time)
    except TypeError:
        raise QueryError(
            f"{keyword}: {time!r} is not a datetime, text or a whole number of Unix nanoseconds"
        ) from None


def _of_text(text: str, keyword: str) -> int:
    fraction = _FRACTION.search(text)
    nanoseconds = int(fraction[2].ljust(9, "0")) if fraction else 0
    try:
        time = datetime.fromisoformat(_FRACTION.sub(r"\1", text, count=1))
    except ValueError:
        raise QueryError(
            f"{keyword}: {text!r} is not a time; write it as 2026-11-21 08:30:00Z"
        ) from None
    return _of_datetime(time if time.tzinfo else time.replace(tzinfo=UTC)) + nanoseconds


def _of_datetime(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000
