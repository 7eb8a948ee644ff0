"""Define views in a database when an SQL statement names them.

Defining all views takes 130 ms, four times as long as most statements over a small table. `ViewCatalog.prepare` defines
only the views whose names occur in the statement's text, and those that they use. Rows that views read repeatedly are
first copied to tables (`inner_views.KEPT`). If a statement lists tables or views, all views are defined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import duckdb

from tailrace.query import inner_views, rows
from tailrace.query.inner_views import KEPT
from tailrace.query.names import NAMED
from tailrace.query.rows import RowFacts
from tailrace.query.table import Bounds, FileStatistics, Region, started_in
from tailrace.query.views import TYPES, VIEWS
from tailrace.rows.schema import COLUMNS, FEW_KINDS, Column

_BASE = "part.shown"
"""Name of the inner view on which all other views are built. It shows the rows of the snapshot (`stored`), but leaves
out two kinds of sessions: those that another session replaces, and those that read a copy of another session's file."""

FEW_ROWS = "part.kept_few"
"""Name of the table with all rows of rare kinds, such as gaps, names and session rows."""

_HEAD = re.compile(r"^CREATE (MACRO|VIEW) ([\w.]+)", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_INNER = re.compile(r"\bpart\.\w+|\ball_gaps\b")
_WORD = re.compile(r"\w+")

_LISTING = frozenset({"describe", "information_schema", "show"})
_LISTING_PREFIXES = ("duckdb_", "pg_", "pragma", "sqlite_")
"""Prefixes of names with which a statement lists the database's tables or views."""

_MADE_OF = {
    "part.known": "part.kept_names",
    "part.copies": FEW_ROWS,
    **dict.fromkeys((table for table in KEPT if table != FEW_ROWS), FEW_ROWS),
}
"""The table from which each table of copied rows (a key of `KEPT`) is filled."""

_FEW_REGIONS: list[Region] = [{"kind": Bounds(kind, kind)} for kind in FEW_KINDS]
_BEGINS, _OPEN = "part.kept_begins", "part.kept_open"
_STARTS = f"SELECT count(*), count(start), min(start), max(start) FROM {_BEGINS}"  # noqa: S608 - our own words
_UNTIMED = f"SELECT EXISTS(FROM {_BASE} WHERE time IS NULL AND start IS NOT NULL)"

REGIONS_KEPT = 8
"""Maximum number of regions (ranges of start times that SQL statements read) from which begin rows of spans are copied.
Once statements have read more regions, all begin rows of the snapshot are copied."""

Pick = Callable[[list[Region] | None], None]
"""Function that limits the view `stored` to files that may have rows in the given regions; None stands for all rows."""


class Definition(NamedTuple):
    """The SQL that defines a view or macro, and the names of the views, macros and tables that it uses."""

    sql: str
    needs: frozenset[str]


class ViewCatalog:
    """The views that are defined in one database. Their SQL depends on facts about the snapshot's rows."""

    def __init__(self) -> None:
        self._defined: dict[str, str] = {}
        self._shown = inner_views.shown(replacing=False, moved=False)
        self._facts = RowFacts()
        self._stated: FileStatistics | None = None
        self._filled: set[str] = set()
        self._timed_known = False
        self._begun_in: list[str] = []

    @property
    def whole(self) -> bool:
        return self._defined.keys() >= _definitions(self._facts).keys()

    @property
    def timed(self) -> bool:
        """Whether it is certain that every row with a start tick (`start`) also has a stored time."""
        return not self._facts.untimed

    def forget(self, stated: FileStatistics | None = None) -> None:
        """Forget all facts about the rows of `stored`, because it now shows another snapshot. `stated` has the
        statistics about the files of this snapshot."""
        self._stated = stated
        self._filled.clear()
        self._facts = RowFacts()
        self._timed_known = False
        self._begun_in = []

    def prepare(
        self,
        connection: duckdb.DuckDBPyConnection,
        statement: str | None,
        pick: Pick = lambda _: None,
        regions: list[Region] | None = None,
    ) -> None:
        """Define the views that an SQL statement names, or all if it is None, and fill the tables of copied rows that
        these views read. `regions` are the parts of the table that the statement reads; None stands for all rows. Raise
        DuckDB's errors if a data file cannot be read."""
        names = _GENERAL if statement is None else _named_in(statement)
        needed = _closure(names, _GENERAL)
        if FEW_ROWS not in needed and _BASE not in needed:
            return self._define(connection, needed)
        if FEW_ROWS not in self._filled:
            pick(_FEW_REGIONS)
            self._fill_few(connection, pick)
            pick(None)
        if not needed.isdisjoint(("part.timed_rows", "part.timed_spans")) and not self._timed_known:
            untimed = connection.execute(_UNTIMED).fetchall()[0][0]
            self._facts = self._facts._replace(untimed=untimed)
            self._timed_known = True
        definitions = _definitions(self._facts)
        needed = _closure((n for n in names if n in definitions or n in KEPT), definitions)
        if _OPEN in needed:
            self._fill_open(connection, pick, regions)
        for table in KEPT:
            if table in needed and table not in self._filled:
                connection.execute(f"CREATE OR REPLACE TABLE {table} AS FROM ({KEPT[table]})")
                if table == "part.kept_names" and self._facts.asked:
                    self._define(connection, _closure(["part.learnt"], _GENERAL))
                    connection.execute(rows.GIVEN)
                self._filled.add(table)
        return self._define(connection, needed)

    def _fill_few(self, connection: duckdb.DuckDBPyConnection, pick: Pick) -> None:
        """Fill the table of rows of rare kinds, and find out from it what the SQL of the views must contain."""
        connection.execute(f"CREATE OR REPLACE TABLE {FEW_ROWS} AS {KEPT[FEW_ROWS]}")
        ((untimed, began, begun, late, asked, replacing, lacking, announced),) = connection.execute(
            inner_views.FOUND
        ).fetchall()
        self._define(connection, {"part.root", "part.place"})
        connection.execute(inner_views.COPIES.format(within="true" if replacing else "false"))
        if replacing:
            connection.execute(inner_views.HIDE)
            ((replacing,),) = connection.execute(inner_views.HIDDEN).fetchall()
        sessions = connection.execute(rows.MOVED_SESSIONS).fetchall() if announced else []
        if sessions:
            pick([{"session": Bounds(session, session)} for _, session, _ in sessions])
            connection.execute(rows.MOVED_NUMBERS)
        self._shown = inner_views.shown(replacing=replacing, moved=bool(sessions))
        connection.execute(_show(self._shown))
        timed = self._stated is not None and not began and self._stated.untimed == untimed
        self._timed_known = timed
        self._facts = RowFacts(begun, asked, late, not timed, lacking, moved=bool(sessions))
        self._filled.add(FEW_ROWS)

    def _fill_open(
        self, connection: duckdb.DuckDBPyConnection, pick: Pick, regions: list[Region] | None
    ) -> None:
        """Fill `part.kept_begins` with begin rows of spans, and `part.kept_open` with those of them that are not
        followed by a row of the whole span. Read only begin rows in `regions` or in the regions of earlier statements,
        because another cursor may still run an earlier statement."""
        wanted = started_in(regions, timed=self.timed)
        if "true" in self._begun_in or wanted in self._begun_in:
            return
        self._begun_in.append(wanted if len(self._begun_in) < REGIONS_KEPT else "true")
        condition = " OR ".join(self._begun_in)
        connection.execute(
            f"CREATE OR REPLACE TABLE {_BEGINS} AS FROM ({KEPT[_BEGINS]}) WHERE {condition}"
        )
        ((some, started, least, most),) = connection.execute(_STARTS).fetchall()
        within = "true"
        if not some:
            within = "false"
        elif started == some:
            within = f"start BETWEEN {least} AND {most}"
            pick([{"kind": Bounds("span", "span"), "start": Bounds(least, most)}])
        connection.execute(
            f"CREATE OR REPLACE TABLE {_OPEN} AS {inner_views.OPEN.format(within=within)}"
        )
        pick(None)
        self._filled |= {_BEGINS, _OPEN}

    def _define(self, connection: duckdb.DuckDBPyConnection, needed: set[str]) -> None:
        """Define those views and macros in `needed` that are not defined yet. Meanwhile `part.shown` has no rows,
        because DuckDB would open data files to check each new view."""
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
    """Return a SELECT statement that returns no rows and has the columns of the stored table."""
    return f"SELECT {', '.join(map(null, COLUMNS))} WHERE false"


def null(column: Column) -> str:
    """Return an SQL expression for a null that has the type and the name of a column of the stored table."""
    return f'NULL::{TYPES[column.type]} AS "{column.name}"'


def _show(select: str) -> str:
    return f"CREATE OR REPLACE VIEW {_BASE} AS {select};"


@cache
def _definitions(facts: RowFacts) -> dict[str, Definition]:
    """Return the definitions of all views and macros by name, each after those that it uses."""
    create = "CREATE VIEW {} AS {};\n"
    stored = "".join(create.format(*view) for view in rows.row_views(facts).items())
    public = "".join(create.format(view.name, view.sql) for view in VIEWS)
    lost = inner_views.LOST if facts.lacking else ""
    parts = (
        inner_views.PARTS, f"{lost};", rows.gap_views(moved=facts.moved), inner_views.SUMS, rows.NAMES, stored,
        rows.PRODUCERS, NAMED, public,
    )  # fmt: skip
    # Remove comments, because they name views that the SQL does not use.
    text = _COMMENT.sub("", "\n".join(parts))
    starts = [match.start() for match in _HEAD.finditer(text)]
    texts = [text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    names = [_HEAD.findall(each)[0][1] for each in texts]
    return {
        name: Definition(_HEAD.sub(r"CREATE OR REPLACE \1 \2", each, count=1), frozenset(_INNER.findall(each)) - {name})
        for name, each in zip(names, texts, strict=True)
    }  # fmt: skip


_GENERAL = _definitions(RowFacts())
_PUBLIC = frozenset(name for name in _GENERAL if "." not in name)


def _closure(names: Iterable[str], definitions: dict[str, Definition]) -> set[str]:
    """Return the given names, and those of all views, macros and tables that they need directly or indirectly."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name in definitions:
                waiting += definitions[name].needs
            elif name in _MADE_OF:
                waiting.append(_MADE_OF[name])
    return found


def _named_in(statement: str) -> Iterable[str]:
    """Return the views, macros and tables whose names occur in a statement; all if it lists tables or views."""
    words = {word.lower() for word in _WORD.findall(statement)}
    if words & _LISTING or any(word.startswith(_LISTING_PREFIXES) for word in words):
        return _GENERAL
    if "part" in words:
        return [name for name in (*_GENERAL, *KEPT) if name.rpartition(".")[2] in words]
    return _PUBLIC & words
