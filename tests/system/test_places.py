"""Peers that take all places for streams, beside honest peers: what is lost stays visible, and where
nobody knows what is lost, that is said by views, commands, figures and answers."""

from __future__ import annotations

import contextlib
import json
import socket
from collections import Counter

import pytest

import tailrace_client
from tests import toml
from tests.ingest.log import heph_event, heph_goodbye, heph_session
from tests.system.announcing import Client
from tests.system.collector import SOURCES, until

PLACES = toml.section("ledger", streams_max=64, source_streams_max=256)


def figures(collector, source):
    return collector.status()["sources"][source]


def ask(collector, sql):
    done = collector.cli("query", "--json", sql)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextlib.contextmanager
def attackers(collector, source, streams=64):
    """Four peers with so many streams each, which stay."""
    kind = socket.SOCK_DGRAM if source == "udp" else socket.SOCK_STREAM
    before = figures(collector, source)["seen_events"]
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            peer = stack.enter_context(socket.socket(socket.AF_INET, kind))
            peer.connect(collector.address(source))
            for stream in range(streams):
                peer.send(heph_event(1000 + stream, 0))
        wanted = before + 4 * streams
        until(lambda: figures(collector, source)["seen_events"] == wanted, "the attackers")
        yield


@pytest.mark.parametrize("source", ["tcp", "udp"])
def test_an_honest_peers_losses_are_named_when_others_have_taken_all_places(collector_of, source):
    collector = collector_of(more=PLACES)
    lost = {*range(5, 105, 10)}
    with attackers(collector, source), Client(collector, source, acknowledge=False) as honest:
        assert figures(collector, source)["followed_streams"] == 256
        honest.announce()
        for number in sorted({*range(190)} - lost):
            honest.send(heph_event(1, number))
        honest.send(heph_goodbye({"1": 200}))
        until(lambda: figures(collector, source)["missing_events"] == 20, "the holes and the tail")
        until(lambda: not figures(collector, source)["open_windows"], "windows")
        collector.settle()
        gaps = ask(collector, "SELECT first, last, remaining FROM gaps WHERE stream = '1'")
        numbers = {n for gap in gaps for n in range(gap["first"], gap["last"] + 1)}
        assert numbers == lost | {*range(190, 200)}
        assert sum(gap["remaining"] for gap in gaps) == len(numbers)
        (stream,) = ask(collector, "SELECT missing, completeness FROM streams WHERE stream = '1'")
        assert stream == {"missing": 20, "completeness": 180 / 200}


def test_what_is_sent_again_is_stored_once_when_others_have_taken_all_places(collector_of):
    collector = collector_of(more=PLACES)
    events = heph_session(7) + b"".join(heph_event(1, n) for n in range(10))
    with attackers(collector, "tcp"):
        for turn in range(1, 4):
            with socket.create_connection(collector.address("tcp")) as connection:
                connection.sendall(events)
                until(lambda: figures(collector, "tcp")["seen_events"] == 256 + 10 * turn, "them")  # noqa: B023
        collector.settle()
    rows = ask(collector, "SELECT seq FROM events WHERE stream = '1' AND kind = 'span'")
    assert Counter(row["seq"] for row in rows) == Counter(range(10))


def test_a_stream_without_a_place_is_never_called_complete(collector_of):
    """In views, by exit codes, in the status and the metrics, for as long as its session is there."""
    collector = collector_of(more=PLACES)
    with attackers(collector, "tcp", streams=80):
        until(lambda: "ledger" in collector.status()["conditions"], "the condition")
        assert figures(collector, "tcp")["uncounted_sessions"] == 4
        assert 'tailrace_ledger_uncounted_sessions{source="tcp"} 4' in collector.metrics()
        assert 'tailrace_condition{condition="ledger"} 1' in collector.metrics()
        code, body = collector.get("/healthz")
        assert code == 200
        assert "degraded" in body
        collector.settle()
        (row,) = ask(
            collector,
            "SELECT count(*) FILTER (completeness = 1) AS whole,"
            " count(*) FILTER (completeness IS NULL) AS unknown FROM streams WHERE source = 'tcp'",
        )
        assert row == {"whole": 256, "unknown": 64}
        gaps = ask(collector, "SELECT reason, \"count\", stream FROM gaps WHERE source = 'tcp'")
        left_out = dict.fromkeys(map(str, range(1064, 1080)), 4)
        assert Counter(gap["stream"] for gap in gaps) == left_out
        assert all((gap["reason"], gap["count"]) == ("uncounted", None) for gap in gaps)
        assert collector.cli("streams", "--complete-only").returncode == 3
    until(lambda: not collector.status()["conditions"], "the condition to end")


@pytest.mark.parametrize("source", ["tcp", "udp"])
def test_a_client_is_not_told_that_events_without_a_place_are_durable(collector_of, source):
    """Its flush and its close say no, and its count says why; they do not wait in vain."""
    collector = collector_of(sources=SOURCES, more=toml.section("ledger", streams_max=2))
    host, port = collector.address(source)
    emitter = tailrace_client.connect(f"{source}://{host}:{port}")
    try:
        for stream in (1, 2, 3):
            tailrace_client.use_stream(stream)
            for _ in range(5):
                tailrace_client.event("work")
        assert not tailrace_client.flush(30)
        assert emitter.discarded["uncounted"] == 5
        tailrace_client.use_stream(1)
        tailrace_client.event("work")
        assert not tailrace_client.close(30)
        assert sum(emitter.discarded.values()) == emitter.discarded["uncounted"] == 5
    finally:
        tailrace_client.close(0)
    collector.settle()
    rows = ask(collector, "SELECT stream, events FROM streams WHERE source <> 'tailrace'")
    assert {row["stream"]: row["events"] for row in rows} == {"1": 6, "2": 5, "3": 5}
