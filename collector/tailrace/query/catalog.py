"""Define the views in a database when a statement names them.

Binding all views takes 130 ms, four times as long as most statements over a small table. So a database
begins with none of them. Before a statement runs, `Catalog.prepare` fills the tables of rows that the views need
again and again (`parts.KEPT`), and defines the views that the statement names and what these are made of. It finds
names as words of the statement's text, so it may define too much, but not too little. A statement that
lists the catalog gets all views.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple, Protocol

import duckdb

from tailrace.model.columns import COLUMNS, Column
from tailrace.query.names import GIVEN, NAMES
from tailrace.query.parts import HIDE, KEPT, PARTS, REPLACING, SHOWN, SHOWN_EXCEPT_HIDDEN
from tailrace.query.rows import RowFacts, row_views
from tailrace.query.views import TYPES, VIEWS

_BASE = "part.shown"
"""The view of `stored` that all others are made from."""

_HEAD = re.compile(r"^CREATE (MACRO|VIEW) ([\w.]+)", re.MULTILINE)
_INNER = re.compile(r"\bpart\.\w+|\ball_gaps\b")
_WORD = re.compile(r"\w+")

_LISTING = frozenset({"describe", "information_schema", "show"})
_LISTING_PREFIXES = ("duckdb_", "pg_", "pragma", "sqlite_")
"""Words, and beginnings of words, of statements that list what there is."""

_KINDS = {
    "part.kept_sessions": ("session",),
    "part.kept_names": ("name",),
    "part.kept_findings": ("gap", "heal"),
    "part.kept_begins": ("begin",),
    "part.kept_open": ("begin",),
    "part.kept_ends": ("end",),
}
"""The kinds of rows in each of the tables in `KEPT`."""

_OF_BEGINS = frozenset({"part.kept_open", "part.kept_ends"})
"""The tables that are empty without begins."""

_ALSO = {
    "part.known": "part.kept_names",
    "part.kept_open": "part.kept_begins",
    "part.kept_ends": "part.kept_begins",
}
"""Tables, and the tables that must be filled before them."""

_UNTIMED = f"SELECT EXISTS(FROM {_BASE} WHERE time IS NULL AND start IS NOT NULL)"


class Stated(Protocol):
    """The known facts of a snapshot before its files are read."""

    def may_hold(self, kind: str) -> bool:
        """Return whether there may be rows of a kind."""

    @property
    def timed(self) -> bool:
        """Return whether it is known that each row has a time."""


class Definition(NamedTuple):
    """A view or macro, and the names of views, macros and tables in its text."""

    name: str
    sql: str
    needs: frozenset[str]


class Catalog:
    """The views that one database has, and what they are based on in its snapshot."""

    def __init__(self) -> None:
        self._defined: dict[str, str] = {}
        self._shown = SHOWN
        self._facts = RowFacts()
        self._stated: Stated | None = None
        self._filled: set[str] = set()
        self._timed_known = False

    @property
    def whole(self) -> bool:
        """Return whether the database has all views."""
        return self._defined.keys() >= _definitions(self._facts).keys()

    def forget(self, stated: Stated | None = None) -> None:
        """Note that `stored` has changed, so that tables of its rows must be filled again."""
        self._stated = stated
        self._filled.clear()
        self._facts = RowFacts()
        self._timed_known = False

    def prepare(self, connection: duckdb.DuckDBPyConnection, statement: str) -> None:
        """Define what a statement names, and read what its views are based on. Raise DuckDB's errors."""
        self._prepare(connection, _named_in(statement))

    def prepare_all(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Define all views. Raise DuckDB's errors."""
        self._prepare(connection, _GENERAL)

    def _prepare(self, connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
        needed = _closure(names, _GENERAL)
        tables = [table for table in KEPT if table in needed]
        if not tables and _BASE not in needed:
            return self._define(connection, needed)
        for table in ("part.kept_sessions", *tables):
            if table not in self._filled:
                self._fill(connection, table)
                self._filled.add(table)
        if not needed.isdisjoint(("part.timed_rows", "part.timed_spans")) and not self._timed_known:
            self._look_for_times(connection)
            self._timed_known = True
        definitions = _definitions(self._facts)
        return self._define(
            connection, _closure((n for n in names if n in definitions), definitions)
        )

    def _fill(self, connection: duckdb.DuckDBPyConnection, table: str) -> None:
        """Read the rows of a kind, and what follows from them."""
        stated = self._stated
        there = stated is None or any(map(stated.may_hold, _KINDS[table]))
        if table in _OF_BEGINS:
            there &= self._facts.begun
        empty = "" if there else " LIMIT 0"
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS FROM ({KEPT[table]}){empty}")
        if table == "part.kept_sessions":
            self._hide(connection)
        elif table == "part.kept_begins":
            self._facts = self._facts._replace(begun=there and self._any(connection, table))
        elif table == "part.kept_names":
            self._learn(connection)

    def _hide(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Hide the sessions that others replace."""
        replacing = self._any(connection, REPLACING.removeprefix("FROM "))
        if replacing:
            self._define(connection, {"part.root"})
            connection.execute(HIDE)
        self._shown = SHOWN_EXCEPT_HIDDEN if replacing else SHOWN
        connection.execute(_show(self._shown))

    def _learn(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read the names that came late, if there are any."""
        late = self._any(connection, "part.kept_names WHERE id IS NOT NULL")
        asked = False
        if self._any(connection, "part.kept_names"):
            self._define(connection, _closure({"part.name_rows"}, _GENERAL))
            asked = self._any(connection, "part.name_rows")
        if asked:
            self._define(connection, _closure(_references(GIVEN, _GENERAL), _GENERAL))
            connection.execute(GIVEN)
        self._facts = self._facts._replace(late=late, asked=asked)

    def _look_for_times(self, connection: duckdb.DuckDBPyConnection) -> None:
        timed = self._stated is not None and self._stated.timed
        untimed = not timed and connection.execute(_UNTIMED).fetchall()[0][0]
        self._facts = self._facts._replace(untimed=untimed)

    @staticmethod
    def _any(connection: duckdb.DuckDBPyConnection, rows: str) -> bool:
        return bool(connection.execute(f"SELECT EXISTS(FROM {rows})").fetchall()[0][0])

    def _define(self, connection: duckdb.DuckDBPyConnection, needed: set[str]) -> None:
        """Create views and macros that are not there yet, over no rows, since to bind a view opens files."""
        definitions = _definitions(self._facts)
        new = {
            name: each.sql
            for name, each in definitions.items()
            if name in needed and name != _BASE and self._defined.get(name) != each.sql
        }
        if not new:
            return
        connection.begin()
        try:
            connection.execute(_show(f"FROM ({nothing()})"))
            connection.execute("".join(new.values()))
            connection.execute(_show(self._shown))
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
        self._defined |= new


def nothing() -> str:
    """Return a SELECT of no rows with the table's columns."""
    return f"SELECT {', '.join(map(null, COLUMNS))} WHERE false"


def null(column: Column) -> str:
    """Return a null of a column's type, under its name."""
    return f'NULL::{TYPES[column.type]} AS "{column.name}"'


def _show(select: str) -> str:
    return f"CREATE OR REPLACE VIEW {_BASE} AS {select};"


@cache
def _definitions(facts: RowFacts) -> dict[str, Definition]:
    """Return all views and macros by name; each stands behind those that it needs."""
    rows = "".join(f"CREATE VIEW {name} AS {sql};\n" for name, sql in row_views(facts).items())
    public = "".join(f"CREATE VIEW {view.name} AS {view.sql};\n" for view in VIEWS)
    parts, producers = NAMES
    text = f"{PARTS}\n{parts}\n{rows}\n{producers}\n{public}"
    starts = [match.start() for match in _HEAD.finditer(text)]
    texts = [text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    names = [_HEAD.findall(each)[0][1] for each in texts]
    return {
        name: Definition(name, _HEAD.sub(r"CREATE OR REPLACE \1 \2", each, count=1), frozenset(_INNER.findall(each)) - {name})
        for name, each in zip(names, texts, strict=True)
    }  # fmt: skip


_GENERAL = _definitions(RowFacts())
_PUBLIC = frozenset(name for name in _GENERAL if "." not in name)


def _references(sql: str, definitions: dict[str, Definition]) -> set[str]:
    """Return the names in the schema `part` that our own SQL uses."""
    return {name for name in _INNER.findall(sql) if name in definitions}


def _closure(names: Iterable[str], definitions: dict[str, Definition]) -> set[str]:
    """Return the names, and those that they need, tables of `KEPT` among them."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name in definitions:
                waiting += definitions[name].needs
            elif name in _ALSO:
                waiting.append(_ALSO[name])
    return found


def _named_in(statement: str) -> Iterable[str]:
    """Return the views, macros and tables of `KEPT` that a statement may use."""
    words = {word.lower() for word in _WORD.findall(statement)}
    if words & _LISTING or any(word.startswith(_LISTING_PREFIXES) for word in words):
        return _GENERAL
    if "part" in words:
        return [name for name in (*_GENERAL, *KEPT) if name.rpartition(".")[2] in words]
    return _PUBLIC & words
