"""Define the views in a database when a statement names them.

Binding all views takes 130 ms, four times as long as most statements over a small table. So a database
begins with none of them. Before a statement runs, `Catalog.prepare` defines the views that it names and
what these are made of. It finds names as words of the statement's text, so it may define too much, but
not too little. A statement that lists the catalog gets all views.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import duckdb

from tailrace.model.columns import COLUMNS, Column
from tailrace.query.names import ANSWERED, AS_STORED, GIVEN, NAMES, ROWS
from tailrace.query.parts import HIDE, PARTS, REPLACING, SHOWN, SHOWN_EXCEPT_HIDDEN
from tailrace.query.views import TYPES, VIEWS

_BASE = "part.shown"
"""The view of `stored` that all others are made from."""

_HEAD = re.compile(r"^CREATE (?:MACRO|VIEW) ([\w.]+)", re.MULTILINE)
_INNER = re.compile(r"\bpart\.\w+|\ball_gaps\b")
_WORD = re.compile(r"\w+")

_LISTING = frozenset({"describe", "information_schema", "show"})
_LISTING_PREFIXES = ("duckdb_", "pg_", "pragma", "sqlite_")
"""Words, and beginnings of words, of statements that list what there is."""


class Definition(NamedTuple):
    """A view or macro, and the names of the views and macros in its text."""

    name: str
    sql: str
    needs: frozenset[str]


class Catalog:
    """The views that one database has, and what they are based on in its snapshot."""

    def __init__(self) -> None:
        self._defined: set[str] = set()
        self._shown = SHOWN
        self._answered = False
        self._has_hidden = self._has_learnt = False

    @property
    def whole(self) -> bool:
        """Return whether the database has all views."""
        return len(self._defined) == len(_DEFINITIONS)

    def forget(self) -> None:
        """Note that `stored` has changed, so that hidden sessions and late names must be read again."""
        self._has_hidden = self._has_learnt = False

    def prepare(self, connection: duckdb.DuckDBPyConnection, statement: str) -> None:
        """Define what a statement names, and read what its views are based on. Raise DuckDB's errors."""
        self._prepare(connection, _named_in(statement))

    def prepare_all(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Define all views. Raise DuckDB's errors."""
        self._prepare(connection, _DEFINITIONS)

    def _prepare(self, connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
        needed = _closure(names)
        self._define(connection, needed)
        if _BASE in needed and not self._has_hidden:
            self._hide(connection)
            self._has_hidden = True
        if not needed.isdisjoint(ROWS) and not self._has_learnt:
            self._learn(connection)
            self._has_learnt = True

    def _define(self, connection: duckdb.DuckDBPyConnection, needed: set[str]) -> None:
        """Create views and macros that are not there yet, over no rows, since to bind a view opens files."""
        new = needed - self._defined
        if not new:
            return
        created = [each.sql for each in _DEFINITIONS.values() if each.name in new - {_BASE}]
        connection.begin()
        try:
            connection.execute(_show(f"FROM ({nothing()})"))
            connection.execute("".join(created))
            connection.execute(_show(self._shown))
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
        self._defined |= new

    def _hide(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Hide the sessions that others replace."""
        replacing = connection.execute(f"SELECT EXISTS({REPLACING})").fetchall()[0][0]
        if replacing:
            self._define(connection, _closure({"part.root"}))
            connection.execute(HIDE)
        self._shown = SHOWN_EXCEPT_HIDDEN if replacing else SHOWN
        connection.execute(_show(self._shown))

    def _learn(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read the names that came late, if there are any."""
        self._define(connection, _closure({"part.name_rows"}))
        given = connection.execute("SELECT EXISTS(FROM part.name_rows)").fetchall()[0][0]
        if given:
            learning = f"{GIVEN}; {ANSWERED}"
            self._define(connection, _closure(_references(learning)))
            connection.execute(learning)
        elif self._answered:
            connection.execute(AS_STORED)
        self._answered = given


def nothing() -> str:
    """Return a SELECT of no rows with the table's columns."""
    return f"SELECT {', '.join(map(null, COLUMNS))} WHERE false"


def null(column: Column) -> str:
    """Return a null of a column's type, under its name."""
    return f'NULL::{TYPES[column.type]} AS "{column.name}"'


def _show(select: str) -> str:
    return f"CREATE OR REPLACE VIEW {_BASE} AS {select};"


def _definitions() -> dict[str, Definition]:
    """Return all views and macros by name; each stands behind those that it needs."""
    public = "".join(f"CREATE VIEW {view.name} AS {view.sql};\n" for view in VIEWS)
    text = f"{PARTS}\n{NAMES}\n{public}"
    starts = [match.start() for match in _HEAD.finditer(text)]
    texts = [text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    names = [_HEAD.findall(each)[0] for each in texts]
    return {
        name: Definition(name, each, frozenset(_INNER.findall(each)) - {name})
        for name, each in zip(names, texts, strict=True)
    }


_DEFINITIONS = _definitions()
_PUBLIC = frozenset(name for name in _DEFINITIONS if "." not in name)


def _references(sql: str) -> set[str]:
    """Return the names in the schema `part` that our own SQL uses."""
    return {name for name in _INNER.findall(sql) if name in _DEFINITIONS}


def _closure(names: Iterable[str]) -> set[str]:
    """Return the names, and those that they need."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _DEFINITIONS[name].needs
    return found


def _named_in(statement: str) -> Iterable[str]:
    """Return the views and macros that a statement may use."""
    words = {word.lower() for word in _WORD.findall(statement)}
    if words & _LISTING or any(word.startswith(_LISTING_PREFIXES) for word in words):
        return _DEFINITIONS
    if "part" in words:
        return [name for name in _DEFINITIONS if name.rpartition(".")[2] in words]
    return _PUBLIC & words
