"""Run SQL in DuckDB over one snapshot (version) of the table.

DuckDB's configuration is locked before the first statement: it can open only files in the table's directory, use no
network, load no extension and change no setting. DuckDB itself reads the files of a local table, 3 to 20 times as fast
as through Arrow (10 M rows, few of them selected). For a table at a URL, a pyarrow dataset reads the files."""

from __future__ import annotations

import copy
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from tailrace.errors import QueryError, TailraceError
from tailrace.query.answer import ArrowAnswer, RowAnswer, RowPages, Shape, count
from tailrace.query.catalog import ViewCatalog, nothing, null
from tailrace.query.database import finalize, first_opened, is_whole, keep
from tailrace.query.filters import quote
from tailrace.query.limits import DATABASES_SHARE, SPILL, Limits, make_room
from tailrace.query.statement import Parameters, Statement, examine, regions_of
from tailrace.query.table import Region, TableReader
from tailrace.rows.schema import COLUMNS
from tailrace.store.refusal import line
from tailrace.units import Size

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]  # it has no types

T = TypeVar("T")

logger = logging.getLogger(__name__)

ATTEMPTS = 5
"""Maximum number of snapshots that a read tries, because upkeep may delete files of a snapshot meanwhile."""

SPILL_DIRECTORY = "spill"
"""Name of the directory for temporary data that does not fit into memory, inside the process's private directory."""

# Do not use DuckDB's option `hive_partitioning`: it takes ten times as long, and would treat directories above the
# table as columns.
_DAY = r"regexp_extract(filename, '.*/day=([0-9-]+)/', 1)::DATE AS day"


