"""Overviews and the rates between two statuses, over statuses of a daemon that ran."""

from __future__ import annotations

import socket

import msgspec
import pytest

from tailrace.cli.serve import final_ledger
from tailrace.figures import Status
from tailrace.overview import overview
from tests.ingest.log import heph_event
from tests.system.collector import Collector, until


@pytest.fixture(scope="module")
def status(tmp_path_factory):
    """The status of a daemon that has got some events over a connection and misses one of them."""
    collector = Collector(tmp_path_factory.mktemp("overview")).start()
    try:
        with socket.create_connection(collector.address("tcp")) as sock:
            sock.sendall(b"".join(heph_event(1, number) for number in (0, 1, 3)))
            until(lambda: collector.status()["sources"]["tcp"]["rows"] >= 3, "the events")
            text = collector.get("/status?format=json")[1]
    finally:
        collector.stop()
        collector.end()
    return msgspec.json.decode(text, type=Status)


def later(status, seconds, **figures):
    """The status, some seconds later; the figures of the source `tcp` have grown by so much."""
    copied = msgspec.json.decode(msgspec.json.encode(status), type=Status)
    copied.uptime_seconds += seconds
    source = copied.sources["tcp"]
    for name, growth in figures.items():
        setattr(source, name, getattr(source, name) + growth)
    return copied


def tcp(seen):
    return next(source for source in seen.sources if source.source == "tcp")


def test_one_status_has_no_rates(status):
    seen = overview(status, None)
    assert seen.rows_committed_per_second is None
    assert seen.commit_seconds is None
    assert {(s.rows_per_second, s.received_bytes_per_second) for s in seen.sources} == {
        (None, None)
    }
    assert [s.source for s in seen.sources] == list(status.sources)
    assert tcp(seen).missing_events == status.sources["tcp"].missing_events == 1
    assert tcp(seen).awaited_events == 1


def test_rates_are_differences_by_the_uptime(status):
    now = later(status, 4.0, rows=100, received_bytes=6)
    now.rows_committed += 10
    now.commit_seconds.count += 2
    now.commit_seconds.sum += 0.5
    seen = overview(now, status)
    assert (tcp(seen).rows_per_second, tcp(seen).received_bytes_per_second) == (25.0, 1.5)
    assert (seen.rows_committed_per_second, seen.commit_seconds) == (2.5, 0.25)


def test_no_commit_between_them_has_no_duration(status):
    assert overview(later(status, 1.0), status).commit_seconds is None


def test_another_process_has_no_rates(status):
    now = later(status, 4.0, rows=100)
    now.pid += 1
    assert tcp(overview(now, status)).rows_per_second is None


@pytest.mark.parametrize("seconds", [0.0, -3.0])
def test_a_status_that_is_not_newer_has_no_rates(status, seconds):
    assert tcp(overview(later(status, seconds), status)).rows_per_second is None


def test_a_source_that_a_reload_added_has_no_rates_yet(status):
    before = later(status, -1.0)
    del before.sources["tcp"]
    seen = overview(status, before)
    assert tcp(seen).rows_per_second is None
    assert all(s.rows_per_second == 0 for s in seen.sources if s.source != "tcp")


@pytest.mark.parametrize(
    "figure", ["unknown_gaps", "uncounted_events", "uncounted_sessions", "asked_names"]
)
def test_what_nobody_can_count_makes_missing_unknown(status, figure):
    assert tcp(overview(status, None)).missing_is_known
    assert not tcp(overview(later(status, 1.0, **{figure: 1}), None)).missing_is_known


def test_malformed_records_of_all_reasons_are_added(status):
    now = later(status, 1.0)
    now.sources["tcp"].malformed_records = {"a": 2, "b": 3}
    assert tcp(overview(now, None)).malformed_records == 5


def test_behind_counts_files_and_socket_buffers(status):
    now = later(status, 1.0, behind_bytes=7, queue_bytes=5)
    assert tcp(overview(now, None)).behind_bytes == 12


def test_the_ledger_names_records_that_were_read_one_by_one(status):
    """A few take no time, and are not worth a line."""
    source = status.sources["tcp"]
    source = msgspec.structs.replace(source, records={"span": 2500}, malformed_records={"cut": 500})
    slow = msgspec.structs.replace(source, slow_records=1001)
    assert "one by one" not in final_ledger(with_source(status, source), {})
    assert "one by one, which takes many times as long: 1001 of 3000 records" in final_ledger(
        with_source(status, slow), {}
    )


def with_source(status, source):
    return msgspec.structs.replace(status, sources={"tcp": source})
