"""Refuse SQL statements that could do more than read the table, and find out which rows of the table a statement can
read.

DuckDB has no setting that allows only reading: for it, `WITH x AS (COPY ... TO ...) SELECT` is a SELECT. Three checks
apply:

- The text must consist of one statement, of a kind that returns rows.
- The statement's plan must contain no step that writes, and no table function except `READERS` and those of the views.
  A statement that only selects from views (`reads_only_views`) is not planned: its text shows everything, and planning
  takes as long as a statement over a small table.
- The text must call no function that reveals facts about the host or that only the views may call. The plan does not
  show functions that DuckDB runs while it plans, such as `json_execute_serialized_sql`.

Conditions on columns with statistics form a region (`table.Region`): files without rows in it need not be read. A
condition that this module does not understand restricts nothing, so that a region may be too large, but never too
small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import msgspec

from tailrace.errors import QueryError
from tailrace.query.table import Bounds, Region, StatedValue
from tailrace.query.views import COUNTERS, EVENTS, SPANS, VIEWS

READERS = frozenset(
    {
        "DUCKDB_COLUMNS", "DUCKDB_FUNCTIONS", "DUCKDB_KEYWORDS", "DUCKDB_TABLES", "DUCKDB_TYPES",
        "DUCKDB_VIEWS", "GENERATE_SERIES", "JSON_EACH", "JSON_TREE", "PRAGMA_TABLE_INFO",
        "PRAGMA_VERSION", "RANGE", "REPEAT", "REPEAT_ROW", "UNNEST",
    }
)  # fmt: skip
"""Names of the table functions that a user's statement may call."""

OF_VIEWS = frozenset({"PYTHON_ARROW_SCAN", "READ_PARQUET"})
"""Names of table functions that only the views may call: their arguments are file paths, or addresses in memory."""

REVEALING = frozenset(
    {"CURRENT_SETTING", "GETVARIABLE", "JSON_SERIALIZE_PLAN", "QUERY", "QUERY_TABLE"}
)
"""Names of functions that a user's statement must not call: they reveal paths, or run an unchecked statement."""

MACROS = frozenset({"FORMAT_TYPE", "GET_BLOCK_SIZE", "PG_GET_CONSTRAINTDEF", "PG_GET_VIEWDEF"})
"""Names of DuckDB's macros with a FROM clause, which only the plan of a statement shows."""

_SELECTING = frozenset(
    {
        "ASCENDING", "BASE_TABLE", "DESCENDING", "DISTINCT_MODIFIER", "EMPTY", "EXPRESSION_LIST", "JOIN",
        "LIMIT_MODIFIER", "ORDER_DEFAULT", "ORDER_MODIFIER", "SELECT_NODE", "SET_OPERATION_NODE", "SUBQUERY",
    }
)  # fmt: skip
"""Types of syntax-tree nodes that only select rows of named tables. Expressions are not checked against this set."""

_WRITERS = frozenset({"COPY", "DELETE", "INSERT", "INTO", "UPDATE"})
"""A step of DuckDB's plan writes if its name contains one of these words."""

_EXPLAIN = re.compile(r"\s*EXPLAIN\b(\s+ANALYZE\b)?(\s*\([\w\s,]*\))?", re.IGNORECASE)

_LINE = re.compile(r"(?m)^LINE (\d+):")


SyntaxNode = dict[str, Any]

Parameters = Sequence[object] | Mapping[str, object]
"""Values for the parameters of an SQL statement: a sequence for `?`, or a mapping by name for `$name`."""


class Statement(NamedTuple):
    """A statement that has passed the checks. `columns` has the name and DuckDB's type of each column."""

    sql: str
    columns: list[tuple[str, str]]
    explains: bool
    parameters: Parameters


def examine(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()
) -> Statement:
    """Return the SQL text as a statement that only reads. Raise QueryError if it must not run."""
    try:
        statements = [(each.query, each.type) for each in connection.extract_statements(sql)]
    except (duckdb.Error, ValueError) as error:
        # DuckDB's Python binding raises ValueError for a kind of statement that it does not know.
        raise QueryError(str(error)) from error
    if len(statements) != 1:
        raise QueryError(f"give one statement, not {len(statements)}")
    ((text, kind),) = statements
    statement = _without_semicolon(text)
    if kind == duckdb.StatementType.MULTI:
        raise QueryError("a PIVOT must name its columns here: PIVOT ... ON column IN (...)")
    if kind not in {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}:
        raise QueryError(f"only statements that read are allowed, and this one is {kind.name}")
    explains = _EXPLAIN.match(statement)
    asked = statement[explains.end() :] if explains else statement
    tree = _examine_words(connection, asked)
    if explains or not reads_only_views(tree):
        _examine_plan(connection, asked, parameters)
    if explains:
        columns = [("what", "VARCHAR"), ("plan", "VARCHAR")]
        return Statement(statement, columns, explains=True, parameters=parameters)
    described = _rows(connection, f"DESCRIBE FROM (\n{statement}\n)", parameters)
    columns = [(name, type_) for name, type_, *_ in described]
    return Statement(statement, columns, explains=False, parameters=parameters)


