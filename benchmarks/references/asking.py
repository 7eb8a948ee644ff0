"""Questions to a table, asked by our views, and by DuckDB over the bare files."""

from __future__ import annotations

import time
from collections.abc import Callable

import duckdb
from deltalake import DeltaTable

import tailrace

COUNT, RANGE, STREAMS = "count", "range", "streams"

_OURS = {
    COUNT: "SELECT count(*) FROM events",
    RANGE: "SELECT count(*) FROM spans WHERE start BETWEEN {least} AND {most}",
    STREAMS: "SELECT count(*) FROM streams",
}
_BARE = {
    COUNT: "SELECT count(*) FROM files",
    RANGE: "SELECT count(*) FROM files WHERE kind = 'span' AND start BETWEEN {least} AND {most}",
    STREAMS: "SELECT count(*) FROM (SELECT source, session, stream, count(*), max(seq) FROM files GROUP BY ALL)",
}


def ours(store: str, least: int, most: int) -> Callable[[], dict[str, float]]:
    """Return work that asks each question, and opens the store anew for each. It yields the seconds of each."""

    def ask(statement: str) -> None:
        with tailrace.open(store) as opened:
            list(opened.sql(statement))

    return lambda: _timed(ask, _OURS, least, most)


def bare(store: str, least: int, most: int) -> Callable[[], dict[str, float]]:
    """Return work that asks the same of the table's files, without names, clocks or gaps."""

    def ask(statement: str) -> None:
        paths = DeltaTable(f"{store}/events").file_uris()
        with duckdb.connect() as connection:
            connection.execute(f"CREATE VIEW files AS SELECT * FROM read_parquet({paths}, hive_partitioning = true)")  # fmt: skip
            connection.execute(statement).fetchall()

    return lambda: _timed(ask, _BARE, least, most)


def _timed(ask: Callable[[str], None], statements: dict[str, str], least: int, most: int) -> dict[str, float]:  # fmt: skip
    found = {}
    for question, statement in statements.items():
        begun = time.monotonic()
        ask(statement.format(least=least, most=most))
        found[question] = time.monotonic() - begun
    return found
