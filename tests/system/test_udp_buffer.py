"""Datagrams that the kernel drops for want of room are counted exactly, by the kernel and by the ledger."""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import ExitStack

import pytest

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until

TINY = toml.source("udp", "udp", receive_buffer="16 KiB")


def stalled(collector, send):
    """Send while the daemon does not read; then wait until it has read all there is."""
    collector.process.send_signal(signal.SIGSTOP)
    os.waitpid(collector.process.pid, os.WUNTRACED)  # until all of its threads stand still
    send()
    collector.process.send_signal(signal.SIGCONT)
    until(lambda: collector.status()["sources"]["udp"]["queue_bytes"] == 0, "an empty queue")


def gap_rows(collector):
    return sorted(
        (row["seq"], row["name"], json.loads(row["attributes"]))
        for row in collector.rows()
        if row["kind"] == "gap"
    )


def test_drops_of_a_stalled_reader_are_counted_exactly(collectors):
    collector = collectors(sources=TINY).start()
    sent = 0

    def send(count):
        nonlocal sent
        for _ in range(count):
            sock.send(heph_event(1, sent))
            sent += 1

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(collector.address("udp"))
        for _ in range(3):
            send(1)
            until(lambda: collector.status()["sources"]["udp"]["expected_events"] == sent, "it")
            stalled(collector, lambda: send(500))
        # The last one arrives, so that the counter shows the whole hole.
        send(1)
    until(lambda: collector.status()["sources"]["udp"]["expected_events"] == sent, "the last event")
    status = collector.status()["sources"]["udp"]
    assert status["kernel_drops"] == status["missing_events"] > 0
    assert status["seen_events"] + status["missing_events"] == sent
    until(lambda: collector.status()["sources"]["udp"]["gap_events"], "the window to pass")
    until(lambda: not collector.status()["sources"]["udp"]["unassigned_drops"], "all windows")
    status = collector.status()["sources"]["udp"]
    assert status["gap_events"] == {"kernel": sent - status["seen_events"]}
    assert "raise it with: sysctl" not in collector.log(), "it got all that it asked for"
    collector.settle()
    collector.stop()
    gaps = gap_rows(collector)
    assert sum(about["count"] for *_, about in gaps) == status["kernel_drops"]
    assert not any("estimate" in about for *_, about in gaps)


def test_what_the_kernel_dropped_and_what_the_network_lost_are_told_apart(collectors):
    """Across a kill, too: the counts are in the spool."""
    collector = collectors(sources=TINY).start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(collector.address("udp"))
        sock.send(heph_event(1, 0))
        until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 1, "the first event")
        stalled(collector, lambda: [sock.send(heph_event(1, n)) for n in range(1, 1000)])
        sock.send(heph_event(1, 1007))
        until(lambda: collector.status()["sources"]["udp"]["expected_events"] == 1008, "the last")
    seen = collector.status()["sources"]["udp"]["seen_events"] - 1
    collector.settle()
    collector.kill()
    collector.start()
    collector.stop()
    assert gap_rows(collector) == [
        (seen, "kernel", {"count": 1000 - seen}),
        (1000, "network", {"count": 7}),
    ]


def test_a_buffer_smaller_than_asked_for_is_said(collectors):
    huge = TINY.replace("16 KiB", "1 TiB")
    collector = collectors(sources=huge).start()
    status = collector.status()["sources"]["udp"]
    if status["buffer_bytes"] < 4 * 2**20:
        collector.logged("raise it with: sysctl")
    assert 0 < status["buffer_bytes"] < status["buffer_asked_bytes"] == 2**40
    collector.stop()


LARGE = TINY.replace("16 KiB", "4 MiB")
PEERS, STREAMS, BATCH = 3, 2, 10
"""Streams of each peer, and datagrams that a peer sends before the next one does."""


class Peer:
    """Sends events of streams of its own, one a datagram. `lost` are those that it keeps to itself, as a network would."""

    def __init__(self, number, sock):
        self.next = dict.fromkeys(range(STREAMS * number, STREAMS * (number + 1)), 0)
        self.lost = set()
        self._sock = sock

    def send(self, count, *, lost=0):
        """Send so many events of each stream, behind some that are lost."""
        for stream, first in self.next.items():
            self.lost |= {(str(stream), number) for number in range(first, first + lost)}
            self.next[stream] = first + lost + count
            for number in range(first + lost, first + lost + count):
                self._sock.send(heph_event(stream, number))


@pytest.fixture
def sockets():
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(PEERS)
        ]


@pytest.mark.parametrize("kernels", ["", "off"], ids=["by a thread", "by Python"])
def test_however_long_a_full_queue_takes_the_drops_behind_it_are_the_kernels(
    collectors, kernels, sockets
):
    """Each datagram carries the kernel's count, so losses of the network in front of the drops and behind them are known
    from these, of whichever streams they are."""
    collector = collectors(sources=LARGE, environ={"TAILRACE_KERNELS": kernels}).start()
    peers = [Peer(number, sock) for number, sock in enumerate(sockets)]
    for sock in sockets:
        sock.connect(collector.address("udp"))

    def status():
        return collector.status()["sources"]["udp"]

    def expected():
        return sum(sum(peer.next.values()) for peer in peers)

    def send(count, **options):
        for peer in peers:
            peer.send(count, **options)

    send(1)
    until(lambda: status()["expected_events"] == expected(), "the first events")

    def fill():
        send(BATCH, lost=4)
        for _ in range(300):  # 18,000 datagrams: the buffer has room for less than 11,000
            send(BATCH)

    stalled(collector, fill)
    for lost in (0, 3):
        send(1, lost=lost)
        until(lambda: status()["expected_events"] == expected(), "the events behind", seconds=120)
    lost = set().union(*(peer.lost for peer in peers))
    until(lambda: not status()["open_windows"], "all windows to pass")
    found = status()
    assert found["kernel_drops"] > 1000
    assert found["gap_events"] == {"kernel": found["kernel_drops"], "network": len(lost)}
    assert found["unassigned_drops"] == 0
    collector.settle()
    collector.stop()
    gaps = [row for row in collector.rows() if row["kind"] == "gap" and row["name"] == "network"]
    numbers = {
        (row["stream"], row["seq"] + n)
        for row in gaps
        for n in range(json.loads(row["attributes"])["count"])
    }
    assert numbers == lost
