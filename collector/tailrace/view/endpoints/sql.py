"""Run an SQL statement of a user in a separate process (`query.remote`), with limits on time, memory and rows."""

from __future__ import annotations

import time
from decimal import Decimal
from itertools import chain
from typing import Any

import msgspec

from tailrace.query.answer import Shape
from tailrace.query.completeness import EVERYTHING
from tailrace.query.limits import Limits
from tailrace.query.remote import RemoteAnswer
from tailrace.view import wire
from tailrace.view.answers import CSV, TEXT_MAX, EncodedAnswer, bounded, cut, whole
from tailrace.view.endpoints.statistics import table
from tailrace.view.leases import SnapshotLease
from tailrace.view.questions import OfStatement

LIMITS = Limits(seconds=30, memory=512 * 2**20, threads=2)
ROWS = 10_000
"""Maximum number of rows that the page gets."""

BYTES = 16 * 2**20
"""Maximum size of the rows in an answer, roughly in characters."""


def sql(lease: SnapshotLease, asked: OfStatement) -> wire.SqlAnswer | EncodedAnswer:
    snapshot = lease.snapshot()
    began = time.monotonic()
    found = snapshot.whole(EVERYTHING)
    remote = lease.in_own_process(snapshot, LIMITS)
    answer = remote.ask(asked.sql, Shape.JSON)
    rows, more = _rows(answer, asked.limit)
    names = [column.name for column in answer.columns]
    if asked.format == "csv":
        return EncodedAnswer(table(names, rows), CSV, "answer.csv")
    embedded = [column.embedded for column in answer.columns]
    shown = [[_value(v, json=j) for v, j in zip(row, embedded, strict=True)] for row in rows]
    return wire.SqlAnswer(
        version=remote.version,
        whole=whole(found),
        columns=[wire.SqlColumn(name=cut(c.name), type=cut(c.type)) for c in answer.columns],
        rows=shown,
        more=more,
        cut=sum(len(v) > TEXT_MAX for v in chain.from_iterable(rows) if isinstance(v, str)),
        seconds=time.monotonic() - began,
    )


def _rows(answer: RemoteAnswer, limit: int) -> tuple[list[tuple[Any, ...]], bool]:
    """Return at most `limit` rows, and whether there are more."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    while page := answer.next_page():
        for row in page:
            size += sum(len(value) for value in row if isinstance(value, str)) + 8 * len(row)
            if len(rows) == limit or (rows and size > BYTES):
                return rows, True
            rows.append(row)
    return rows, False


def _value(value: object, *, json: bool) -> Any:  # noqa: ANN401 - JSON
    """Return a value in a form that JavaScript does not round."""
    if isinstance(value, Decimal):
        return str(value)
    if json and isinstance(value, str) and len(value) <= TEXT_MAX:
        try:
            return bounded(msgspec.json.decode(value))
        except (ValueError, RecursionError):
            return value
    return bounded(value)
