"""Disks that are full, read-only or failing: said plainly, nothing acknowledged lost, mended alone."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess

import pytest

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until
from tests.system.producers import TcpProducer, free_ports


def health(collector):
    code, body = collector.get("/healthz")
    return code, json.loads(body)


def send(collector, first, count):
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(b"".join(heph_event(1, n) for n in range(first, first + count)))


def stored(collector):
    return sorted(row["seq"] for row in collector.rows(["seq", "kind"]) if row["kind"] == "span")


@pytest.fixture
def on_loopfs(loopfs, collectors):
    port = free_ports(socket.SOCK_STREAM, 1)[0]
    collector = collectors(
        sources=toml.source("tcp", "tcp", listen=f"127.0.0.1:{port}"),
        more=toml.section("spool", segment_size="1 MiB")
        + toml.section("store", commit_interval="200 ms"),
    )
    collector.store = loopfs.path / "store"
    return collector


def test_a_full_disk_makes_producers_wait_and_mends_when_there_is_room(on_loopfs, loopfs):
    collector = on_loopfs.start()
    producer = TcpProducer(collector.address("tcp"), 1, most=150_000, pause=0.001)
    producer.start()
    try:
        until(lambda: collector.status()["rows_committed"] > 100, "the first rows")
        ballast = loopfs.path / "ballast"
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={ballast}", "bs=64k"], check=False, capture_output=True
        )
        until(lambda: health(collector)[1]["status"] == "degraded", "the full disk to be noticed")
        assert health(collector)[0] == 200
        until(lambda: collector.get("/readyz")[0] == 503, "receiving to wait")
        assert any("No space left" in text for text in health(collector)[1]["conditions"].values())
        ballast.unlink()
        until(lambda: health(collector)[1]["status"] == "ok", "it to mend")
        until(lambda: producer.sent >= 150_000, "the producer to go on to its end")
        until(
            lambda: collector.status()["sources"]["tcp"]["seen_events"] == producer.sent,
            "every event to arrive",
        )
    finally:
        producer.end()
    collector.settle()
    collector.stop()
    assert collector.process.returncode == 0
    assert stored(collector) == list(range(producer.sent))


@pytest.mark.skipif(shutil.which("chattr") is None, reason="no chattr: apt-get install e2fsprogs")
def test_a_table_that_cannot_be_written_is_kept_for_in_the_spool(on_loopfs):
    collector = on_loopfs.start()
    send(collector, 0, 100)
    collector.settle()
    table = collector.store / "events"
    days = [path for path in table.iterdir() if path.is_dir()]
    subprocess.run(["chattr", "+i", table, *days], check=True)
    try:
        send(collector, 100, 100)
        until(lambda: "store" in health(collector)[1]["conditions"], "the table to be missed")
        assert health(collector)[0] == 200
        assert health(collector)[1]["status"] == "degraded"
        collector.kill()
    finally:
        subprocess.run(["chattr", "-i", table, *days], check=True)
    collector.start()
    until(lambda: health(collector)[1]["status"] == "ok", "it to mend")
    collector.settle()
    collector.stop()
    assert stored(collector) == sorted([*range(100), *range(100, 200)])


@pytest.mark.skipif(shutil.which("chattr") is None, reason="no chattr: apt-get install e2fsprogs")
def test_a_table_that_can_be_written_again_takes_what_waited(on_loopfs):
    collector = on_loopfs.start()
    send(collector, 0, 100)
    collector.settle()
    log = collector.store / "events" / "_delta_log"
    subprocess.run(["chattr", "+i", log], check=True)
    try:
        send(collector, 100, 100)
        until(lambda: "store" in health(collector)[1]["conditions"], "the table to be missed")
    finally:
        subprocess.run(["chattr", "-i", log], check=True)
    until(lambda: health(collector)[1]["status"] == "ok", "it to mend")
    collector.settle()
    collector.stop()
    assert stored(collector) == list(range(200))
