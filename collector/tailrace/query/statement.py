"""Refuse statements that could do more than read the table, and find the regions of the table that a
statement reads.

DuckDB has no switch that limits a statement to reading. The lock of DuckDB's configuration (see `engine`)
restricts a statement to the table's files, but a statement could still write these files: to DuckDB, `WITH x
AS (COPY ... TO ...) SELECT` is a SELECT. So a statement must be the only one in the text, and its kind must
return rows. The statement's plan, which shows nested and generated statements, must not write, and must call
no table function except `READERS` and those of the views. Some functions act without a trace in the plan (for
example `json_execute_serialized_sql`), since the plan does not show what DuckDB computed while it planned. So
the text of the statement is also checked: a statement must call no function that reveals the host, and no
table function that only the views may call.

A statement uses only those rows of a view that match the WHERE clause beside the view's name. The part of
this clause about columns with statistics is the view's region. A region may be too large, but never too
small: a condition that the parser does not support bounds nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import msgspec

from tailrace.errors import QueryError
from tailrace.query.table import Bounds, Region, StatedValue
from tailrace.query.views import COUNTERS, EVENTS, SPANS

READERS = frozenset(
    {
        "DUCKDB_COLUMNS", "DUCKDB_FUNCTIONS", "DUCKDB_KEYWORDS", "DUCKDB_TABLES", "DUCKDB_TYPES",
        "DUCKDB_VIEWS", "GENERATE_SERIES", "JSON_EACH", "JSON_TREE", "PRAGMA_TABLE_INFO",
        "PRAGMA_VERSION", "RANGE", "REPEAT", "REPEAT_ROW", "UNNEST",
    }
)  # fmt: skip
"""Table functions that a statement may call."""

OF_VIEWS = frozenset({"PYTHON_ARROW_SCAN", "READ_PARQUET"})
"""Table functions that only the views may call. The arguments of `READ_PARQUET` and `PYTHON_ARROW_SCAN` are
file paths, or addresses in this process's memory."""

REVEALING = frozenset({"CURRENT_SETTING", "GETVARIABLE", "QUERY", "QUERY_TABLE"})
"""Functions that a statement must not call. Such a function reveals paths of the table or of this process, or
runs another statement whose text is not examined."""

_WRITERS = frozenset({"COPY", "DELETE", "INSERT", "INTO", "UPDATE"})
"""Words that mark a plan step as a write."""

_ROWS = frozenset({duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN})

_EXPLAIN = re.compile(r"\s*EXPLAIN\b(\s+ANALYZE\b)?(\s*\([\w\s,]*\))?", re.IGNORECASE)

_LINE = re.compile(r"(?m)^LINE (\d+):")


Parameters = Sequence[object] | Mapping[str, object]
"""Values of a statement's parameters: a sequence for `?`, or a mapping for `$name`."""


class Statement(NamedTuple):
    """A statement that has been examined and may be run."""

    sql: str
    explains: bool
    parameters: Parameters = ()


def examine(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()
) -> Statement:
    """Return the single statement in `sql`. Raise QueryError if the statement may not run."""
    try:
        statements = connection.extract_statements(sql)
        kinds = [statement.type for statement in statements]
    except (
        duckdb.Error,
        ValueError,
    ) as error:  # ValueError: the binding does not support this kind of statement
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
    """Return the statement without its semicolon and final comment, so that the text can stand in
    parentheses."""
    ends = [at for at, kind in duckdb.tokenize(statement) if kind == duckdb.token_type.operator]
    data = statement.encode(errors="surrogatepass")  # DuckDB's positions are in bytes
    if ends and data[ends[-1] :].startswith(b";"):
        return data[: ends[-1]].decode(errors="surrogatepass")
    return statement


