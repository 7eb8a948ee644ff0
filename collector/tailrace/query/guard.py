"""Restrict statements to reading the views and computing, whoever wrote them.

DuckDB has no switch for that. Its own lock (see `engine`) restricts a statement to the files of the
table, but a statement can write where it can read: to DuckDB, `WITH x AS (COPY ... TO ...) SELECT` is a
SELECT. So we run a statement only if it is the only one, if its kind returns rows, and if its plan, which
shows nested and generated statements, writes nothing and calls no table function but `READERS` and those
of the views. (`json_execute_serialized_sql`, for example, does what no plan shows.) A plan does not show
what was computed while it was made. So we also check the statement as written: it may call no function
that reveals the host, and no table function that only the views may call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import msgspec

from tailrace.errors import QueryError

READERS = frozenset(
    {
        "DUCKDB_COLUMNS", "DUCKDB_FUNCTIONS", "DUCKDB_KEYWORDS", "DUCKDB_TABLES", "DUCKDB_TYPES",
        "DUCKDB_VIEWS", "GENERATE_SERIES", "JSON_EACH", "JSON_TREE", "PRAGMA_TABLE_INFO",
        "PRAGMA_VERSION", "RANGE", "REPEAT", "REPEAT_ROW", "UNNEST",
    }
)  # fmt: skip
"""The table functions that a statement may call."""

OF_VIEWS = frozenset({"PYTHON_ARROW_SCAN", "READ_PARQUET"})
"""The table functions that only the views may call. Their arguments are paths of files, or addresses in
this process's memory."""

TELLING = frozenset({"CURRENT_SETTING", "GETVARIABLE", "QUERY", "QUERY_TABLE"})
"""The functions that reveal where the table and this process are on the host, and those that run another
statement, whose text we would not see."""

_WRITERS = frozenset({"COPY", "DELETE", "INSERT", "INTO", "UPDATE"})
"""Words in the names of plan steps that write."""

_ROWS = frozenset({duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN})

_EXPLAIN = re.compile(r"\s*EXPLAIN\b(\s+ANALYZE\b)?(\s*\([\w\s,]*\))?", re.IGNORECASE)

_LINE = re.compile(r"(?m)^LINE (\d+):")


Parameters = Sequence[object] | Mapping[str, object]
"""Values of a statement's parameters: for each `?` in order, or for each `$name` by name."""


class Statement(NamedTuple):
    """A statement that may be run."""

    sql: str
    explains: bool
    parameters: Parameters = ()


def examine(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()
) -> Statement:
    """Return the one statement that `sql` contains. Raise QueryError if it may not run."""
    try:
        statements = connection.extract_statements(sql)
        kinds = [statement.type for statement in statements]
    except (
        duckdb.Error,
        ValueError,
    ) as error:  # ValueError: a kind of statement that the binding does not know
        raise QueryError(str(error)) from error
    if len(statements) != 1:
        raise QueryError(f"give one statement, not {len(statements)}")
    statement = _without_semicolon(statements[0].query)
    (kind,) = kinds
    if kind == duckdb.StatementType.MULTI:
        raise QueryError("a PIVOT must name its columns here: PIVOT ... ON column IN (...)")
    if kind not in _ROWS:
        raise QueryError(f"only statements that read are allowed, and this one is {kind.name}")
    explains = _EXPLAIN.match(statement)
    asked = statement[explains.end() :] if explains else statement
    _examine_words(connection, asked)
    _examine_plan(connection, asked, parameters)
    return Statement(statement, explains is not None, parameters)


def _without_semicolon(statement: str) -> str:
    """Return the statement without semicolon and final comment, so that it fits in parentheses."""
    ends = [at for at, kind in duckdb.tokenize(statement) if kind == duckdb.token_type.operator]
    data = statement.encode(errors="surrogatepass")  # positions count bytes
    if ends and data[ends[-1] :].startswith(b";"):
        return data[: ends[-1]].decode(errors="surrogatepass")
    return statement


def _examine_words(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Check the functions that the statement calls as it is written, before any is computed."""
    serialized = connection.execute(
        "SELECT json_serialize_sql($1::VARCHAR)", [statement]
    ).fetchall()
    try:
        tree = msgspec.json.decode(serialized[0][0])
    except RecursionError:
        raise QueryError("the statement is nested too deeply") from None
    if tree["error"]:
        raise QueryError(f"{tree['error_type']}: {tree['error_message']}")
    for function, gives_table in _calls(tree):
        if function in TELLING or (gives_table and function not in READERS):
            raise QueryError(f"{function.lower()} is not available here: query the views")


def _calls(tree: object) -> Iterator[tuple[str, bool]]:
    """Yield each function that a syntax tree calls, in capitals, and whether it is a table function."""
    waiting = [(tree, False)]
    while waiting:
        node, gives_table = waiting.pop()
        if isinstance(node, dict):
            if "function_name" in node:
                yield node["function_name"].upper(), gives_table
            is_table = node.get("type") == "TABLE_FUNCTION"
            waiting += [(child, is_table and key == "function") for key, child in node.items()]
        elif isinstance(node, list):
            waiting += [(child, False) for child in node]


def _examine_plan(
    connection: duckdb.DuckDBPyConnection, statement: str, parameters: Parameters
) -> None:
    """Bind and plan the statement without running it."""
    try:
        explain = f"EXPLAIN (FORMAT json)\n{statement}"
        plan = connection.execute(explain, parameters).fetchall()[0][1]
    except duckdb.IOException:
        raise  # files of the snapshot may be gone, which is not the statement's fault
    except duckdb.Error as error:
        raise QueryError(_LINE.sub(_line_before, str(error))) from error
    for step, function in _steps(json.loads(plan)):
        if not _WRITERS.isdisjoint(step.split("_")):
            raise QueryError(f"only statements that read are allowed, and this one has {step}")
        if function is not None and function not in READERS | OF_VIEWS:
            raise QueryError(f"{function.lower()} is not available here: query the views")


def _steps(plan: list[dict[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """Yield each step's name and the table function it calls, if any, in capitals."""
    for step in plan:
        function = step["extra_info"].get("Function")
        yield step["name"].upper(), None if function is None else function.upper()
        yield from _steps(step["children"])


def _line_before(line: re.Match[str]) -> str:
    """Return the line number without the line that we put before the statement."""
    return f"LINE {int(line[1]) - 1}:"
