"""Upkeep runs by itself beside the writer and leaves every row where it was."""

from __future__ import annotations

import socket

from deltalake import DeltaTable

from tailrace.store.upkeep import CROWDED
from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until

MANY_COMMITS = toml.section("store", commit_interval="10 ms") + toml.section(
    "spool", sync_interval="5 ms"
)


def send_by_commits(collector, sock, first, last):
    """Send events until there were `last` commits; return how many events there are then."""
    while collector.status()["commits"] < last:
        before = collector.status()["commits"]
        sock.sendall(heph_event(1, first))
        first += 1
        until(lambda before=before: collector.status()["commits"] > before, "a commit")
    return first


def await_upkeep(collector, meanwhile=lambda: None):
    """Wait for the end of an upkeep. Only commits after its last look make a running daemon look at the table, so
    `meanwhile` sends more, unless it looks because it was just started."""

    def done():
        meanwhile()
        collector.hurry()
        metrics = collector.get("/metrics")[1]
        assert 'upkeeps_total{outcome="failed"} 0.0' in metrics, collector.status()["conditions"]
        return 'upkeeps_total{outcome="done"} 0.0' not in metrics

    # On a slow machine a merge of so many files takes long.
    until(done, "upkeep", seconds=180, pause=0.5)


def _data_files(collector):
    return len(DeltaTable(str(collector.store / "events")).file_uris())


def test_many_small_commits_are_merged_while_they_come(collectors):
    collector = collectors(more=MANY_COMMITS).start()
    with socket.create_connection(collector.address("tcp")) as sock:
        sent = send_by_commits(collector, sock, 0, CROWDED)

        def send():
            nonlocal sent
            sock.sendall(heph_event(1, sent))
            sent += 1

        await_upkeep(collector, meanwhile=send)
        send()
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == sent, "the last event")
    collector.settle()
    assert 'outcome="failed"} 0.0' in collector.get("/metrics")[1]
    assert _data_files(collector) < collector.status()["commits"] - 30
    collector.stop()
    events = (row["seq"] for row in collector.rows(["kind", "seq"]) if row["kind"] == "span")
    assert sorted(events) == list(range(sent))


def test_the_files_of_many_short_lives_are_merged_by_the_next(collectors):
    """No life makes enough commits to crowd the table by itself; some are stopped, others killed."""
    collector = collectors(more=MANY_COMMITS)
    sent = 0
    for life in range(3):
        collector.start()
        with socket.create_connection(collector.address("tcp")) as sock:
            sent = send_by_commits(collector, sock, sent, CROWDED // 3)
        collector.settle()
        collector.kill() if life % 2 else collector.stop()
    crowd = _data_files(collector)
    assert crowd >= CROWDED
    collector.start()
    await_upkeep(collector)
    assert _data_files(collector) < crowd - CROWDED // 2
    collector.stop()
    events = [row for row in collector.rows(["kind"]) if row["kind"] == "span"]
    assert len(events) == sent