class Engine:
    """A database connection over one snapshot of the table. It runs one statement at a time. Methods raise
    StoreError if the table cannot be read, and QueryError if a statement cannot run. Another thread may call
    `interrupt` to make the running statement fail."""

    def __init__(
        self,
        store: str,
        options: dict[str, str] | None = None,
        limits: Limits | None = None,
        *,
        room: str | None = None,
        version: int | None = None,
    ) -> None:
        """Open version `version` of the store's table, or the newest version. If the private directory `room` is given,
        change into it and read the table through a link, so that no statement can find out a path of the host."""
        self._origin: Engine | None = None
        self._source: str | None = None
        self.store = store
        self.options = options or {}
        self.table = first_opened(lambda: TableReader(store, self.options, version))
        if room is not None:
            self.table.enter(room)
        self._catalog = ViewCatalog()
        self._limits = limits or Limits()
        self.watchers: list[str] | None = None
        """Names of the collectors that ran on the store when the views were last prepared; None if unknown."""
        self._picked: list[str] | None = None
        self.connection = _connect(self.table, self._limits, room)
        self._show()
        keep(self)

    def beside(self) -> Engine:
        """Return a second engine on the same snapshot. It can run a statement while the rows of this engine's statement
        are still being read. After one of the two engines has moved to a newer snapshot, the other must not begin a
        statement. Closing this engine also ends the statements of the second engine."""
        other = copy.copy(self)
        other._origin = self  # noqa: SLF001 - our own class; both spill to the same directory
        other.connection = self.connection.cursor()
        other._attach()  # noqa: SLF001
        return keep(other)

    def restrict(self, source: str) -> None:
        self._source = source
        self._show()

    @property
    def version(self) -> int:
        return self.table.version()

    @property
    def empty(self) -> bool:
        """Whether the snapshot consists of no files, and therefore has no rows."""
        return not self.table.file_uris()

    def refresh(self) -> bool:
        """Move to the newest version of the table. Return whether it is newer. Also prepare the views again if the set
        of running collectors has changed, because a killed collector writes no new version."""
        newer = self.table.refresh()
        if newer or self.table.watchers != self.watchers:
            self._show()
        return newer

    def ask(self, sql: str, shape: Shape = Shape.TEXT, *, parameters: Parameters = ()) -> RowAnswer:
        """Start an SQL statement, wait for its first rows, and return an object from which all rows can be read."""
        return self._ask(
            sql, parameters, lambda statement: RowAnswer(self.connection, statement, shape)
        )

    def rows(self, sql: str, parameters: Parameters = ()) -> Iterator[tuple[Any, ...]]:
        """Run an SQL statement that this program wrote, and yield its rows. The statement is not checked, so a value
        from outside must be a parameter, or quoted. Columns must be numbers, truth values or text. The texts of errors
        do not quote DuckDB's texts, because the user did not write the statement."""
        try:
            answer = self._run(sql, parameters, lambda: RowPages(self.connection, sql, parameters))
            while page := answer.next_page():
                yield from page
        except QueryError as error:
            raise refused(error, self._limits) from error

    def batches(self, sql: str, parameters: Parameters = ()) -> Iterator[pyarrow.RecordBatch]:
        """Run an SQL statement that this program wrote, as `rows` does, and yield its rows as Arrow record batches."""
        statement = Statement(sql, [], explains=False, parameters=parameters)
        try:
            answer = self._run(sql, parameters, lambda: ArrowAnswer(self.connection, statement))
            while (batch := answer.next_batch()) is not None:
                yield batch
        except QueryError as error:
            raise refused(error, self._limits) from error

    def ask_arrow(self, sql: str, parameters: Parameters = ()) -> ArrowAnswer:
        """Start an SQL statement, wait for its first rows, and return an object from which all rows can be read as
        Arrow batches."""
        return self._ask(sql, parameters, lambda statement: ArrowAnswer(self.connection, statement))

    def count(self, sql: str, parameters: Parameters = ()) -> int:
        return self._ask(sql, parameters, lambda statement: count(self.connection, statement))

    def interrupt(self) -> None:
        self.connection.interrupt()

    def progress(self) -> float:
        """Return DuckDB's estimate of how much of the statement is done, from 0 to 1. Any thread may call this."""
        return max(self.connection.query_progress(), 0.0) / 100

    def close(self) -> None:
        if is_whole():
            self.connection.close()

    def prepare_all(self) -> None:
        self._prepare(None, ())

    def _ask(self, sql: str, parameters: Parameters, run: Callable[[Statement], T]) -> T:
        return self._run(sql, parameters, lambda: run(self._examined(sql, parameters)))

    def _run(self, sql: str, parameters: Parameters, run: Callable[[], T]) -> T:
        """Define the views that an SQL statement needs, select the files that it may read, and return the result of
        `run`, which runs the statement. If upkeep deletes files of the snapshot meanwhile, repeat this on the newest
        version of the table."""

        def attempt() -> T:
            self._prepare(sql, parameters)
            return run()

        return self._on_current(attempt, lambda error: QueryError(str(error)), self._show)

    def _examined(self, sql: str, parameters: Parameters) -> Statement:
        """Return the statement if it passes `statement.examine`. If it contains an unknown name, define all views
        and check again, so that DuckDB's error suggests similar names."""
        try:
            return examine(self.connection, sql, parameters)
        except QueryError as error:
            if self._catalog.whole or not isinstance(error.__cause__, duckdb.CatalogException):
                raise
        self.prepare_all()
        return examine(self.connection, sql, parameters)

    def _prepare(self, sql: str | None, parameters: Parameters) -> None:
        """Define the views that an SQL statement needs, or all views if `sql` is None. Limit the view `stored` to the
        files with rows that the statement may read."""

        def attempt() -> None:
            regions = regions_of(self.connection, sql, parameters) if sql else None
            self._pick(None)
            self._catalog.prepare(self.connection, sql, self._pick, regions)
            self._pick(regions)

        self._on_current(attempt, self.table.unreadable, self._show)

    def _pick(self, regions: list[Region] | None) -> None:
        """Limit the view `stored` to the files of a local table that may contain rows in one of `regions`."""
        if not self.table.local:
            return
        picked = None if regions is None else self.table.picked(regions, timed=self._catalog.timed)
        if picked != self._picked:
            self._read(self.table.file_uris() if picked is None else picked)
            self._picked = picked

    def _read(self, files: Iterable[str]) -> None:
        paths = [literal(file) for file in sorted(files)]
        self.connection.execute("SET VARIABLE files = ?", [paths])

    def _show(self) -> None:
        """Define the view `stored` with the rows of the snapshot, or of the newest one if upkeep deletes files."""

        def attempt() -> None:
            self.watchers = self.table.watchers
            self._catalog.forget(self.table.statistics)
            self._attach()
            if not self.table.local:
                return
            rows = f"FROM ({nothing()})"
            if self.table.file_uris():
                lacking = self.table.lacking()
                columns = (null(c) if c.name in lacking else f'"{c.name}"' for c in COLUMNS[1:])
                read = "read_parquet(getvariable('files'), hive_partitioning = false)"
                rows = f"SELECT {_DAY}, {', '.join(columns)} FROM {read}"  # noqa: S608 - our own words
            self.connection.execute(f"CREATE OR REPLACE VIEW stored AS {rows}{self._where}")

        self._on_current(attempt, self.table.unreadable)

    def _attach(self) -> None:
        """Give the connection the table's rows, and set two SQL variables: `watchers` names the running collectors of
        the store, and `watched` states whether any collector runs. A table at a URL also gets its view `stored`."""
        watchers = self.table.watchers
        self.connection.execute("SET VARIABLE watched = ?", [watchers is None or bool(watchers)])
        self.connection.execute("SET VARIABLE watchers = ?::VARCHAR[]", [watchers])
        self._picked = None
        if self.table.local:
            self._read(self.table.file_uris())
            return
        self.connection.execute("DROP VIEW IF EXISTS stored")
        self.connection.register("snapshot" if self._where else "stored", self.table.dataset())
        if self._where:
            self.connection.execute(f"CREATE TEMP VIEW stored AS FROM snapshot{self._where}")

    @property
    def _where(self) -> str:
        return "" if self._source is None else f" WHERE source = {quote(self._source)}"

    def _on_current(
        self,
        attempt: Callable[[], T],
        refusal: Callable[[Exception], TailraceError],
        moved: Callable[[], None] | None = None,
    ) -> T:
        """Return the result of `attempt`, which reads the current version of the table. If upkeep has deleted files of
        it, move to the newest version, call `moved`, and repeat. Raise QueryError if `attempt` was interrupted,
        StoreError if upkeep deletes files faster than `attempt` reads them, and for any other error the exception that
        `refusal` returns."""
        for _ in range(ATTEMPTS):
            try:
                return attempt()
            except (duckdb.Error, OSError) as error:
                # Also catch OSError, which reading through a pyarrow dataset raises.
                if is_interrupt(error):
                    raise QueryError(str(error)) from error
                if not self.table.overtaken():
                    raise refusal(error) from error
                if moved is not None:
                    moved()
        raise self.table.too_fast()


