"""Ask questions to a table, both by our views and by DuckDB on the bare files."""

from __future__ import annotations

import time
from collections.abc import Callable

import duckdb
from deltalake import DeltaTable

import tailrace
from tailrace.analysis.statistics import statistics
from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.query.completeness import Window, completeness
from tailrace.query.engine import Engine
from tailrace.store.upkeep import run as run_upkeep

COUNT, RANGE, STREAMS, GAPS, STATS = "count", "range", "streams", "gaps", "stats"

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

_THEN = "time >= {least} AND time < {most}"
_OURS_THEN = _OURS | {
    RANGE: f"SELECT count(*), sum(duration) FROM spans WHERE {_THEN}",
    GAPS: "SELECT count(*) FROM gaps",
}
_BARE_THEN = _BARE | {
    RANGE: f"""SELECT count(*), sum("end" - start) FROM files WHERE kind = 'span' AND {_THEN}""",
    GAPS: "SELECT count(*) FROM files WHERE kind = 'gap'",
}


def ours(store: str, least: int, most: int) -> Callable[[], dict[str, float]]:
    """Return a function that asks each question by our views, and opens the store again for each.

    It yields the seconds that each took.
    """

    def ask(statement: str) -> None:
        with tailrace.open(store) as opened:
            list(opened.sql(statement))

    return lambda: _timed(ask, _OURS, least, most)


def bare(store: str, least: int, most: int) -> Callable[[], dict[str, float]]:
    """Return a function that asks the same questions to the table's files, without names, clocks or gaps."""

    return lambda: _timed(lambda statement: _ask_bare(store, statement), _BARE, least, most)


def _ask_bare(store: str, statement: str) -> None:
    paths = DeltaTable(f"{store}/events").file_uris()
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW files AS SELECT * FROM read_parquet({paths}, hive_partitioning = true)")  # fmt: skip
        connection.execute(statement).fetchall()


def ours_then(store: str, since: int, until: int) -> Callable[[], dict[str, float]]:
    """Return a function that asks, as `ours` does, for a range of time and further questions."""

    def ask(statement: str) -> None:
        with tailrace.open(store) as opened:
            list(opened.sql(statement))

    def work() -> dict[str, float]:
        found = _timed(ask, _OURS_THEN, since, until)
        begun = time.monotonic()
        engine, window = Engine(store), Window(since=since, until=until)
        statistics(engine, window, completeness(engine, window.scope))
        engine.close()
        return found | {STATS: time.monotonic() - begun}

    return work


def bare_then(store: str, since: int, until: int) -> Callable[[], dict[str, float]]:
    """Return a function that asks the same questions to the table's files, as `bare` does."""
    return lambda: _timed(lambda statement: _ask_bare(store, statement), _BARE_THEN, since, until)


def upkeep(store: str) -> Callable[[], None]:
    """Return a function that merges all files of a store that can be merged."""

    def work() -> None:
        run_upkeep(store, StoreConfig(), clock=SystemClock(), everything=True)

    return work


def _timed(ask: Callable[[str], None], statements: dict[str, str], least: int, most: int) -> dict[str, float]:  # fmt: skip
    found = {}
    for question, statement in statements.items():
        begun = time.monotonic()
        ask(statement.format(least=least, most=most))
        found[question] = time.monotonic() - begun
    return found
