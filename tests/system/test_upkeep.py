"""Upkeep runs by itself beside the writer and leaves every row where it was."""

from __future__ import annotations

import socket

from deltalake import DeltaTable

from tests.ingest.log import heph_event
from tests.system.collector import until


def test_many_small_commits_are_merged_while_they_come(collectors):
    collector = collectors(
        more='[store]\ncommit_interval = "10 ms"\n[spool]\nsync_interval = "5 ms"\n'
    ).start()
    sent = 0
    with socket.create_connection(collector.address("tcp")) as sock:
        while collector.status()["commits"] < 150:
            before = collector.status()["commits"]
            sock.sendall(heph_event(1, sent))
            sent += 1
            until(lambda before=before: collector.status()["commits"] > before, "a commit")
        until(
            lambda: (
                'tailrace_store_upkeeps_total{outcome="done"} 0.0'
                not in collector.get("/metrics")[1]
            ),
            "upkeep",
        )
        sock.sendall(heph_event(1, sent))
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == sent + 1, "the last event")
    collector.settle()
    assert 'outcome="failed"} 0.0' in collector.get("/metrics")[1]
    files = len(DeltaTable(str(collector.store / "events")).file_uris())
    assert files < collector.status()["commits"] - 30
    collector.stop()
    assert sorted(row["seq"] for row in collector.rows() if row["kind"] == "span") == list(
        range(sent + 1)
    )
