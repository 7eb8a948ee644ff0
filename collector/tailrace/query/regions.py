"""Find the regions of the table that a statement reads, in its syntax tree.

A view's rows that a statement uses match the WHERE clause beside the view's name. The part of that clause about columns
with statistics is the view's region. It may be too large, but never too small: whatever is not understood bounds
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import msgspec

from tailrace.query.guard import Parameters
from tailrace.query.statistics import Bounds, Region, Value
from tailrace.query.views import COUNTERS, EVENTS, SPANS

_TABLES_ONLY = frozenset({"all_gaps", "gaps", "labels"})
_PARTS_ONLY = frozenset({"clocks", "places", "runs", "session_words"})
"""Views, and views in the schema `part`, of rows that are in tables by the time the statement runs."""

_TEXTS = frozenset({"format", "kind", "session", "source", "stream"})
_NUMBERS = frozenset({"end", "seq", "start", "substream", "time"})

_STATED = _TEXTS | _NUMBERS

READING = {
    "stored": _STATED,
    **{view.name: _STATED & {c.name for c in view.columns} for view in (COUNTERS, EVENTS, SPANS)},
}
"""The views that read rows from files, a row each, and their columns of `_TEXTS` and `_NUMBERS`, which are as they are
stored. A name that a view lacks is the statement's own."""

_WORD = re.compile(r"\w+")

_LAST = "\U0010ffff"
"""The greatest character."""

_FLIPPED = {
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
}

Node = dict[str, Any]


def regions_of(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters
) -> list[Region] | None:
    """Return the regions that a statement reads; None for the whole table, and where the database cannot parse it."""
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


def regions(tree: Node, parameters: Parameters) -> list[Region] | None:
    """Return the regions that a statement reads, by its tree of `json_serialize_sql`; None for the whole table."""
    named: set[str] = set()
    bounded: dict[int, Region] = {}
    tables: list[Node] = []
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


def _nodes(tree: object) -> Iterator[Node]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _is_plain(table: Node) -> bool:
    """Return whether a SELECT reads from one name, whose rows and columns are as they are."""
    return (
        table["type"] == "BASE_TABLE" and not table["column_name_alias"] and table["sample"] is None
    )


def _region(condition: Node | None, table: Node, parameters: Parameters) -> Region:
    """Return what a condition says of columns: bounds of which rows within all of them match."""
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


def _comparison(node: Node, table: Node, parameters: Parameters) -> Iterator[tuple[str, Bounds]]:
    """Yield the column that one comparison bounds, with its bounds."""
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
    """Return a text behind all that begin with a prefix, None if there is none."""
    kept = prefix.rstrip(_LAST)
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None


def _column(node: Node, table: Node) -> str | None:
    """Return a column of the table that has statistics."""
    if node["type"] != "COLUMN_REF":
        return None
    *of, name = (each.lower() for each in node["column_names"])
    alias = (table["alias"] or table["table_name"]).lower()
    view = table["qualified_name"]["path"][-1].lower()
    return name if name in READING.get(view, ()) and of in ([], [alias]) else None


def _value(node: Node, parameters: Parameters) -> Value | None:
    """Return a whole number or a text that is written in the statement, or is a parameter."""
    if node["type"] == "VALUE_PARAMETER":
        name = node["identifier"]
        try:
            given: object = (
                parameters[name] if isinstance(parameters, Mapping) else parameters[int(name) - 1]
            )
        except (LookupError, ValueError):  # the database will say so
            return None
        return given if isinstance(given, int | str) and not isinstance(given, bool) else None
    literal = node.get("literal") or {}
    if literal.get("kind") == "INTEGER":
        return int(literal["text"])
    return literal["text"] if literal.get("kind") == "STRING" else None