def _connect(table: TableReader, limits: Limits, room: str | None) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection with a locked configuration. Temporary data goes to a directory in `room`, the working
    directory, or to a new directory, which is removed together with the connection."""
    spill = make_room() if room is None else SPILL_DIRECTORY
    connection = duckdb.connect(config=_config(limits, spill))
    if room is None:
        finalize(connection, shutil.rmtree, spill, True)  # noqa: FBT003 - ignore errors
    connection.execute("CREATE SCHEMA part; SET GLOBAL TimeZone = 'UTC'")
    most = limits.spill
    if most is None and limits.memory is not None:
        most = limits.memory * SPILL
    if most is not None:
        # DuckDB 2.0 ignores this limit in the configuration of `connect`.
        connection.execute(f"SET max_temp_directory_size = '{int(most)}B'")
    if table.local:
        directories = f"{table.seen_at}/", f"{literal(table.seen_at)}/"
        allowed = ", ".join(quote(directory) for directory in directories)
        connection.execute(f"SET allowed_directories = [{allowed}]")
    # Let DuckDB estimate the progress of statements. It refuses in a notebook without ipywidgets.
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error means that a statement was interrupted. DuckDB's Arrow reader raises an OSError then."""
    return isinstance(error, duckdb.InterruptException) or (
        isinstance(error, OSError) and str(error).startswith("INTERRUPT Error")
    )


def refused(error: QueryError, limits: Limits) -> QueryError:
    """Return the error of a statement that this program wrote, with a text that names no SQL. Log DuckDB's own text,
    unless the statement was interrupted or memory ran out."""
    cause = error.__cause__
    less = "choose a shorter range, or fewer sessions"
    if is_interrupt(cause) and limits.seconds is not None:
        return QueryError(f"this takes longer than {limits.seconds:g} s: {less}")
    if isinstance(cause, duckdb.OutOfMemoryException):
        memory = "the machine has" if limits.memory is None else f"{Size(limits.memory)}"
        return QueryError(f"this needs more memory or temporary disk space than {memory}: {less}")
    if isinstance(cause, duckdb.Error | OSError) and not is_interrupt(cause):
        logger.warning("a statement failed: %s", line(cause))
        return QueryError("the table could not be evaluated; the log has the details")
    return error


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


def literal(path: str) -> str:
    """Return a glob pattern that matches exactly this path, even if the path contains `*`, `?` or `[`."""
    return re.sub(r"[*?[]", r"[\g<0>]", path)
