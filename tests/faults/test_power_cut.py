"""The power is cut under load: what was synced before is in the table afterwards, exactly once."""

from __future__ import annotations

import random
import socket
import time

import pytest

from tests import toml
from tests.faults.test_kill import MORE, SpoolReader, check
from tests.system.producers import TcpProducer, UdpProducer, free_ports


def cut_often(collectors, fs, cuts, seed, *, tcp, udp):
    tcp_port = free_ports(socket.SOCK_STREAM, 1)[0]
    udp_port = free_ports(socket.SOCK_DGRAM, 1)[0]
    sources = toml.source("tcp", "tcp", listen=f"127.0.0.1:{tcp_port}") + toml.source(
        "udp", "udp", listen=f"127.0.0.1:{udp_port}"
    )
    collector = collectors(sources=sources, more=MORE)
    collector.store = fs.path / "store"
    spool = SpoolReader(collector.store / "spool")
    rng = random.Random(seed)
    producers = [TcpProducer(("127.0.0.1", tcp_port), n, seed=seed) for n in range(tcp)]
    producers += [UdpProducer(("127.0.0.1", udp_port), 1000 + n, seed=seed) for n in range(udp)]
    try:
        collector.start()
        for producer in producers:
            producer.start()
        for _ in range(cuts):
            time.sleep(0.3 + rng.random() * 1.5)
            durable = collector.status()["spool"]["durable"]
            committed = collector.status()["spool"]["committed"]
            fs.cut()
            collector.kill()
            fs.unmount()
            fs.mount()
            spool.read()
            assert spool.position >= durable, "synced and lost"
            collector.start()
            assert collector.status()["spool"]["committed"] >= committed, "committed and lost"
        for producer in producers:
            producer.end()
        collector.settle()
        collector.kill()
        spool.read()
        collector.start()
        collector.stop()
        rows = collector.rows(["session", "stream", "seq", "kind", "name", "attributes"])
    finally:
        for producer in producers:
            producer.end()
    check(rows, spool, producers)


def test_a_power_cut_loses_nothing_that_was_synced(loopfs, collectors):
    cut_often(collectors, loopfs, 3, seed=1, tcp=4, udp=2)


@pytest.mark.slow
def test_many_power_cuts_lose_nothing_that_was_synced(roomy_loopfs, collectors):
    cut_often(collectors, roomy_loopfs, 25, seed=2, tcp=10, udp=3)
