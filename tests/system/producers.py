"""Send numbered Heph events in threads of the test, each producer on a stream of its own. Producers continue while the
collector is restarted.

They only send, a little at a time, and end when told or after `most` events.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
from pathlib import Path

from tests.ingest.log import heph_epoch, heph_event


class Producer(threading.Thread):
    """`sent` is the number of event numbers that were used.

    `skipped` contains those that were left out on purpose, each with the probability `skip`. All others were passed to
    the kernel.
    """

    def __init__(self, address, stream, *, most=200_000, pause=0.005, skip=0.0, seed=0):
        super().__init__(daemon=True)
        self.address = address
        self.stream = stream
        self.sent = 0
        self.skipped = set()
        self.connections = 0
        self._most = most
        self._pause = pause
        self._skip = skip
        self._rng = random.Random(f"{seed}/{stream}")
        self._over = threading.Event()

    def end(self):
        self._over.set()
        self.join(timeout=120)
        assert not self.is_alive()

    def run(self):
        while not self._over.is_set() and self.sent < self._most:
            try:
                self.session()
            except OSError:
                self._over.wait(0.02)

    def batch(self):
        """Return the next few events. They count as sent from now on, because parts of a send that fails may arrive."""
        numbers = range(self.sent, self.sent + self._rng.randrange(1, 30))
        if self._skip:
            self.skipped.update(n for n in numbers if self._rng.random() < self._skip)
        self.sent = numbers.stop
        return list(filter(None, map(self.event, numbers)))

    def event(self, number):
        """Return the event with this number and a time that grows with it; nothing if the number is skipped."""
        if number in self.skipped:
            return b""
        return heph_event(self.stream, number, start=10_000 * number)


class TcpProducer(Producer):
    """Continues with its numbers on a new connection. Bytes on the old connection are lost."""

    def session(self):
        with socket.create_connection(self.address, timeout=5) as sock:
            self.connections += 1
            sock.sendall(self.head())
            while not self._over.wait(self._pause) and self.sent < self._most:
                sock.sendall(b"".join(self.batch()))

    def head(self):
        """Return the first bytes of a connection."""
        return heph_epoch(10**18)


class JetsProducer(TcpProducer):
    """Writes a record, an event of it and its end for each number.

    If the number is skipped, only the event is left out.
    """

    def head(self):
        return b'{"type":"header","version":"2.0","metadata":{}}\n'

    def event(self, number):
        step = {
            "type": "record",
            "name": "work",
            "record_type": "Step",
            "id": number + 1,
            "parent_id": None,
        }
        inside = {"type": "event", "name": "tick", "record_id": number + 1}
        end = {"type": "record_end", "record_id": number + 1}
        lines = [inside] if number in self.skipped else [step, inside, end]
        more = {"clk": number, "description": ""}
        return b"".join(json.dumps(line | more).encode() + b"\n" for line in lines)


def waiting(port):
    """Return the bytes in the kernel's buffer of a UDP socket; 0 if no socket has the port."""
    lines = Path("/proc/net/udp").read_text().splitlines()[1:]
    fields = (line.split() for line in lines)
    return sum(int(f[4].partition(":")[2], 16) for f in fields if f[1].endswith(f":{port:04X}"))


CROWDED = 2**17
"""Bytes in the kernel's buffer of a UDP socket above which a sender waits. The kernel then drops nothing, however little
CPU time a busy machine gives to the collector."""


class UdpProducer(Producer):
    """Sends from the same socket all the time, whether a process listens or not."""

    def session(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            batches = 0
            while not self._over.wait(self._pause) and self.sent < self._most:
                # Look at the buffer now and then, because this takes a millisecond.
                if batches % 10 == 0 and waiting(self.address[1]) > CROWDED:
                    continue
                batches += 1
                events = self.batch()
                try:
                    for at in range(0, len(events), 4):
                        sock.sendto(b"".join(events[at : at + 4]), self.address)
                except ConnectionRefusedError:
                    continue


def free_ports(kind, count):
    """Return ports that are free now and stay free: the kernel does not give them to processes that ask for any port."""
    ports = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(20_000, 32_768)
        with socket.socket(socket.AF_INET, kind) as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)
