"""kill -9 at random points under load: what reached the spool is in the table exactly once.

After every kill the spool is read by itself, without the daemon, and the events in it are found by
an independent walk over the bytes. At the end the table must hold exactly these, each once, and
every number a producer sent up to its last stored one must be stored or named by a gap row.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections import Counter, defaultdict

import pytest

from tailrace.clock import SystemClock
from tailrace.config.schema import SpoolConfig
from tailrace.ingest.state import decode
from tailrace.spool.entry import Datagrams, EntryKind
from tailrace.spool.payloads import OpenInfo
from tailrace.spool.spool import Spool
from tailrace.units import Size
from tests import toml
from tests.ingest.log import EVENT_MAGIC
from tests.system.producers import TcpProducer, UdpProducer, free_ports

SEGMENT = Size(2**20)
# Segments older than two checkpoints go. A life of the daemon has to be shorter than that, or the reader misses them.
MORE = toml.section("spool", segment_size="1 MiB", checkpoint_interval="20 s") + toml.section(
    "store", commit_interval="200 ms", commit_rows=5000
)


class SpoolReader:
    """The spool's content, gathered between the lives of the daemon."""

    def __init__(self, directory):
        self.directory = directory
        self.position = 0
        self.infos = {}
        self.waiting = defaultdict(bytes)
        self.events = Counter()

    def read(self):
        spool = Spool.open(self.directory, SpoolConfig(segment_size=SEGMENT), SystemClock())
        try:
            assert spool.begin <= self.position, "the test reads too seldom"
            while self.position < spool.durable:
                for entry in spool.read(self.position, 2**20):
                    self._take(entry)
                    self.position = entry.end
        finally:
            spool.close()

    def _take(self, entry):
        if entry.kind == EntryKind.OPEN:
            self.infos[entry.session] = decode(entry.payload, OpenInfo)
        elif entry.kind == EntryKind.DATAGRAMS:
            for datagram in Datagrams(entry.payload):
                self._walk(entry.session, bytes(datagram))
        elif entry.kind == EntryKind.DATA:
            waiting = self.waiting.pop(entry.session, b"") + entry.payload
            self.waiting[entry.session] = self._walk(entry.session, waiting)

    def _walk(self, session, data):
        """Count the events in whole packets; what is left."""
        at = 0
        while len(data) - at >= 8:
            magic, size = struct.unpack_from(">II", data, at)
            if len(data) - at < size:
                break
            if magic == EVENT_MAGIC:
                stream, count = struct.unpack_from(">II", data, at + 8)
                self.events[self.infos[session].session, str(stream), count] += 1
            at += size
        return data[at:]


def sources(tcp_port, udp_port):
    return toml.source("tcp", "tcp", listen=f"127.0.0.1:{tcp_port}") + toml.source(
        "udp", "udp", listen=f"127.0.0.1:{udp_port}"
    )


def kill_often(collectors, kills, *, tcp, udp, seed):
    tcp_port = free_ports(socket.SOCK_STREAM, 1)[0]
    udp_port = free_ports(socket.SOCK_DGRAM, 1)[0]
    collector = collectors(sources=sources(tcp_port, udp_port), more=MORE)
    spool = SpoolReader(collector.store / "spool")
    rng = random.Random(seed)
    producers = [TcpProducer(("127.0.0.1", tcp_port), n, seed=seed) for n in range(tcp)]
    producers += [UdpProducer(("127.0.0.1", udp_port), 1000 + n, seed=seed) for n in range(udp)]
    collector.start()
    for producer in producers:
        producer.start()
    for kill in range(kills):
        # Some die while they still recover.
        time.sleep(rng.random() * 1.5)
        collector.kill()
        spool.read()
        collector.start(wait=kill % 4 != 3)
    collector.wait_ready()
    time.sleep(0.5)
    for producer in producers:
        producer.end()
    collector.settle()
    collector.kill()
    spool.read()
    collector.start()
    collector.check_balance()
    collector.stop()
    return (
        collector.rows(["session", "stream", "seq", "kind", "name", "attributes"]),
        spool,
        producers,
    )


def check(rows, spool, producers):
    """Return the numbers that are stored, and those that gap rows name, each by stream."""
    spans = [row for row in rows if row["kind"] == "span"]
    stored = Counter((row["session"].split(".")[0], row["stream"], row["seq"]) for row in spans)
    assert max(stored.values()) == 1, "stored twice"
    assert stored.keys() == spool.events.keys()
    named = defaultdict(set)
    for row in rows:
        if row["kind"] in {"gap", "heal"} and row["seq"] is not None:
            numbers = range(row["seq"], row["seq"] + json.loads(row["attributes"])["count"])
            change = (
                named[row["stream"]].update
                if row["kind"] == "gap"
                else named[row["stream"]].difference_update
            )
            change(numbers)
    by_stream = defaultdict(set)
    for row in spans:
        assert row["seq"] not in by_stream[row["stream"]], "one event in two sessions"
        by_stream[row["stream"]].add(row["seq"])
    for producer in producers:
        have = by_stream[str(producer.stream)]
        assert have, "a producer of which nothing came"
        unaccounted = set(range(max(have) + 1)) - have - named[str(producer.stream)]
        assert not unaccounted
        assert max(have) < producer.sent
    return by_stream, named


@pytest.mark.parametrize("seed", [1])
def test_what_reached_the_spool_is_in_the_table_exactly_once(collectors, seed):
    check(*kill_often(collectors, 4, tcp=6, udp=2, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_what_reached_the_spool_is_in_the_table_exactly_once_after_fifty_kills(collectors, seed):
    check(*kill_often(collectors, 50, tcp=20, udp=4, seed=seed))
