"""Run `reading.py` in the environment of `make engines`, and `tailrace query` beside it. Compare their rows."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyarrow as pa

from tests import program

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/engines/bin/python"

NAMES = ("daft", "ray")
"""The engines: Daft on Ray, and Ray's own reader of Delta tables. Ray has two nodes."""

COLUMNS = (
    "source", "session", "stream", "seq", "kind", "name", "start", "end", "missing", "attributes", "offset",
)  # fmt: skip
"""Columns of the table that the view `events` shows unchanged, for rows that are no begins."""


def read_apart(engine, tables, environ, directory):
    """Let an engine read the tables.

    Return for each its rows, and the processes other than the engine's first one that had any of them.
    """
    outputs = [directory / f"{engine}-{number}.arrow" for number in range(len(tables))]
    places = [place for pair in zip(tables, outputs, strict=True) for place in pair]
    done = subprocess.run(
        [PYTHON, ROOT / "tests/engines/reading.py", engine, *places],
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "RAY_USAGE_STATS_ENABLED": "0", **environ},
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["nodes"] == 2
    found = []
    for output in outputs:
        with pa.ipc.open_file(output) as file:
            rows = file.read_all()
        found.append((rows, {*rows["pid"].to_pylist()} - {said["pid"]}))
    return found


def rows_of_query(store, environ):
    """Return the rows of the view `events` in the form of `as_rows`. Some events are missing."""
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    statement = f"SELECT {names} FROM events"  # noqa: S608 - our own names
    done = program.run(
        [*program.COMMAND, "query", "--store", store, "--arrow", statement],
        capture_output=True, check=False, timeout=300, env=os.environ | environ,
    )  # fmt: skip
    assert b"missing" in done.stderr
    assert done.returncode == 0
    return as_rows(pa.ipc.open_stream(done.stdout).read_all())


def as_rows(table):
    """Return the rows that are no begins, each with its columns as text, in an order that is the same for equal rows."""
    columns = (table[name].to_pylist() for name in COLUMNS)
    rows = (tuple(map(str, row)) for row in zip(*columns, strict=True))
    return sorted(row for row in rows if row[COLUMNS.index("kind")] != "begin")