def _examine_words(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Check the functions that the statement's text calls, before DuckDB evaluates any of them."""
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
        if function in REVEALING or (gives_table and function not in READERS):
            raise QueryError(f"{function.lower()} is not available here: query the views")


def _calls(tree: object) -> Iterator[tuple[str, bool]]:
    """Yield each function that a syntax tree calls, as its name in capitals and whether it is a table
    function."""
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
    """Bind and plan the statement without running it, and check the steps of the plan."""
    try:
        explain = f"EXPLAIN (FORMAT json)\n{statement}"
        plan = connection.execute(explain, parameters).fetchall()[0][1]
    except duckdb.IOException:
        raise  # the snapshot's files may be deleted, which is no fault of the statement
    except duckdb.Error as error:
        raise QueryError(_LINE.sub(_line_before, str(error))) from error
    for step, function in _steps(json.loads(plan)):
        if not _WRITERS.isdisjoint(step.split("_")):
            raise QueryError(f"only statements that read are allowed, and this one has {step}")
        if function is not None and function not in READERS | OF_VIEWS:
            raise QueryError(f"{function.lower()} is not available here: query the views")


def _steps(plan: list[dict[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each step in a plan, and the table function in capitals that the step calls, or
    None."""
    for step in plan:
        function = step["extra_info"].get("Function")
        yield step["name"].upper(), None if function is None else function.upper()
        yield from _steps(step["children"])


def _line_before(line: re.Match[str]) -> str:
    """Return the line number in an error, corrected for the line that this module put before the
    statement."""
    return f"LINE {int(line[1]) - 1}:"


_TABLES_ONLY = frozenset({"all_gaps", "gaps", "labels"})
_PARTS_ONLY = frozenset({"clocks", "places", "runs", "session_words"})
"""Names of views in the schema `part` whose rows are already in tables when the statement runs."""

_TEXTS = frozenset({"format", "kind", "session", "source", "stream"})
_NUMBERS = frozenset({"end", "seq", "start", "substream", "time"})

_STATED = _TEXTS | _NUMBERS

READING = {
    "stored": _STATED,
    **{view.name: _STATED & {c.name for c in view.columns} for view in (COUNTERS, EVENTS, SPANS)},
}
"""Views that yield each row of the files once, with their columns of `_TEXTS` and `_NUMBERS`. The views show
the listed columns as stored. A column name that is not listed here is defined by the statement itself."""

_WORD = re.compile(r"\w+")

_LAST = "\U0010ffff"
"""The greatest Unicode character."""

_FLIPPED = {
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
}

SyntaxNode = dict[str, Any]


def regions_of(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters
) -> list[Region] | None:
    """Return the regions that a statement reads, or None for the whole table. Return None if the database
    cannot parse the statement."""
    if READING.keys().isdisjoint(_WORD.findall(sql.lower())):
        return None
    try:
        ((serialized,),) = connection.execute(
            "SELECT json_serialize_sql($1::VARCHAR)", [sql]
        ).fetchall()
        tree = msgspec.json.decode(serialized)
    except (duckdb.Error, RecursionError):
        return None
    return None if tree["error"] else regions(tree, parameters)


def regions(tree: SyntaxNode, parameters: Parameters) -> list[Region] | None:
    """Return the regions that a statement reads, or None for the whole table. `tree` is the statement's
    syntax tree from `json_serialize_sql`."""
    named: set[str] = set()
    bounded: dict[int, Region] = {}
    tables: list[SyntaxNode] = []
    for node in _nodes(tree):
        named.update(entry["key"] for entry in (node.get("cte_map") or {}).get("map", ()))
        if node.get("type") == "BASE_TABLE":
            tables.append(node)
        table = node.get("from_table")
        if node.get("type") == "SELECT_NODE" and table is not None and _is_plain(table):
            bounded[id(table)] = _region(node["where_clause"], table, parameters)
    found = []
    for table in tables:
        path = [name.lower() for name in table["qualified_name"]["path"]]
        if path[-1] in READING and len(path) == 1:
            if id(table) not in bounded:
                return None
            found.append(bounded[id(table)])
        elif not (
            path[0] in _TABLES_ONLY | {name.lower() for name in named}
            if len(path) == 1
            else path[0] == "part" and path[1] in _PARTS_ONLY
        ):
            return None
    return found


def _nodes(tree: object) -> Iterator[SyntaxNode]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _is_plain(table: SyntaxNode) -> bool:
    """Return whether a FROM clause is a single table or view, without column aliases and without a sample."""
    return (
        table["type"] == "BASE_TABLE" and not table["column_name_alias"] and table["sample"] is None
    )


def _region(condition: SyntaxNode | None, table: SyntaxNode, parameters: Parameters) -> Region:
    """Return the bounds of columns that follow from a condition. Every matching row is within all of these
    bounds."""
    if condition is None:
        return {}
    if condition["type"] == "CONJUNCTION_AND":
        region: dict[str, Bounds] = {}
        for child in condition["children"]:
            for column, bounds in _region(child, table, parameters).items():
                region[column] = bounds.both(region.get(column, Bounds()))
        return region
    if condition["type"] == "CONJUNCTION_OR":
        first, *others = (_region(child, table, parameters) for child in condition["children"])
        return {
            column: bounds.either(*(other[column] for other in others))
            for column, bounds in first.items()
            if all(column in other for other in others)
        }
    return dict(_comparison(condition, table, parameters))


def _comparison(
    node: SyntaxNode, table: SyntaxNode, parameters: Parameters
) -> Iterator[tuple[str, Bounds]]:
    """Yield the column that a comparison bounds, and its bounds. Yield nothing if the comparison bounds no
    column."""
    if node["type"] == "COMPARE_BETWEEN":
        compared = node["input"], [node["lower"], node["upper"]]
    elif node["type"] == "COMPARE_IN":
        compared = node["children"][0], node["children"][1:]
    elif node["type"] == "FUNCTION" and node["function_name"] == "starts_with":
        first, *others = (argument["expression"] for argument in node["arguments"])
        compared = first, others
    elif node["type"] in _FLIPPED:
        compared = node["left"], [node["right"]]
    else:
        return
    kind, (of, with_) = node["type"], compared
    column = _column(of, table)
    if column is None and kind in _FLIPPED:
        kind, of, with_ = _FLIPPED[kind], node["right"], [node["left"]]
        column = _column(of, table)
    if column is None:
        return
    values = [_value(each, parameters) for each in with_]
    if not values or not all(
        isinstance(value, str if column in _TEXTS else int) for value in values
    ):
        return
    yield column, _bounds(kind, values)


def _bounds(kind: str, values: list[Any]) -> Bounds:
    match kind:
        case "COMPARE_GREATERTHAN" | "COMPARE_GREATERTHANOREQUALTO":
            return Bounds(least=values[0])
        case "COMPARE_LESSTHAN" | "COMPARE_LESSTHANOREQUALTO":
            return Bounds(most=values[0])
        case "COMPARE_BETWEEN":
            return Bounds(*values)
        case "FUNCTION":
            return Bounds(values[0], _behind(values[0]))
        case _:
            return Bounds(min(values), max(values))


def _behind(prefix: str) -> str | None:
    """Return a text that sorts after all texts with the prefix, or None if no such text exists."""
    kept = prefix.rstrip(_LAST)
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None


def _column(node: SyntaxNode, table: SyntaxNode) -> str | None:
    """Return the name of the column that a node refers to, or None unless the column has statistics."""
    if node["type"] != "COLUMN_REF":
        return None
    *of, name = (each.lower() for each in node["column_names"])
    alias = (table["alias"] or table["table_name"]).lower()
    view = table["qualified_name"]["path"][-1].lower()
    return name if name in READING.get(view, ()) and of in ([], [alias]) else None


def _value(node: SyntaxNode, parameters: Parameters) -> StatedValue | None:
    """Return the value of a node if it is a literal or a parameter, and an integer or a text. Return None
    otherwise."""
    if node["type"] == "VALUE_PARAMETER":
        name = node["identifier"]
        try:
            given: object = (
                parameters[name] if isinstance(parameters, Mapping) else parameters[int(name) - 1]
            )
        except (LookupError, ValueError):  # DuckDB reports a missing parameter
            return None
        return given if isinstance(given, int | str) and not isinstance(given, bool) else None
    literal = node.get("literal") or {}
    if literal.get("kind") == "INTEGER":
        return int(literal["text"])
    return literal["text"] if literal.get("kind") == "STRING" else None
