"""Conditions over a view's columns, as SQL in which every value is a question mark.

Columns are our own words, never a caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Condition(NamedTuple):
    """Question marks in `sql` stand for `values`, in order."""

    sql: str
    values: tuple[object, ...] = ()


def quote(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def one_of(column: str, values: Sequence[str]) -> Condition:
    if not values:
        return Condition("false")
    marks = ", ".join("?" * len(values))
    return Condition(f"{column} IN ({marks})", tuple(values))


def begins_with(column: str, beginnings: Sequence[str]) -> Condition:
    """Whether a text begins with one of these."""
    return any_of([Condition(f"starts_with({column}, ?)", (text,)) for text in beginnings])


def any_of(conditions: Sequence[Condition]) -> Condition:
    return _joined(" OR ", conditions, Condition("false"))


def all_of(conditions: Sequence[Condition]) -> Condition:
    return _joined(" AND ", conditions, Condition("true"))


def chosen(*, source: str | None, session: str | None) -> Condition:
    """One source, and sessions whose ids begin with `session`, as commands' options ask for them."""
    return all_of(
        [
            *([] if source is None else [one_of("source", [source])]),
            *([] if session is None else [begins_with("session", [session])]),
        ]
    )


def _joined(word: str, conditions: Sequence[Condition], none: Condition) -> Condition:
    if not conditions:
        return none
    sql = word.join(f"({condition.sql})" for condition in conditions)
    return Condition(sql, tuple(value for condition in conditions for value in condition.values))
