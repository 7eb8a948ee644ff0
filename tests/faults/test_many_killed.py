"""kill -9 of collectors that share a store, at random, while producers send and upkeep merges.

Each event that reached the spool of a collector is in the one table exactly once, as in `test_kill`, and no two upkeeps are
at work at once.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from tailrace.store.log import DeltaLog, Journal
from tailrace.store.turn import LOCK_NAME
from tests import program
from tests.faults.test_kill import MORE, SpoolReader, check, sources
from tests.system.producers import TcpProducer, UdpProducer, free_ports

NAMES = ("main", "a")


class Upkeeps:
    """Starts upkeeps of a store, two at once, as its collectors do, and counts how they ended."""

    def __init__(self, store, environs=({}, {}), *, may_fail=False):
        """`environs` are variables of each, and `may_fail` says whether the store may be out of reach."""
        self.ended = Counter()
        self.failures = []
        self._store = store
        self._environs = environs
        self._may_fail = may_fail
        self._running = []

    def go_on(self):
        """Start two more, unless two are at work."""
        for process in [each for each in self._running if each.poll() is not None]:
            self._count(process)
        command = [
            *program.COMMAND,
            "upkeep",
            "--all",
            "--json",
            "--if-free",
            "--store",
            self._store,
        ]
        for environ in self._environs[len(self._running) :]:
            self._running.append(
                program.start(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=os.environ | environ,
                )
            )

    def end(self):
        for process in list(self._running):
            self._count(process)

    def _count(self, process):
        said, _ = process.communicate()
        self._running.remove(process)
        if self._may_fail and process.returncode:
            reason = said.decode().strip().splitlines()[-1]
            assert "cannot" in reason, said
            self.failures.append(reason)
            self.ended["failed"] += 1
            return
        assert process.returncode == 0, said
        report = msgspec.json.decode(said.strip().splitlines()[-1])
        self.ended["busy" if report["busy"] else "done"] += 1


class Life:
    """One of the collectors, its spool as it is read between its lives, and those who send to it."""

    def __init__(self, collector, spool, producers):
        self.collector = collector
        self.spool = spool
        self.producers = producers

    def kill(self, *, wait):
        self.collector.kill()
        self.spool.read()
        self.collector.start(wait=wait)

    def end(self):
        self.collector.wait_ready()
        for producer in self.producers:
            producer.end()
        self.collector.settle()
        self.collector.kill()
        self.spool.read()
        self.collector.start()
        self.collector.check_balance()


def life_of(collectors, store, number, *, tcp, udp, seed):
    tcp_port = free_ports(socket.SOCK_STREAM, 1)[0]
    udp_port = free_ports(socket.SOCK_DGRAM, 1)[0]
    collector = collectors(
        store=store, name=NAMES[number], sources=sources(tcp_port, udp_port), more=MORE
    )
    first = 10_000 * number
    producers = [TcpProducer(("127.0.0.1", tcp_port), first + n, seed=seed) for n in range(tcp)]
    producers += [
        UdpProducer(("127.0.0.1", udp_port), first + 1000 + n, seed=seed) for n in range(udp)
    ]
    return Life(collector, SpoolReader(collector.own / "spool"), producers)


def kill_often(collectors, store, kills, *, tcp, udp, seed):
    rng = random.Random(seed)
    lives = [life_of(collectors, store, n, tcp=tcp, udp=udp, seed=seed) for n in range(len(NAMES))]
    for life in lives:
        life.collector.start()
        for producer in life.producers:
            producer.start()
    upkeeps = Upkeeps(store)
    for kill in range(kills):
        upkeeps.go_on()
        time.sleep(rng.random() * 1.2)
        life = rng.choice(lives)
        life.kill(wait=kill % 4 != 3)
        if kill % 5 == 4:  # both at once: the next start is alone
            for each in lives:
                each.collector.kill()
            for each in lives:
                each.spool.read()
                each.collector.start(wait=False)
            for each in lives:
                each.collector.wait_ready()
    upkeeps.go_on()
    for life in lives:
        life.end()
    upkeeps.end()
    for life in lives:
        life.collector.stop()
    return lives, upkeeps.ended


def check_all(lives, upkeeps, store):
    rows = lives[0].collector.rows(["session", "stream", "seq", "kind", "name", "attributes"])
    for number, life in enumerate(lives):
        mine = of_streams(rows, range(10_000 * number, 10_000 * (number + 1)))
        check(mine, life.spool, life.producers)
    assert upkeeps["done"] > 0
    assert not list((Path(store) / "events/_delta_log").glob("*.bad")), "a kill has cost versions"
    log, newest = (
        DeltaLog(Path(store) / "events"),
        DeltaTable(str(Path(store) / "events")).version(),
    )
    noted = Journal(log.root).read().entries
    assert [v for v in log.versions() if v not in noted] == []
    assert log.versions()[-1] == newest
    merges = [v for v in log.versions() if _merges(log, v)]
    assert merges
    removed = [a.remove.path for v in merges for a in log.read(v) if a.remove]
    assert max(Counter(removed).values()) == 1, "two upkeeps merged one file"
    assert (Path(store) / LOCK_NAME).exists()


def of_streams(rows, numbers):
    """The rows of the streams with these numbers."""
    return [row for row in rows if row["stream"].isdecimal() and int(row["stream"]) in numbers]


def _merges(log, version):
    return any(a.add and not a.add.data_change for a in log.read(version))


@pytest.fixture
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("shared") / "store"


@pytest.mark.parametrize("seed", [1])
def test_two_collectors_that_are_killed_store_each_event_once(collectors, store, seed):
    check_all(*kill_often(collectors, store, 5, tcp=3, udp=1, seed=seed), store)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2])
def test_two_collectors_that_are_killed_fifty_times_store_each_event_once(collectors, store, seed):
    check_all(*kill_often(collectors, store, 50, tcp=8, udp=2, seed=seed), store)
