"""Keywords as SQL: every value is a parameter, every column one that the view has.

What is missing of an answer is told by gaps, and these have less to choose by than rows have: a
source, a session, mostly a stream, no name and no time. A question's `scope` chooses all that may be
about its rows.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import NamedTuple, SupportsIndex

from tailrace.errors import QueryError
from tailrace.query.completeness import EVERYTHING, Scope
from tailrace.query.filters import Condition, Selection, all_of, one_of
from tailrace.query.guard import Parameters
from tailrace.query.views import GAPS, View
from tailrace.reading.moment import Time, unix_ns

Texts = str | Iterable[str]
"""One, or any of several."""

Streams = str | int | Iterable[str | int]

_SESSIONS_THEN = "(source, session) IN (SELECT (source, session) FROM part.session_times WHERE {})"
_BEGAN_BEFORE = "coalesce(begins < ?, true)"
_ENDED_SINCE = "coalesce(ends >= ?, true)"


class Question(NamedTuple):
    """A statement, its parameters, what its answer is about, and how it was asked."""

    sql: str
    parameters: Parameters
    scope: Scope
    asked: str


class Filters(NamedTuple):
    """What chooses rows, as given: all of it must be so; None chooses nothing away."""

    source: Texts | None = None
    session: Texts | None = None
    stream: Streams | None = None
    since: Time | None = None
    until: Time | None = None
    name: Texts | None = None
    kind: Texts | None = None
    reason: Texts | None = None

    @property
    def selection(self) -> Selection:
        return Selection(
            _all_texts("source", self.source),
            _all_texts("session", self.session),
            _all_texts("stream", self.stream),
        )

    def rows(self, view: View) -> Condition:
        """On the rows of a view; its time is the row's own or, where it has none, its session's."""
        timed = any(column.name == "time" for column in view.columns)
        columns = [
            *_equal("name", self.name),
            *_equal("kind", self.kind),
            *_equal("reason", self.reason),
        ]
        times = self._then() if timed else self._sessions()
        return all_of([self.selection.condition, *columns, *times])

    @property
    def scope(self) -> Scope:
        """What these rows are about: the gaps that may be about them have neither name nor time."""
        return Scope(self.selection, all_of([self.selection.gaps, *self._sessions()]))

    def _then(self) -> Iterable[Condition]:
        if self.since is not None:
            yield Condition("time >= ?", (unix_ns(self.since, "since"),))
        if self.until is not None:
            yield Condition("time < ?", (unix_ns(self.until, "until"),))

    def _sessions(self) -> Iterable[Condition]:
        times = []
        if self.since is not None:
            times.append(Condition(_ENDED_SINCE, (unix_ns(self.since, "since"),)))
        if self.until is not None:
            times.append(Condition(_BEGAN_BEFORE, (unix_ns(self.until, "until"),)))
        if times:
            condition = all_of(times)
            yield Condition(_SESSIONS_THEN.format(condition.sql), condition.values)


def select(
    view: View,
    filters: Filters,
    *,
    columns: Texts | None,
    order: Texts | None,
    limit: SupportsIndex | None,
) -> Question:
    """Raise QueryError for what is not a column, a time, a text or a number where one must be."""
    rows = filters.rows(view)
    sql = f"SELECT {_columns(view, columns)} FROM {view.name} WHERE {rows.sql}{_order(view, order)}"  # noqa: S608 - our own words
    values = list(rows.values)
    if limit is not None:
        sql += " LIMIT ?"
        values.append(_limit(limit))
    chosen = filters._asdict() | {"columns": columns, "order": order, "limit": limit}
    asked = ", ".join(f"{key}={value!r}" for key, value in chosen.items() if value is not None)
    return Question(sql, values, filters.scope, f"{view.name}({asked})")


def gaps_of(question: Question) -> Question:
    """The gaps that are about another question's answer."""
    gaps = question.scope.gaps
    sql = f"SELECT * FROM gaps WHERE {gaps.sql}{_order(GAPS, None)}"  # noqa: S608 - our own words
    return Question(sql, gaps.values, question.scope, f"gaps of {question.asked}")


def statement(sql: str, parameters: Parameters) -> Question:
    """Whatever somebody asks, which may be about the whole table."""
    if isinstance(parameters, str) or not isinstance(parameters, dict | list | tuple):
        raise QueryError("parameters: a list for ? or a dict for $name, please")
    return Question(sql, parameters, EVERYTHING, f"sql({' '.join(sql.split())!r})")


def _columns(view: View, columns: Texts | None) -> str:
    if columns is None:
        return "*"
    names = [_column(view, name) for name in _texts("columns", columns)]
    if not names:
        raise QueryError("columns: name at least one")
    return ", ".join(names)


def _order(view: View, order: Texts | None) -> str:
    """By columns, a `-` before those that fall."""
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
        raise QueryError(f"limit: {limit!r} is no whole number") from None
    if number < 0:
        raise QueryError(f"limit: {number} is less than none")
    return number


def _all_texts(keyword: str, values: Streams | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(_texts(keyword, values))


def _equal(column: str, values: Streams | None) -> Iterable[Condition]:
    if values is not None:
        yield one_of(column, _texts(column, values))


def _texts(keyword: str, values: object) -> list[str]:
    """Raise QueryError for what is neither a text nor several; a number will do for a stream's."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    texts = []
    for each in several:
        text = str(each) if keyword == "stream" and isinstance(each, int) else each
        if not isinstance(text, str):
            raise QueryError(f"{keyword}: {text!r} is no text")
        texts.append(text)
    return texts
