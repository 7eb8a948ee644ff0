"""A raw producer that connects anew, as readers see it."""

from __future__ import annotations

import socket

import pytest

import tailrace
from tests.ingest.log import heph_epoch, heph_event
from tests.system.collector import until


def _send(collector, events, total):
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(heph_epoch(10**18) + b"".join(heph_event(1, n) for n in events))
        until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == total, "the events")


@pytest.mark.parametrize("killed", [False, True], ids=["alive", "killed"])
def test_its_numbers_go_on_in_a_session_that_says_so(collectors, killed):
    collector = collectors().start()
    _send(collector, range(1000), 1000)
    if killed:
        collector.kill()
        collector.start()
    _send(collector, range(1003, 1100), 1097)
    collector.settle()
    with tailrace.open(str(collector.store)) as store:
        first, second = sorted(store.sessions(source="tcp"), key=lambda s: s["opened"])
        gaps = list(store.gaps(source="tcp"))
    assert (first["events"], second["events"]) == (1000, 97)
    assert second["continues"] == first["session"]
    assert [(gap["session"], gap["reason"], gap["first"], gap["count"]) for gap in gaps] == [
        (second["session"], "network", 1000, 3)
    ]
