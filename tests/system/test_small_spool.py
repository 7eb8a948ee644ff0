"""A spool far smaller than what comes: it fills, sources wait, it is released, nothing is lost."""

from __future__ import annotations

import json
import socket

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until

SMALL = toml.section("spool", segment_size="1 MiB", max_size="4 MiB") + toml.section(
    "store", commit_rows=5000
)


def test_several_times_the_spools_size_goes_through_it(collectors):
    collector = collectors(more=SMALL).start()
    events = 100_000
    data = b"".join(heph_event(1, n, name=b"n" * 230) for n in range(events))
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(data)
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == events, "all events")
    collector.settle()
    status = collector.status()
    assert status["spool"]["end"] > 3 * status["spool"]["size_bytes"]
    assert status["sources"]["tcp"]["missing_events"] == 0
    assert json.loads(collector.get("/healthz")[1])["status"] in {"ok", "degraded"}
    until(lambda: collector.get("/readyz")[0] == 200, "room again")
    collector.stop()
    assert len(collector.rows(["kind"])) == events + 2