def _without_semicolon(statement: str) -> str:
    """Return a statement without its final semicolon and the text after it, so that it can be put in parentheses."""
    ends = [at for at, kind in duckdb.tokenize(statement) if kind == duckdb.token_type.operator]
    # Count in bytes, because DuckDB states positions in bytes.
    data = statement.encode(errors="surrogatepass")
    if ends and data[ends[-1] :].startswith(b";"):
        return data[: ends[-1]].decode(errors="surrogatepass")
    return statement


def _parsed(connection: duckdb.DuckDBPyConnection, statement: str) -> SyntaxNode:
    """Return a statement's syntax tree. Raise RecursionError if the statement is nested too deeply."""
    serialize = "SELECT json_serialize_sql($1::VARCHAR)"
    ((text,),) = connection.execute(serialize, [statement]).fetchall()
    tree: SyntaxNode = msgspec.json.decode(text)
    return tree


def _examine_words(connection: duckdb.DuckDBPyConnection, statement: str) -> SyntaxNode:
    """Return a statement's syntax tree, before DuckDB runs it. Raise QueryError for a function that is not allowed."""
    try:
        tree = _parsed(connection, statement)
    except RecursionError:
        raise QueryError("the statement is nested too deeply") from None
    if tree["error"]:
        raise QueryError(f"{tree['error_type']}: {tree['error_message']}")
    of_tables: set[int] = set()
    for node in _nodes(tree):
        if node.get("type") == "TABLE_FUNCTION":
            of_tables.add(id(node["function"]))
        if "function_name" in node:
            function = node["function_name"].upper()
            if function in REVEALING or (id(node) in of_tables and function not in READERS):
                raise QueryError(f"{function.lower()} is not available here: query the views")
    return tree


def _nodes(tree: object) -> Iterator[SyntaxNode]:
    """Yield the nodes of a syntax tree, each before its children."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _examine_plan(
    connection: duckdb.DuckDBPyConnection, statement: str, parameters: Parameters
) -> None:
    """Let DuckDB plan a statement without running it. Raise QueryError if a step of the plan is not allowed."""
    ((_, plan),) = _rows(connection, f"EXPLAIN (FORMAT json)\n{statement}", parameters)
    for step, function in _steps(json.loads(plan)):
        if not _WRITERS.isdisjoint(step.split("_")):
            raise QueryError(f"only statements that read are allowed, and this one has {step}")
        if function is not None and function not in READERS | OF_VIEWS:
            raise QueryError(f"{function.lower()} is not available here: query the views")


def _steps(plan: list[dict[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each step of a plan, and of the table function that it calls, or None, in capitals."""
    for step in plan:
        function = step["extra_info"].get("Function")
        yield step["name"].upper(), None if function is None else function.upper()
        yield from _steps(step["children"])


def _rows(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters
) -> list[tuple[Any, ...]]:
    """Run SQL that contains a user's statement from its second line on. Raise QueryError if the error is in the
    statement."""
    try:
        return connection.execute(sql, parameters).fetchall()
    except duckdb.IOException:
        # Raise the error as it is: upkeep may have deleted files of the snapshot, so the statement is not at fault. The
        # caller then tries again.
        raise
    except duckdb.Error as error:
        raise QueryError(message(error)) from error


def message(error: Exception) -> str:
    """Return the text of DuckDB's error about a user's statement, with line numbers that count from its first line."""
    return _LINE.sub(lambda line: f"LINE {int(line[1]) - 1}:", str(error))


def _folded(name: str) -> str:
    """Return a name with its letters A to Z in lower case, as DuckDB compares names: é and É differ."""
    return name.encode().lower().decode()


def reads_only_views(tree: SyntaxNode) -> bool:
    """Return whether a statement selects rows only from the views for users, and from queries in its WITH clause
    that do the same. `tree` is the result of DuckDB's `json_serialize_sql`. Return false for an unknown node."""
    views = frozenset(view.name for view in VIEWS)
    waiting: list[tuple[object, frozenset[str]]] = [(tree, views)]
    while waiting:
        node, named = waiting.pop()
        if isinstance(node, list):
            waiting += [(child, named) for child in node]
        if not isinstance(node, dict):
            continue
        if "function_name" in node and node["function_name"].upper() in MACROS:
            return False
        kind = node.get("type")
        if kind is not None and "class" not in node and str(kind) not in _SELECTING:
            return False
        if kind == "BASE_TABLE":
            path = [_folded(name) for name in node["qualified_name"]["path"]]
            if len(path) != 1 or path[0] not in named:
                return False
        # Within a WITH clause, an entry can be used only in the entries after it.
        for entry in (node.get("cte_map") or {}).get("map", ()):
            waiting.append((entry["value"], named))
            named |= {_folded(entry["key"])}
        waiting += [(child, named) for key, child in node.items() if key != "cte_map"]
    return True


