"""Engines that are not ours read what `tailrace serve` has written, and have the same rows as `tailrace query`."""

from __future__ import annotations

import socket
import sys

import polars as pl
import pytest

from tests.ceph.bucket import BucketCollector
from tests.engines.apart import COLUMNS, NAMES, PYTHON, as_rows, read_apart, rows_of_query
from tests.ingest.log import heph_event
from tests.store.s3_server import RunningS3
from tests.system.collector import Collector

ROUNDS, EVENTS = 6, 500
SKIPPED = 100
"""The number of the event that is not sent."""


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
    return f"{store}/events", collector.environ, rows_of_query(store, collector.environ)


def events(number):
    numbers = range(number * EVENTS, (number + 1) * EVENTS)
    return b"".join(heph_event(1, each) for each in numbers if each != SKIPPED)


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
@pytest.mark.parametrize("engine", NAMES)
def test_a_distributed_engine_has_the_same_rows_in_several_processes(engine, both, s3, tmp_path):
    found = read_apart(engine, [table for table, _, _ in both], s3.options, tmp_path)
    for (_, _, expected), (rows, pids) in zip(both, found, strict=True):
        assert as_rows(rows) == expected
        assert len(pids) >= 2
        sys.stdout.write(f"{engine}: {rows.num_rows} rows by processes {sorted(pids)}\n")
