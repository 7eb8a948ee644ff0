"""Heartbeats of a real daemon: on the whole way into the table, and in what it says of itself."""

from __future__ import annotations

import json
import socket

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until

QUICK = toml.section("heartbeat", interval="100 ms") + toml.section(
    "store", commit_interval="50 ms"
)


def beats(collector):
    rows = [row for row in collector.rows() if row["source"] == "tailrace"]
    lives = {}
    for row in rows:
        if row["kind"] == "instant":
            lives.setdefault(row["session"], []).append(row["seq"])
    return rows, [sorted(numbers) for _, numbers in sorted(lives.items())]


def test_each_life_counts_its_heartbeats_without_a_gap_across_a_kill_and_a_stop(collectors):
    collector = collectors(more=QUICK)
    for end in (collector.kill, collector.stop):
        collector.start()
        until(lambda: collector.status()["heartbeat"]["committed"] >= 3, "three heartbeats")
        end()
    rows, lives = beats(collector)
    assert len(lives) == 2
    for numbers in lives:
        assert len(numbers) >= 3
        assert numbers == list(range(len(numbers)))
    assert {row["kind"] for row in rows} == {"session", "instant"}
    closed = [json.loads(row["attributes"]) for row in rows if row["name"] == "close"]
    assert sorted(about["closed"] for about in closed) == ["collector restart", "stop"]
    said = [json.loads(row["attributes"]) for row in rows if row["kind"] == "instant"]
    assert {about["collector"] for about in said} == {"main"}
    # A stop that takes as long as a heartbeat has one of its own.
    assert {"ok"} <= {about["state"] for about in said} <= {"ok", "stopping"}
    ways = [about for about in said if "sync_seconds" in about]
    assert ways
    assert all(0 < way["sync_seconds"] <= way["commit_seconds"] for way in ways)


def test_status_and_metrics_say_how_old_the_newest_is(collectors):
    collector = collectors(more=QUICK).start()
    until(lambda: collector.status()["heartbeat"]["committed"] >= 2, "two heartbeats")
    status = collector.status()["heartbeat"]
    assert status["interval_seconds"] == 0.1
    assert status["made"] >= status["committed"]
    assert status["commit_seconds"]["count"] >= 2
    _, text = collector.get("/metrics")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values["tailrace_heartbeat_interval_seconds"]) == 0.1
    assert float(values["tailrace_heartbeat_age_seconds"]) > 0
    assert float(values["tailrace_heartbeat_commit_seconds_count"]) >= 2


def test_people_see_one_complete_stream_beside_the_producers_own(collectors):
    collector = collectors(more=QUICK).start()
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(b"".join(heph_event(1, n) for n in range(20)))
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 20, "the events")
    until(lambda: collector.status()["heartbeat"]["committed"] >= 2, "two heartbeats")
    collector.stop()  # with beats this quick it never settles
    streams = collector.cli("streams", "--json", "--complete-only")
    assert streams.returncode == 0, streams.stderr
    found = {row["source"]: row for row in map(json.loads, streams.stdout.splitlines())}
    assert found.keys() == {"tailrace", "tcp"}
    own = found["tailrace"]
    assert (own["stream"], own["missing"], own["completeness"]) == ("heartbeat", 0, 1.0)
    assert own["last_seq"] == own["events"] - 1
    assert own["first_time"] > 10**18
    only = collector.cli("streams", "--json", "--source", "tcp")
    assert [json.loads(line)["events"] for line in only.stdout.splitlines()] == [20]
    assert not collector.cli("gaps", "--json").stdout
    session = "SELECT clock, epoch, closed, missing FROM sessions WHERE source = 'tailrace'"
    (row,) = map(json.loads, collector.cli("query", "--json", session).stdout.splitlines())
    assert row == {"clock": "unix_ns", "epoch": 0, "closed": "stop", "missing": 0}


def test_without_an_interval_there_are_none(collectors):
    collector = collectors(more=toml.section("heartbeat", interval="none")).start()
    status = collector.status()["heartbeat"]
    assert (status["interval_seconds"], status["age_seconds"]) == (0, 0)
    assert "\ntailrace_heartbeat_interval_seconds 0.0\n" in collector.get("/metrics")[1]
