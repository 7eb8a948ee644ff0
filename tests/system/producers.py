"""Producers that send numbered Heph events, each on a stream of its own, and survive the collector.

Threads of the test: they only send, a little at a time, and end when told or after `most` events.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading

from tests.ingest.log import heph_epoch, heph_event


class Producer(threading.Thread):
    """`sent` is how many events were handed to the kernel without an error."""

    def __init__(self, address, stream, *, most=200_000, pause=0.005, seed=0):
        super().__init__(daemon=True)
        self.address = address
        self.stream = stream
        self.sent = 0
        self.connections = 0
        self._most = most
        self._pause = pause
        self._rng = random.Random(f"{seed}/{stream}")
        self._over = threading.Event()

    def end(self):
        self._over.set()
        self.join(timeout=30)
        assert not self.is_alive()

    def run(self):
        while not self._over.is_set() and self.sent < self._most:
            try:
                self.session()
            except OSError:
                self._over.wait(0.02)

    def batch(self):
        """The next few events, with wall-like times that grow with their numbers."""
        numbers = range(self.sent, self.sent + self._rng.randrange(1, 30))
        return [heph_event(self.stream, n, start=10_000 * n) for n in numbers]


class TcpProducer(Producer):
    """Goes on with its numbers on a new connection; what the old one lost is lost."""

    def session(self):
        with socket.create_connection(self.address, timeout=5) as sock:
            self.connections += 1
            sock.sendall(heph_epoch(10**18))
            while not self._over.wait(self._pause) and self.sent < self._most:
                events = self.batch()
                # Counted before: part of a failed send may have arrived.
                self.sent += len(events)
                sock.sendall(b"".join(events))


class UdpProducer(Producer):
    """Sends from one socket for life, whether or not anybody listens."""

    def session(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            while not self._over.wait(self._pause) and self.sent < self._most:
                events = self.batch()
                self.sent += len(events)
                try:
                    for at in range(0, len(events), 4):
                        sock.sendto(b"".join(events[at : at + 4]), self.address)
                except ConnectionRefusedError:
                    continue


def free_ports(kind, count):
    """Ports that are free now, and will be: none that the kernel gives to others who ask for any."""
    ports = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(20_000, 32_768)
        with socket.socket(socket.AF_INET, kind) as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)
