"""Conditions on a view's columns, as SQL in which every value is a question mark.

Column names are our own, never a caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from tailrace.model.gap import DAMAGED_SESSION


class RowCondition(NamedTuple):
    """A condition. The question marks in `sql` stand for `values`, in order."""

    sql: str
    values: tuple[object, ...] = ()


def quote(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def one_of(column: str, values: Sequence[str]) -> RowCondition:
    if not values:
        return RowCondition("false")
    marks = ", ".join("?" * len(values))
    return RowCondition(f"{column} IN ({marks})", tuple(values))


def begins_with(column: str, beginnings: Sequence[str]) -> RowCondition:
    """Return the condition that a text begins with one of these."""
    return any_of([RowCondition(f"starts_with({column}, ?)", (text,)) for text in beginnings])


def any_of(conditions: Sequence[RowCondition]) -> RowCondition:
    return _joined(" OR ", conditions, RowCondition("false"))


def all_of(conditions: Sequence[RowCondition]) -> RowCondition:
    return _joined(" AND ", conditions, RowCondition("true"))


class Selection(NamedTuple):
    """Sources, beginnings of session ids, and streams. None does not restrict."""

    sources: tuple[str, ...] | None = None
    sessions: tuple[str, ...] | None = None
    streams: tuple[str, ...] | None = None

    @classmethod
    def of_options(cls, source: str | None, session: str | None = None) -> Self:
        """Return the selection for the options `--source` and `--session`."""
        return cls(None if source is None else (source,), None if session is None else (session,))

    @property
    def condition(self) -> RowCondition:
        """Return the condition on rows of a view that has these columns."""
        return all_of([*self._where(), *self._streams(self.streams)])

    @property
    def gaps(self) -> RowCondition:
        """Return the condition on gaps that may concern these rows, even of unknown streams or sessions."""
        streams = None if self.streams is None else (*self.streams, "")
        return all_of([*self._where(DAMAGED_SESSION), *self._streams(streams)])

    def _where(self, *more_sessions: str) -> Iterator[RowCondition]:
        if self.sources is not None:
            yield one_of("source", self.sources)
        if self.sessions is not None:
            more = [one_of("session", more_sessions)] if more_sessions else []
            yield any_of([begins_with("session", self.sessions), *more])

    @staticmethod
    def _streams(streams: tuple[str, ...] | None) -> Iterator[RowCondition]:
        if streams is not None:
            yield one_of("stream", streams)


def _joined(word: str, conditions: Sequence[RowCondition], none: RowCondition) -> RowCondition:
    if not conditions:
        return none
    sql = word.join(f"({condition.sql})" for condition in conditions)
    return RowCondition(sql, tuple(value for condition in conditions for value in condition.values))
