"""Read the rows of an SQL statement in pages, while DuckDB computes further rows.

DuckDB does not convert all types to Python exactly: it drops the nanoseconds of times, and turns intervals of months
into days. Therefore DuckDB first converts all values to text, except numbers and truth values."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import duckdb

from tailrace.errors import BrokenOffError, QueryError
from tailrace.query.database import keep
from tailrace.query.statement import Parameters, Statement, message

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]  # it has no types

PAGE_ROWS = 2000
BATCH_ROWS = 65_536

Page = list[tuple[Any, ...]]

_NUMBERS = frozenset(
    {
        "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE",
        "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    }
)  # fmt: skip
_FAILED = re.compile(r"(?!IO )[A-Z][a-zA-Z ]* Error: ")
"""Pattern of the messages of DuckDB's errors. IO errors are left out, because files of the table may cause them. Arrow
raises OSError for each of DuckDB's errors, so that only the message shows the kind of error."""

_OBJECTS = re.compile(r"(attributes|labels|producer|totals)(_\d+)?")
"""Pattern of the names of columns that contain JSON objects. DuckDB appends a number to a repeated name."""

_NESTED = ("JSON", "STRUCT", "MAP", "UNION", "VARIANT")


class Shape(StrEnum):
    TEXT = "text"
    """Numbers stay numbers, and all other values become text."""
    JSON = "json"
    """Numbers and truth values stay as they are. Values of type JSON, nested values, and the JSON objects in the
    views' columns become JSON text. All other values become text."""


class AnswerColumn:
    """One column of an answer: its name, which is unique, its DuckDB type, and how its values are converted."""

    __slots__ = ("embedded", "name", "number", "objects", "sql", "type")

    def __init__(self, index: int, name: str, type_: str, shape: Shape) -> None:
        nested = type_.startswith(_NESTED) or type_.endswith("]")
        objects = type_ == "VARCHAR" and _OBJECTS.fullmatch(name) is not None
        self.name = name
        self.type = type_
        self.number = type_ in _NUMBERS or type_.startswith("DECIMAL")
        self.embedded = (nested or objects) and shape is Shape.JSON
        """Whether JSON output contains the column's values as nested JSON. If `objects` is true, only JSON objects are
        nested, and all other values are texts."""
        self.objects = objects
        self.sql = f"c{index}"
        if self.embedded and not objects:
            self.sql = f"to_json(c{index})::VARCHAR"
        elif not (
            self.number or type_ == "VARCHAR" or (type_ == "BOOLEAN" and shape is Shape.JSON)
        ):
            self.sql = f"c{index}::VARCHAR"


class RowPages:
    """The rows of a statement as pages of tuples with DuckDB's values. The constructor reads the first page."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters
    ) -> None:
        self._connection = connection
        connection.execute(sql, parameters)
        self._first: Page | None = connection.fetchmany(PAGE_ROWS)
        keep(self)

    def next_page(self) -> Page:
        """Return the next page of at most PAGE_ROWS rows, which is empty after the last row. Raise BrokenOffError if
        a file of the table can no longer be read, and QueryError for any other failure."""
        if self._first is not None:
            page, self._first = self._first, None
            return page
        try:
            return self._connection.fetchmany(PAGE_ROWS)
        except duckdb.Error as error:
            raise _broken_off(error) from error


class RowAnswer(RowPages):
    """The rows of a statement as pages of tuples in the order of `columns`. No value loses precision."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, statement: Statement, shape: Shape
    ) -> None:
        self.columns = [
            AnswerColumn(i, name, type_, shape) for i, (name, type_) in enumerate(statement.columns)
        ]
        given = ", ".join(f"c{i}" for i in range(len(self.columns)))
        taken = ", ".join(column.sql for column in self.columns)
        sql = statement.sql
        if taken != given:
            sql = f"SELECT {taken} FROM (\n{sql}\n) AS answer({given})"  # noqa: S608 - examined
        try:
            super().__init__(connection, sql, statement.parameters)
        except duckdb.Error as error:
            if sql != statement.sql:
                error.args = (message(error),)
            raise


class ArrowAnswer:
    """The rows of a statement as Arrow record batches with DuckDB's types. The constructor reads the first one."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, statement: Statement) -> None:
        relation = connection.sql(statement.sql, params=statement.parameters)
        self._reader = relation.to_arrow_reader(BATCH_ROWS)
        self.schema: pyarrow.Schema = self._reader.schema
        self._first: pyarrow.RecordBatch | None = next(self._reader, None)
        keep(self)

    def next_batch(self) -> pyarrow.RecordBatch | None:
        """Return the next record batch, or None after the last one. Raise BrokenOffError if a file of the table can
        no longer be read, and QueryError for any other failure."""
        if self._first is not None:
            batch, self._first = self._first, None
            return batch
        try:
            return next(self._reader, None)
        except (duckdb.Error, OSError, ValueError) as error:  # pyarrow raises the last two
            raise _broken_off(error) from error


def count(connection: duckdb.DuckDBPyConnection, statement: Statement) -> int:
    if statement.explains:
        return len(connection.execute(statement.sql, statement.parameters).fetchall())
    counting = f"SELECT count(*) FROM (\n{statement.sql}\n)"  # noqa: S608 - examined
    try:
        return int(connection.execute(counting, statement.parameters).fetchall()[0][0])
    except duckdb.Error as error:
        error.args = (message(error),)
        raise


def _broken_off(error: Exception) -> QueryError | BrokenOffError:
    of_files = isinstance(error, duckdb.IOException | OSError)
    if of_files and not _FAILED.match(str(error)):
        return BrokenOffError(f"the answer is incomplete, ask again: {error}")
    return QueryError(str(error))
