"""Run DuckDB. It converts a finished file to a Parquet file, which it does not sync."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb

from benchmarks.peers.peer import Peer
from benchmarks.places import CONFIGURATIONS

INSTALL = "make dev"


PARSED = "the lines of the finished file to a Parquet file, one thread, unsynced"
JOINED = (
    "the finished file to a Parquet file, with ends joined to begins (JETS, ET3) or names to hashes (DFTracer),"
    " but without ET3's parents and names; one thread, unsynced"
)


def peer(format_: str, *, joined: bool) -> Peer:
    """Return the description of DuckDB with its statements for a format.

    With `joined`, the statements also join lines that belong together.
    """
    if joined:
        configuration = f"duckdb-{format_}-rows.sql"
        return Peer("DuckDB, joined", duckdb.__version__, INSTALL, JOINED, configuration)
    return Peer("DuckDB", duckdb.__version__, INSTALL, PARSED, f"duckdb-{format_}.sql")


def convert(configuration: str, path: str, output: str) -> Callable[[], int]:
    """Return a function that runs the statements and counts the rows. It is meant for a process of its own."""
    statements = (CONFIGURATIONS / configuration).read_text()
    connection = duckdb.connect()
    # This loads DuckDB's JSON reader before the measurement.
    connection.execute("SELECT * FROM read_json('/dev/null', columns = {a: 'JSON'})")

    def work() -> int:
        Path(output).unlink(missing_ok=True)
        connection.execute(statements.replace("{input}", path).replace("{output}", output))
        found = connection.execute(f"SELECT count(*) FROM '{output}'").fetchone()
        return int(found[0]) if found else 0

    return work
