"""Run DuckDB over one snapshot of the table.

The configuration of DuckDB is locked before the first statement. DuckDB can open only the files in the
table's directory. DuckDB can use no network, load no extension and change no setting; `statement` restricts
statements further. DuckDB itself reads the files of a local table, which is 3 to 20 times as fast as through
Arrow (10 M rows, few of them selected). Files behind a URL come through a pyarrow dataset, and DuckDB opens
no file at all.
"""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import duckdb

from tailrace.errors import QueryError, StoreError, TailraceError
from tailrace.query.answer import ArrowAnswer, RowAnswer, RowPages, Shape, count
from tailrace.query.catalog import ViewCatalog, nothing, null
from tailrace.query.database import finalize, first_opened, is_whole, keep
from tailrace.query.filters import quote
from tailrace.query.limits import DATABASES_SHARE, SPILL, Limits, make_room
from tailrace.query.statement import Parameters, Statement, examine, regions_of
from tailrace.query.table import Region, TableReader
from tailrace.rows.schema import COLUMNS
from tailrace.store.refusal import line

T = TypeVar("T")

ATTEMPTS = 5
"""Number of snapshots to try if upkeep deletes files of a snapshot during a read."""

SPILL_DIRECTORY = "spill"
"""Name of the directory, in the private directory of a statement's process, to which DuckDB spills what does
not fit into memory."""

_DAY = r"regexp_extract(filename, '.*/day=([0-9-]+)/', 1)::DATE AS day"
"""SQL of the partition column, which data files do not contain. DuckDB's option `hive_partitioning` would
take directories above the table for columns, and would need ten times as long to bind."""


