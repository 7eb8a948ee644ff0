"""Drops that a full socket's queue hides: they are reported where they happened, not when the queue was looked at."""

from __future__ import annotations

import socket
from contextlib import contextmanager

import pytest

from tailrace.clock import SystemClock
from tailrace.config.schema import UdpConfig
from tailrace.sources import udp
from tailrace.sources.listening import of_datagrams
from tailrace.sources.udp import SystemSocket, UdpSource
from tests.ingest.log import SECOND, Log, heph_event, run
from tests.ingest.test_attribution import gaps

LOOK = 16
"""Datagrams that one look takes out of the queue."""


class SlowLog(Log):
    """A log that a source writes, in which each look at the socket comes seconds after the one before."""

    def __init__(self):
        super().__init__()
        self._still = False

    def now_(self):
        self.now += 0 if self._still else 1
        return self.now

    @contextmanager
    def moment(self):
        self.now_()
        self._still = True
        yield
        self._still = False


class Intake:
    """Answers the source from a log."""

    def __init__(self):
        self.log = SlowLog()
        self.now, self.moment = self.log.now_, self.log.moment

    def open(self, transport, peer, *, record_max, garbage_max=0):
        return self.log.open(transport=transport, peer=peer, record_max=record_max)

    def append(self, kind, number, payload):
        self.log.add(kind, number, payload)

    def drops(self, count, since, socket, total):
        self.log.now_()
        self.log.drops(count, since=since)

    def sessions(self):
        return {}


@pytest.fixture
def peer():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        yield sock


def test_a_hole_is_the_kernels_if_the_count_grew_within_it_and_else_the_networks(monkeypatch, peer):
    """The queue holds some hundred datagrams and takes minutes to read."""
    monkeypatch.setattr(udp, "DRAIN_MAX", LOOK)
    listening = of_datagrams("127.0.0.1:0", buffer=2**17)
    intake = Intake()
    with listening.reading() as sock:
        source = UdpSource(
            "s", UdpConfig(format="heph", listen="127.0.0.1:0"), SystemClock(), listening
        )
        source.begin(SystemSocket(sock), intake)
        peer.connect(sock.getsockname())

        def send(*numbers):
            for number in numbers:
                peer.send(heph_event(1, number))

        def read():
            while not source.drain(intake):
                intake.log.now += 10 * SECOND

        send(0, 1, 4)
        most = 5
        while not SystemSocket(sock).queue().drops:
            send(most)
            most += 1
        send(*range(most, most + 20))
        dropped = SystemSocket(sock).queue().drops
        first = most + 20 - dropped
        read()
        send(most + 20, most + 25)
        read()
        send(most + 26, most + 29)
        read()
        source.finish(intake)
    intake.log.tick(5)
    ingest, rows = run(intake.log.entries)
    assert dropped == 21
    assert gaps(rows) == [
        ("network", 2, 2, False),
        ("kernel", first, dropped, False),
        ("network", most + 21, 4, False),
        ("network", most + 27, 2, False),
    ]
    assert ingest.common("s").drops.unassigned == 0
