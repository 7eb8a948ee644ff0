"""A sync that fails: the daemon says so on /healthz, ends, and comes back with all it had promised."""

from __future__ import annotations

import json
import socket

import pytest

from tests import toml
from tests.faults import preload
from tests.ingest.log import heph_event
from tests.system.collector import until


@pytest.fixture
def disk(tmp_path):
    if reason := preload.why_not():
        pytest.skip(reason)
    return preload.FailingDisk(preload.build(tmp_path), tmp_path)


def send(collector, first, count):
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(b"".join(heph_event(1, n) for n in range(first, first + count)))


@pytest.mark.parametrize("part", ["/spool/", "/events/"])
def test_a_failed_sync_ends_the_daemon_and_loses_nothing_acknowledged(collectors, disk, part):
    collector = collectors(environ=disk.environment(part)).start()
    send(collector, 0, 100)
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 100, "the first events")
    collector.settle()
    disk.sync_fails()
    send(collector, 100, 100)
    said = []

    def failed():
        try:
            code, body = collector.get("/healthz")
        except OSError:
            return True
        said.append((code, json.loads(body)))
        return code == 503

    until(failed, "the failure on /healthz")
    code, answer = said[-1]
    assert code == 503
    assert answer["status"] == "failed"
    assert "Input/output error" in answer["failure"]
    assert collector.process.wait(timeout=120) == 1
    assert "Traceback" not in collector.log()
    disk.works()
    collector.start()
    collector.settle()
    collector.stop()
    stored = [row["seq"] for row in collector.rows(["seq", "kind"]) if row["kind"] == "span"]
    assert len(stored) == len(set(stored))
    assert set(stored) >= set(range(100))
    if part == "/events/":
        # These were durable in the spool before the table's sync failed.
        assert set(stored) == set(range(200))


def test_no_room_in_the_spool_is_waited_for(collectors, disk):
    collector = collectors(
        environ=disk.environment("/spool/"), more=toml.section("spool", segment_size="1 MiB")
    ).start()
    disk.no_room()
    send(collector, 0, 1000)
    until(
        lambda: "spool" in json.loads(collector.get("/healthz")[1])["conditions"], "the condition"
    )
    assert collector.get("/readyz")[0] == 503
    disk.works()
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 1000, "the events")
    until(lambda: collector.status()["state"] == "ok", "the end of the condition")
    collector.settle()
    collector.stop()
    assert [row["seq"] for row in collector.rows(["seq", "kind"]) if row["kind"] == "span"] == list(
        range(1000)
    )