class Engine:
    """A database connection over one snapshot. An engine runs one statement at a time.

    Methods raise StoreError when the table cannot be read and QueryError when a statement cannot run. Another
    thread may call `interrupt`, which makes the running statement fail."""

    def __init__(
        self,
        store: str,
        options: dict[str, str] | None = None,
        limits: Limits | None = None,
        *,
        room: str | None = None,
        version: int | None = None,
    ) -> None:
        """Open the table's snapshot with the given version, or the newest snapshot.

        `room` is a private directory of this process. If `room` is given, the process changes into this
        directory and reads the table through a link, so that neither DuckDB nor a statement can see a path of
        the host."""
        self._origin: Engine | None = None
        self._source: str | None = None
        self.store = store
        self.options = options or {}
        self.table = first_opened(lambda: TableReader(store, self.options, version))
        if room is not None:
            self.table.enter(room)
        self._catalog = ViewCatalog()
        self.connection = connect(self.table, limits or Limits(), room)
        self._catalog.forget(self.table.statistics)
        self._picked: list[str] | None = None
        keep(self)

    def beside(self) -> Engine:
        """Return another engine on this snapshot, for a statement that runs while the answer of this engine
        is still read.

        When either engine moves to a newer snapshot, running statements of the other engine keep the old
        snapshot, and the other engine must not begin a new statement. Closing the original engine also ends
        the statements of the returned engine."""
        other = copy.copy(self)
        other._origin = self  # noqa: SLF001 - our own class; both spill to the same directory
        other.connection = self.connection.cursor()
        attach(other.connection, self.table, self._source)
        other._picked = None  # noqa: SLF001 - our own class
        return keep(other)

    def restrict(self, source: str) -> None:
        """Restrict all views to the rows of one source.

        Raise StoreError when the table cannot be read."""
        self._source = source
        self._show()

    @property
    def version(self) -> int:
        """Return the version of the table in the engine's snapshot."""
        return self.table.version()

    @property
    def empty(self) -> bool:
        """Return whether the snapshot has no files, and therefore no rows."""
        return not self.table.file_uris()

    def refresh(self) -> bool:
        """Move to the newest snapshot, and return whether it is newer."""
        newer = self.table.refresh()
        if newer:
            self._show()
        return newer

    def ask(self, sql: str, shape: Shape = Shape.TEXT, *, parameters: Parameters = ()) -> RowAnswer:
        """Run a statement until its first rows are available.

        If files of the snapshot are deleted meanwhile, run the statement again on the newest snapshot."""
        return self._ask(
            sql, parameters, lambda statement: RowAnswer(self.connection, statement, shape)
        )

    def rows(self, sql: str, parameters: Parameters = ()) -> Iterator[tuple[Any, ...]]:
        """Run a trusted statement, and yield the rows one by one. Untrusted text must be a parameter or
        quoted.

        A trusted statement is not examined, because the examination would plan the statement a second time.
        The columns of a trusted statement are not converted, so they must be numbers, truth values or
        text."""
        answer = self._run(sql, parameters, lambda: RowPages(self.connection, sql, parameters))
        while page := answer.next_page():
            yield from page

    def ask_arrow(self, sql: str, parameters: Parameters = ()) -> ArrowAnswer:
        """Run a statement until its first rows are available, and return the rows as Arrow."""
        return self._ask(sql, parameters, lambda statement: ArrowAnswer(self.connection, statement))

    def count(self, sql: str, parameters: Parameters = ()) -> int:
        """Return the number of rows of a statement's answer."""
        return self._ask(sql, parameters, lambda statement: count(self.connection, statement))

    def interrupt(self) -> None:
        self.connection.interrupt()

    def progress(self) -> float:
        """Return DuckDB's estimate of the completed share of the statement, from 0 to 1. Return 0 if DuckDB
        does not count. Safe from any thread."""
        return max(self.connection.query_progress(), 0.0) / 100

    def close(self) -> None:
        if is_whole():
            self.connection.close()

    def prepare_all(self) -> None:
        """Define all views for direct use of `connection`."""
        self._based(self._prepare_all)

    def _prepare_all(self) -> None:
        self._pick(None)
        self._catalog.prepare_all(self.connection, self._pick)

    def _prepare(self, sql: str, parameters: Parameters) -> None:
        regions = regions_of(self.connection, sql, parameters)
        self._pick(None)
        self._catalog.prepare(self.connection, sql, self._pick, regions)
        self._pick(regions)

    def _pick(self, regions: list[Region] | None) -> None:
        """Restrict `stored` to the files of a local table that may have rows of these regions. None selects
        all files."""
        if not self.table.local:
            return
        picked = None if regions is None else self.table.picked(regions, timed=self._catalog.timed)
        if picked != self._picked:
            read(self.connection, self.table.file_uris() if picked is None else picked)
            self._picked = picked

    def _ask(self, sql: str, parameters: Parameters, run: Callable[[Statement], T]) -> T:
        return self._run(sql, parameters, lambda: run(self._examined(sql, parameters)))

    def _run(self, sql: str, parameters: Parameters, run: Callable[[], T]) -> T:
        """Define the views that a statement needs, select the files that may have its rows, and call `run`.
        If files of the snapshot are deleted meanwhile, repeat these steps on the newest snapshot."""

        def attempt() -> T:
            self._based(lambda: self._prepare(sql, parameters))
            return run()

        return on_current(self.table, attempt, lambda error: QueryError(str(error)), self._show)

    def _examined(self, sql: str, parameters: Parameters) -> Statement:
        """Return the statement if it may run. If the statement contains an unknown name, define all views
        before the error is raised, so that DuckDB can suggest names."""
        try:
            return examine(self.connection, sql, parameters)
        except QueryError as error:
            if self._catalog.whole or not isinstance(error.__cause__, duckdb.CatalogException):
                raise
        self.prepare_all()
        return examine(self.connection, sql, parameters)

    def _based(self, prepare: Callable[[], None]) -> None:
        """Call `prepare`, which reads the table. If files of the snapshot are deleted, repeat the call on a
        newer snapshot.

        Raise StoreError when the table cannot be read, QueryError when the call was interrupted."""
        on_current(self.table, prepare, partial(unreadable, self.table), self._show)

    def _show(self) -> None:
        """Update the views to the table's current snapshot."""
        self._catalog.forget(self.table.statistics)
        self._picked = None
        show(self.connection, self.table, self._source)