_TABLES_ONLY = frozenset({"all_gaps", "gaps", "labels"})
_PARTS_ONLY = frozenset({"clocks", "places", "runs", "session_words"})
"""Names of inner views (in the schema `part`) for which a statement reads filled tables and no data file."""

_TEXTS = frozenset({"format", "kind", "session", "source", "stream"})
_NUMBERS = frozenset({"end", "seq", "start", "substream", "time"})

_STATED = _TEXTS | _NUMBERS

READING = {
    "stored": _STATED,
    **{view.name: _STATED & {c.name for c in view.columns} for view in (COUNTERS, EVENTS, SPANS)},
}
"""For each view, the columns on which a condition can exclude data files, because the table's log states the least and
greatest value of the column in each file. Only views that show each stored row at most once may be listed."""

_WORD = re.compile(r"\w+")

_LAST = "\U0010ffff"
"""The highest Unicode character, which sorts after all others."""

_FLIPPED = {
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
}


def regions_of(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters
) -> list[Region] | None:
    """Return the regions with all rows that a statement can read; None for all rows, or if DuckDB cannot parse it."""
    if READING.keys().isdisjoint(_WORD.findall(sql.lower())):
        return None
    try:
        tree = _parsed(connection, sql)
    except (duckdb.Error, RecursionError):
        return None
    return None if tree["error"] else regions(tree, parameters)


def regions(tree: SyntaxNode, parameters: Parameters) -> list[Region] | None:
    """Return the regions of the table with all rows that a statement can read; None for all rows."""
    named: set[str] = set()
    bounded: dict[int, Region] = {}
    tables: list[SyntaxNode] = []
    for node in _nodes(tree):
        named.update(entry["key"] for entry in (node.get("cte_map") or {}).get("map", ()))
        if node.get("type") == "BASE_TABLE":
            tables.append(node)
        table = node.get("from_table")
        if node.get("type") != "SELECT_NODE" or table is None or table["type"] != "BASE_TABLE":
            continue
        if not table["column_name_alias"] and table["sample"] is None:
            bounded[id(table)] = _region(node["where_clause"], table, parameters)
    found = []
    for table in tables:
        path = [_folded(name) for name in table["qualified_name"]["path"]]
        if path[-1] in READING and len(path) == 1:
            if id(table) not in bounded:
                return None
            found.append(bounded[id(table)])
        elif not (
            path[0] in _TABLES_ONLY | {_folded(name) for name in named}
            if len(path) == 1
            else path[0] == "part" and path[1] in _PARTS_ONLY
        ):
            return None
    return found


def _region(condition: SyntaxNode | None, table: SyntaxNode, parameters: Parameters) -> Region:
    """Return bounds of columns. Each row that matches the condition of a WHERE clause lies within these bounds."""
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
    """Yield the column that a comparison restricts and the bounds of its values, if the column has statistics."""
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
            # All texts with a prefix are below the prefix whose last character is raised by 1. Characters that cannot
            # be raised are dropped first. If none is left, there is no upper bound.
            kept = values[0].rstrip(_LAST)
            return Bounds(values[0], kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None)
        case _:
            return Bounds(min(values), max(values))


def _column(node: SyntaxNode, table: SyntaxNode) -> str | None:
    """Return the name of the column to which a syntax-tree node refers, if it has statistics in the view, or None."""
    if node["type"] != "COLUMN_REF":
        return None
    *of, name = (_folded(each) for each in node["column_names"])
    alias = _folded(table["alias"] or table["table_name"])
    view = _folded(table["qualified_name"]["path"][-1])
    return name if name in READING.get(view, ()) and of in ([], [alias]) else None


def _value(node: SyntaxNode, parameters: Parameters) -> StatedValue | None:
    """Return the integer or text that a syntax-tree node has as a literal or a parameter, or None."""
    if node["type"] == "VALUE_PARAMETER":
        name = node["identifier"]
        try:
            given: object = (
                parameters[name] if isinstance(parameters, Mapping) else parameters[int(name) - 1]
            )
        # a missing parameter restricts nothing here; DuckDB itself reports it
        except (LookupError, ValueError):
            return None
        return given if isinstance(given, int | str) and not isinstance(given, bool) else None
    literal = node.get("literal") or {}
    if literal.get("kind") == "INTEGER":
        return int(literal["text"])
    return literal["text"] if literal.get("kind") == "STRING" else None
