"""A table that takes nothing for a while costs no producer its connection."""

from __future__ import annotations

import json
import socket
import time
from contextlib import contextmanager

import pytest

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until

TIMEOUT_SECONDS = 1

EVENTS = 300

SOURCE = toml.source("tcp", "tcp", record_timeout=f"{TIMEOUT_SECONDS} s")
ONE_ROW = toml.section("store", commit_rows=1, commit_interval="10 ms")
SMALL = toml.section("spool", segment_size="64 KiB", max_size="256 KiB")


@pytest.mark.parametrize("full", [False, True], ids=["undecoded", "unread"])
def test_the_rest_of_a_record_may_wait_for_the_table(collectors, full):
    """The rest was sent in time, and waits in the spool or, once that is full, in the kernel."""
    collector = collectors(sources=SOURCE, more=ONE_ROW + SMALL * full).start()
    data = b"".join(heph_event(1, n, name=b"n" * 2000) for n in range(EVENTS))
    # Each piece ends in the middle of a record.
    pieces = [data[:3000], data[3000:7000], data[7000:]]
    with socket.create_connection(collector.address("tcp")) as sock, _without_days(collector):
        for piece in pieces:
            before = _taken(collector)
            sock.sendall(piece)
            until(lambda before=before: _taken(collector) > before, "the piece")
        until(lambda: "store" in _conditions(collector), "the table to be missed")
        if full:
            until(lambda: "spool" in _conditions(collector), "the spool to be full")
        time.sleep(3 * TIMEOUT_SECONDS)
    until(lambda: _tcp(collector)["sessions_closed"] == 2, "the end of the connection")
    assert _tcp(collector)["refused"] == {}
    assert (_tcp(collector)["seen_events"], _tcp(collector)["malformed_bytes"]) == (1 + EVENTS, 0)


@contextmanager
def _without_days(collector):
    """A file stands in the place of each day of the table meanwhile."""
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(heph_event(2, 0))
    until(lambda: _tcp(collector)["sessions_closed"], "the event that makes a day")
    collector.settle()
    days = list((collector.store / "events").glob("day=*"))
    for day in days:
        day.rename(day.with_name(f"aside-{day.name}"))
        day.touch()
    try:
        yield
    finally:
        for day in days:
            day.unlink()
            day.with_name(f"aside-{day.name}").rename(day)


def _taken(collector):
    return _tcp(collector)["taken_bytes"]


def _conditions(collector):
    return json.loads(collector.get("/healthz")[1])["conditions"]


def _tcp(collector):
    return collector.status()["sources"]["tcp"]
