"""Engines that are not ours read what `tailrace serve` has written, and have the same rows as `tailrace query`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from tests import program
from tests.ceph.bucket import BucketCollector
from tests.ingest.log import heph_event
from tests.store.s3_server import RunningS3
from tests.system.collector import Collector

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/engines/bin/python"

ROUNDS, EVENTS = 6, 500
SKIPPED = 100
"""The number of the event that is not sent."""

COLUMNS = (
    "source", "session", "stream", "seq", "kind", "name", "start", "end", "missing", "attributes", "offset",
)  # fmt: skip
"""Columns of the table that the view `events` has as they are, of rows that are no begins."""


@pytest.fixture(scope="module")
def s3():
    with RunningS3() as server:
        yield server


@pytest.fixture(scope="module")
def both(tmp_path_factory, s3):
    """A table in a directory and one in a bucket: its place, the variables for it, and the rows of `tailrace query`."""
    return [place(kind, tmp_path_factory.mktemp(kind), s3) for kind in ("directory", "bucket")]


@pytest.fixture(params=[0, 1], ids=["directory", "bucket"])
def written(request, both):
    return both[request.param]


def place(kind, directory, s3):
    if kind == "directory":
        collector, store = Collector(directory), str(directory / "store")
    else:
        store = f"s3://bucket/{directory.name}"
        collector = BucketCollector(directory, store, s3.options)
    try:
        collector.start()
        with socket.create_connection(collector.address("tcp")) as sock:
            for number in range(ROUNDS):
                sock.sendall(events(number))
                collector.settle()
        collector.stop()
    finally:
        collector.end()
    return f"{store}/events", collector.environ, asked(store, collector.environ)


def events(number):
    numbers = range(number * EVENTS, (number + 1) * EVENTS)
    return b"".join(heph_event(1, each) for each in numbers if each != SKIPPED)


def asked(store, environ):
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    statement = f"SELECT {names} FROM events"  # noqa: S608 - our own names
    done = program.run(
        [*program.COMMAND, "query", "--store", store, "--arrow", statement],
        capture_output=True, check=False, timeout=120, env=os.environ | environ,
    )  # fmt: skip
    assert b"missing" in done.stderr
    assert done.returncode == 0
    return as_rows(pa.ipc.open_stream(done.stdout).read_all())


def as_rows(table):
    """The rows that are no begins, in an order that is the same for equal rows, each with its columns as text."""
    columns = (table[name].to_pylist() for name in COLUMNS)
    rows = (tuple(map(str, row)) for row in zip(*columns, strict=True))
    return sorted(row for row in rows if row[COLUMNS.index("kind")] != "begin")


def test_the_rows_are_those_that_were_sent(written):
    _, _, rows = written
    kinds = [row[COLUMNS.index("kind")] for row in rows]
    assert kinds.count("span") == ROUNDS * EVENTS - 1
    assert kinds.count("gap") >= 1


def test_polars_has_the_same_rows(written):
    table, environ, rows = written
    found = pl.read_delta(table, storage_options=environ or None)
    assert as_rows(found.to_arrow()) == rows


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="no distributed engine is installed: make engines")
@pytest.mark.parametrize("engine", ["daft", "ray"])
def test_a_distributed_engine_has_the_same_rows_in_several_processes(engine, both, s3, tmp_path):
    """The engine is Daft on Ray, or Ray's own reader of Delta tables; Ray has two nodes."""
    places = []
    for number, (table, _, _) in enumerate(both):
        places += [table, tmp_path / f"{number}.arrow"]
    done = subprocess.run(
        [PYTHON, ROOT / "tests/engines/reading.py", engine, *places],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0", **s3.options},
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["nodes"] == 2
    for (_, _, rows), output in zip(both, places[1::2], strict=True):
        with pa.ipc.open_file(output) as file:
            found = file.read_all()
        assert as_rows(found) == rows
        pids = {*found["pid"].to_pylist()} - {said["pid"]}
        assert len(pids) >= 2
        sys.stdout.write(f"{engine}: {found.num_rows} rows by processes {sorted(pids)}\n")
