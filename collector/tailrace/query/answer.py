"""Read the answer to a statement page by page, while DuckDB still computes the rest.

DuckDB's Python values are not exact for all types: nanoseconds are cut off, and months become days. To keep
values exact, DuckDB converts all values to text, except numbers, truth values and text.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import duckdb

from tailrace.errors import BrokenOffError, QueryError
from tailrace.query.database import keep
from tailrace.query.statement import Parameters, Statement

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
"""Pattern of DuckDB errors that are not caused by files. With Arrow, every DuckDB error is an OSError."""

_OBJECTS = re.compile(r"(attributes|producer|totals)(_\d+)?")
"""Pattern of the names of the views' JSON object columns. DuckDB adds a number to a repeated name."""

_NESTED = ("JSON", "STRUCT", "MAP", "UNION", "VARIANT")


class Shape(StrEnum):
    TEXT = "text"
    """Shape for text output: numbers stay numbers, and everything else becomes text."""
    JSON = "json"
    """Shape for JSON output: numbers and truth values are unchanged. JSON, nested values and the views'
    columns of JSON objects become JSON text. Everything else becomes text."""


class AnswerColumn:
    """One column of an answer. Names are unique, because DuckDB numbers repeated names."""

    __slots__ = ("embedded", "name", "number", "objects", "sql", "type")

    def __init__(self, index: int, name: str, type_: str, shape: Shape) -> None:
        nested = type_.startswith(_NESTED) or type_.endswith("]")
        objects = type_ == "VARCHAR" and _OBJECTS.fullmatch(name) is not None
        self.name = name
        self.type = type_
        self.number = type_ in _NUMBERS or type_.startswith("DECIMAL")
        self.embedded = (nested or objects) and shape is Shape.JSON
        """Whether the values are JSON text that is embedded in a JSON answer. In a column of `objects`, only
        objects are embedded."""
        self.objects = objects
        self.sql = f"c{index}"
        if self.embedded and not objects:
            self.sql = f"to_json(c{index})::VARCHAR"
        elif not (
            self.number or type_ == "VARCHAR" or (type_ == "BOOLEAN" and shape is Shape.JSON)
        ):
            self.sql = f"c{index}::VARCHAR"


class RowPages:
    """Pages of rows as tuples, with DuckDB's values. The constructor reads the first page."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters
    ) -> None:
        self._connection = connection
        connection.execute(sql, parameters)
        self._first: Page | None = connection.fetchmany(PAGE_ROWS)
        keep(self)

    def next_page(self) -> Page:
        """Return at most PAGE_ROWS rows, or an empty page at the end.

        Raise QueryError or BrokenOffError if the remaining rows cannot be read."""
        if self._first is not None:
            page, self._first = self._first, None
            return page
        try:
            return self._connection.fetchmany(PAGE_ROWS)
        except duckdb.Error as error:
            raise _broken_off(error) from error


class RowAnswer(RowPages):
    """Pages of rows as tuples in the order of `columns`, with exact values."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, statement: Statement, shape: Shape
    ) -> None:
        self.columns = _columns(connection, statement, shape)
        super().__init__(connection, _converted(statement, self.columns), statement.parameters)


class ArrowAnswer:
    """Record batches with DuckDB's own types. The constructor reads the first batch."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, statement: Statement) -> None:
        relation = connection.sql(statement.sql, params=statement.parameters)
        self._reader = relation.to_arrow_reader(BATCH_ROWS)
        self.schema: pyarrow.Schema = self._reader.schema
        self._first: pyarrow.RecordBatch | None = next(self._reader, None)
        keep(self)

    def next_batch(self) -> pyarrow.RecordBatch | None:
        """Return the next batch, or None at the end. Raise QueryError or BrokenOffError if the remaining rows
        cannot be read."""
        if self._first is not None:
            batch, self._first = self._first, None
            return batch
        try:
            return next(self._reader, None)
        except (
            duckdb.Error,
            OSError,
            ValueError,
        ) as error:  # pyarrow raises OSError and ValueError
            raise _broken_off(error) from error


def count(connection: duckdb.DuckDBPyConnection, statement: Statement) -> int:
    """Return the number of rows of a statement's answer."""
    if statement.explains:
        return len(connection.execute(statement.sql, statement.parameters).fetchall())
    counting = f"SELECT count(*) FROM (\n{statement.sql}\n)"  # noqa: S608 - examined
    return int(connection.execute(counting, statement.parameters).fetchall()[0][0])


def _columns(
    connection: duckdb.DuckDBPyConnection, statement: Statement, shape: Shape
) -> list[AnswerColumn]:
    if statement.explains:
        return [
            AnswerColumn(0, "what", "VARCHAR", shape),
            AnswerColumn(1, "plan", "VARCHAR", shape),
        ]
    describe = f"DESCRIBE FROM (\n{statement.sql}\n)"
    described = connection.execute(describe, statement.parameters).fetchall()
    return [AnswerColumn(i, name, type_, shape) for i, (name, type_, *_) in enumerate(described)]


def _converted(statement: Statement, columns: list[AnswerColumn]) -> str:
    """Return the statement, wrapped in a SELECT that converts each column to values that Python represents
    exactly."""
    given = ", ".join(f"c{i}" for i in range(len(columns)))
    taken = ", ".join(column.sql for column in columns)
    if taken == given:
        return statement.sql
    return f"SELECT {taken} FROM (\n{statement.sql}\n) AS answer({given})"  # noqa: S608 - examined


def _broken_off(error: Exception) -> QueryError | BrokenOffError:
    of_files = isinstance(error, duckdb.IOException | OSError)
    if of_files and not _FAILED.match(str(error)):
        return BrokenOffError(f"the answer is incomplete, ask again: {error}")
    return QueryError(str(error))