def connect(
    table: TableReader, limits: Limits, room: str | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a locked connection with the views over the table's snapshot.

    The connection spills to a directory in `room`, the working directory. Without `room`, the connection
    spills to a temporary directory that is removed with the connection."""
    spill = make_room() if room is None else SPILL_DIRECTORY
    connection = duckdb.connect(config=_config(limits, spill))
    if room is None:
        finalize(connection, shutil.rmtree, spill, True)  # noqa: FBT003 - ignore errors
    connection.execute("SET VARIABLE watched = true; SET VARIABLE watchers = NULL::VARCHAR[]")
    _bound_spill(connection, limits)
    connection.execute("CREATE SCHEMA part; SET GLOBAL TimeZone = 'UTC'")
    if table.local:
        directories = f"{table.seen_at}/", f"{literal(table.seen_at)}/"
        allowed = ", ".join(quote(directory) for directory in directories)
        connection.execute(f"SET allowed_directories = [{allowed}]")
    _count_progress(connection)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    show(connection, table)
    return connection


def _bound_spill(connection: duckdb.DuckDBPyConnection, limits: Limits) -> None:
    """Limit the bytes that DuckDB spills to disk. The limit is set by a statement, because DuckDB 2.0 ignores
    it in the configuration of `connect`."""
    spill = limits.spill
    if spill is None and limits.memory is not None:
        spill = limits.memory * SPILL
    if spill is not None:
        connection.execute(f"SET max_temp_directory_size = '{int(spill)}B'")


def _count_progress(connection: duckdb.DuckDBPyConnection) -> None:
    """Make DuckDB compute `progress`. In a notebook, DuckDB computes `progress` only if ipywidgets are
    installed."""
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")


def show(
    connection: duckdb.DuckDBPyConnection, table: TableReader, source: str | None = None
) -> None:
    """Define `stored` over the rows of the table's snapshot, of one source or of all. If files of the
    snapshot are deleted, use a newer snapshot.

    Raise StoreError when the table cannot be read, QueryError when the read was interrupted."""

    def attempt() -> None:
        attach(connection, table, source)
        if table.local:
            view = f"CREATE OR REPLACE VIEW stored AS {_reading(table)}{_of(source)}"
            connection.execute(view)

    on_current(table, attempt, partial(unreadable, table))


def attach(connection: duckdb.DuckDBPyConnection, table: TableReader, source: str | None) -> None:
    """Set the variables and relations of a connection that `stored` reads. Each connection has its own
    variables and relations."""
    watchers = table.watchers
    connection.execute("SET VARIABLE watched = ?", [watchers is None or bool(watchers)])
    connection.execute("SET VARIABLE watchers = ?::VARCHAR[]", [watchers])
    if table.local:
        read(connection, table.file_uris())
    else:
        connection.execute("DROP VIEW IF EXISTS stored")
        connection.register("stored" if source is None else "snapshot", table.dataset())
        if source is not None:
            connection.execute(f"CREATE TEMP VIEW stored AS FROM snapshot{_of(source)}")


def read(connection: duckdb.DuckDBPyConnection, files: Iterable[str]) -> None:
    """Set the files of a local table that `stored` reads."""
    connection.execute("SET VARIABLE files = ?", [[literal(file) for file in sorted(files)]])


def on_current(
    table: TableReader,
    attempt: Callable[[], T],
    refusal: Callable[[Exception], TailraceError],
    moved: Callable[[], None] | None = None,
) -> T:
    """Return the result of `attempt`. If files of the snapshot are deleted meanwhile, repeat the call on the
    newest snapshot.

    Call `moved` after each move to a newer snapshot. Raise QueryError if `attempt` was interrupted, and the
    result of `refusal` for any other error."""
    for _ in range(ATTEMPTS):
        try:
            return attempt()
        except duckdb.InterruptException as error:
            raise QueryError(str(error)) from error
        except (duckdb.Error, OSError) as error:  # a dataset raises OSError
            if not overtaken(table):
                raise refusal(error) from error
            if moved is not None:
                moved()
    raise too_fast(table)


def unreadable(table: TableReader, error: Exception) -> StoreError:
    return StoreError(f"{table.root}: cannot be read: {line(error)}")


def overtaken(table: TableReader) -> bool:
    """Move the table to a newer version if files of the current version are deleted. Return whether the table
    moved.

    Raise StoreError if a file is missing that the newest version still needs."""
    missing = table.missing_files()
    if table.local and not missing:
        return False
    if table.refresh():
        return True
    if missing:
        raise StoreError(f"{missing[0]}: belongs to the table, but does not exist")
    return False


def too_fast(table: TableReader) -> StoreError:
    return StoreError(f"{table.root}: files are deleted faster than they can be read")


def _config(limits: Limits, spill: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "extension_directory": "",
        "home_directory": "",
        "python_enable_replacements": False,
        "secret_directory": "",
        "temp_directory": spill,
    }
    if limits.seconds is not None:
        config["max_execution_time"] = max(1, round(limits.seconds * 1000))
    if limits.memory is not None:
        config["memory_limit"] = f"{int(limits.memory * DATABASES_SHARE)}B"
    if limits.threads is not None:
        config["threads"] = limits.threads
    return config


def _reading(table: TableReader) -> str:
    """Return a SELECT of all rows of a local table."""
    if not table.file_uris():
        return f"FROM ({nothing()})"
    lacking = table.lacking()
    columns = ", ".join(null(c) if c.name in lacking else f'"{c.name}"' for c in COLUMNS[1:])
    read = "read_parquet(getvariable('files'), hive_partitioning = false)"
    return f"SELECT {_DAY}, {columns} FROM {read}"  # noqa: S608 - our own words


def _of(source: str | None) -> str:
    """Return an SQL WHERE clause that selects the rows of a source, empty for None."""
    return "" if source is None else f" WHERE source = {quote(source)}"


def literal(path: str) -> str:
    """Return a glob pattern that matches only this path."""
    return re.sub(r"[*?[]", r"[\g<0>]", path)
