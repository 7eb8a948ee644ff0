"""The thread that takes datagrams from a socket, whatever Python does meanwhile."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import subprocess
import sys
import time

import pytest

from tailrace.kernels import active
from tailrace.sources.source import PUMP_ROOM
from tailrace.sources.udp import SystemSocket, nap
from tailrace.spool.entry import Datagrams

if active():
    from tailrace.sources._pump import Pump

pytestmark = pytest.mark.skipif(not active(), reason="kernels are off or not built")

CHUNK = 4096
PARTS = 8


@pytest.fixture(params=["127.0.0.1", "::1"])
def sock(request):
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((request.param, 0))
        sock.settimeout(0)
        yield sock


@pytest.fixture(params=[0, 1000], ids=["at once", "with naps"])
def pump(sock, request):
    pump = Pump(sock.fileno(), PUMP_ROOM, request.param)
    yield pump
    pump.stop()


@pytest.fixture
def peers(sock):
    peers = [socket.socket(sock.family, socket.SOCK_DGRAM) for _ in range(3)]
    for peer in peers:
        peer.connect(sock.getsockname())
    yield peers
    for peer in peers:
        peer.close()


def until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def emptied(sock):
    return SystemSocket(sock).queue().bytes == 0


def taken(pump, count, chunk=CHUNK):
    """Take until there are so many datagrams; return them by peer, and all payloads."""
    found, payloads = {}, []
    while count:
        assert select.select([pump.wake], [], [], 30)[0], f"{count} did not come"
        for by_peer, *_ in pump.take(chunk, PARTS):
            for peer, packed in by_peer.items():
                payloads += map(Datagrams, packed)
                count -= sum(len(Datagrams(each)) for each in packed)
                found.setdefault(peer, []).extend(d for each in packed for d in Datagrams(each))
    assert count == 0
    return found, payloads


def test_datagrams_come_whole_by_peer_and_in_order(sock, pump, peers):
    chance, sent = random.Random(1), {}
    for _ in range(300):
        peer = chance.choice(peers)
        datagram = chance.randbytes(chance.choice([0, 1, 7, 8, 9, 100, CHUNK, CHUNK + 1, 9000]))
        sent.setdefault(peer.getsockname()[:2], []).append(datagram)
        peer.send(datagram)
        until(lambda: emptied(sock))
    found, payloads = taken(pump, 300)
    assert found == sent
    assert all(each.length <= CHUNK or len(each) == 1 for each in payloads)


def test_the_socket_is_read_while_python_does_nothing(sock, pump, peers):
    """All of this does not fit into the socket's own queue."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    for n in range(500):
        peers[0].send(n.to_bytes(2, "big") * 500)
        until(lambda: emptied(sock))
    found, _ = taken(pump, 500)
    (datagrams,) = found.values()
    assert [int.from_bytes(each[:2], "big") for each in datagrams] == list(range(500))
    assert SystemSocket(sock).queue().drops == 0


def test_what_the_thread_has_no_room_for_waits_in_the_kernel(sock, pump, peers):
    longest = b"x" * 60_000
    sent = 0
    waits = False
    while not waits:
        peers[0].send(longest)
        sent += 1
        deadline = time.monotonic() + 1
        while not emptied(sock) and not waits:
            waits = time.monotonic() > deadline
    assert PUMP_ROOM / 2 < sent * len(longest) < 2 * PUMP_ROOM
    found, _ = taken(pump, sent)
    (datagrams,) = found.values()
    assert datagrams == [longest] * sent
    assert emptied(sock)


def test_nothing_is_taken_twice(pump, peers):
    peers[0].send(b"once")
    assert taken(pump, 1)[0] == {peers[0].getsockname()[:2]: [b"once"]}
    assert pump.take(CHUNK, PARTS) == []


def test_what_comes_after_the_stop_waits_in_the_kernel(sock, pump, peers):
    peers[0].send(b"before")
    until(lambda: emptied(sock))
    pump.stop()
    peers[0].send(b"behind")
    pump.stop()
    assert taken(pump, 1)[0] == {peers[0].getsockname()[:2]: [b"before"]}
    assert pump.take(CHUNK, PARTS) == []
    assert sock.recv(100) == b"behind"


def test_a_peer_that_is_gone_stops_nothing(sock, pump, peers):
    """An answer to it makes the kernel report an error at the next read."""
    peers[0].send(b"first")
    taken(pump, 1)
    gone = peers[0].getsockname()
    peers[0].close()
    sock.sendto(b"answer", gone)
    time.sleep(0.05)
    peers[1].send(b"second")
    assert taken(pump, 1)[0] == {peers[1].getsockname()[:2]: [b"second"]}


def test_a_socket_that_fails_is_said():
    reader, writer = os.pipe()
    try:
        pump = Pump(reader, PUMP_ROOM)
        os.write(writer, b"x")
        assert select.select([pump.wake], [], [], 30)[0]
        with pytest.raises(OSError, match="socket failed") as caught:
            pump.take(CHUNK, PARTS)
        assert caught.value.errno == errno.ENOTSOCK
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize(
    ("buffer", "microseconds"),
    [(2**12, 0), (212_992, 0), (2**20, 131), (2**22, 524), (2**23, 1000), (2**26, 1000)],
)
def test_a_nap_fills_no_quarter_of_the_buffer(buffer, microseconds):
    class Buffered:
        def getsockopt(self, level, option):
            assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVBUF)
            return buffer

    assert nap(Buffered()) == microseconds


# In a process of its own: threads and descriptors of earlier tests may end meanwhile.
COUNTED = """
import os, socket, sys
from tailrace.sources._pump import Pump
from tailrace.sources.source import PUMP_ROOM
def count(what):
    return len(os.listdir(f"/proc/self/{what}"))
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as sock:
    sock.bind((sys.argv[1], 0))
    threads, descriptors = count("task"), count("fd")
    for _ in range(20):
        pump = Pump(sock.fileno(), PUMP_ROOM)
        assert count("task") == threads + 1
        del pump
    assert (count("task"), count("fd")) == (threads, descriptors)
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_thread_ends_with_the_pump(address):
    subprocess.run([sys.executable, "-c", COUNTED, address], check=True)
