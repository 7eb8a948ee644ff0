"""What the kernel drops for want of room is counted exactly, by the kernel and by the ledger."""

from __future__ import annotations

import signal
import socket

from tests.ingest.log import heph_event
from tests.system.collector import until

TINY = """
[sources.udp]
type = "udp"
format = "heph"
listen = "127.0.0.1:0"
receive_buffer = "16 KiB"
"""


def test_drops_of_a_stalled_reader_are_counted_exactly(collectors):
    collector = collectors(sources=TINY).start()
    events = 2000
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(collector.address("udp"))
        sock.send(heph_event(1, 0))
        until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 1, "the first event")
        collector.process.send_signal(signal.SIGSTOP)
        for n in range(1, events - 1):
            sock.send(heph_event(1, n))
        collector.process.send_signal(signal.SIGCONT)
        # The last one arrives, so that the counter shows the whole hole.
        until(lambda: collector.status()["sources"]["udp"]["queue_bytes"] == 0, "an empty queue")
        sock.send(heph_event(1, events - 1))
    until(
        lambda: collector.status()["sources"]["udp"]["expected_events"] == events, "the last event"
    )
    status = collector.status()["sources"]["udp"]
    assert status["kernel_drops"] == status["missing_events"] > 0
    assert status["seen_events"] + status["missing_events"] == events
    assert "raise it with: sysctl" not in collector.log(), "it got all that it asked for"
    collector.stop()


def test_a_buffer_smaller_than_asked_for_is_said(collectors):
    huge = TINY.replace("16 KiB", "1 TiB")
    collector = collectors(sources=huge).start()
    status = collector.status()["sources"]["udp"]
    if status["buffer_bytes"] < 4 * 2**20:
        assert "raise it with: sysctl" in collector.log()
    assert 0 < status["buffer_bytes"] < status["buffer_asked_bytes"] == 2**40
    collector.stop()
