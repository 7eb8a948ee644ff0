from __future__ import annotations

import socket
from collections import Counter

import trio

from tailrace.demo.binary import datagrams, heph_events, numbers
from tests.traffic.mangler import DROPPED, DUPLICATED, Chances
from tests.traffic.producers import Handed, send_datagrams
from tests.traffic.relay import open_relay


def receiver():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(0)
    return sock


def received(sock):
    """Return what has come, with the peer it came from."""
    found = []
    while True:
        try:
            found.append(sock.recvfrom(65_536))
        except BlockingIOError:
            return found


async def test_what_comes_through_is_what_was_sent_but_for_what_the_log_says():
    packets = list(heph_events(1, 1000))
    sent = list(datagrams((packet.data for packet in packets), limit=300))
    chances = Chances(drop=0.1, duplicate=0.1, reorder=0.1, delay=0.05)
    with receiver() as sock:
        async with open_relay(sock.getsockname(), 3, chances) as relay:
            await send_datagrams(relay.address, sent, Handed(), rate=20_000)
        assert relay.received == len(sent)
        found = Counter(number for data, _ in received(sock) for number in numbers(data))
    expected = Counter((packet.stream, packet.counter) for packet in packets)
    for stream, counters in relay.counters(DROPPED).items():
        expected.subtract((stream, counter) for counter in counters)
    for stream, counters in relay.counters(DUPLICATED).items():
        expected.update((stream, counter) for counter in counters)
    assert found == +expected
    assert {deed.action for deed in relay.log} == {"dropped", "duplicated", "reordered", "delayed"}


async def test_two_peers_stay_two_peers():
    sent = [packet.data for packet in heph_events(1, 20)]
    with receiver() as sock:
        async with (
            open_relay(sock.getsockname(), 3, Chances()) as relay,
            trio.open_nursery() as nursery,
        ):
            for _ in range(2):
                nursery.start_soon(
                    lambda: send_datagrams(relay.address, sent, Handed(), rate=20_000)
                )
        peers = Counter(peer for _, peer in received(sock))
    assert sorted(peers.values()) == [20, 20]


async def test_what_is_held_back_leaves_when_the_traffic_pauses():
    sent = [packet.data for packet in heph_events(1, 10)]
    with receiver() as sock:
        async with open_relay(sock.getsockname(), 3, Chances(delay=1.0)) as relay:
            await send_datagrams(relay.address, sent, Handed(), rate=20_000)
            with trio.fail_after(60):
                for _ in range(10):
                    await trio.lowlevel.wait_readable(sock)
                    sock.recv(65_536)
