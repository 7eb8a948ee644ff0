"""Simulate the collector's sockets: what sources request from the kernel, in a simulated network."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.flags import Flag
from tailrace.sources.udp import DRAIN_MAX, Address, KernelQueue, Received
from tests.simulation.network import Connection, Network


class Datagrams:
    """A socket for datagrams. It remains after a suspension of the process, but not after a kill."""

    def __init__(
        self, network: Network, address: str, room: int, number: int, lost: Callable[[bytes], None]
    ) -> None:
        """`lost` is called with each datagram for which there is no room."""
        self.readable = Flag()
        self.dropped = 0
        self._network = network
        self._address = address
        self._lost = lost
        self._room = room
        self._number = number
        self._queue: list[tuple[Address, bytes, int]] = []

    def receive(self, source: str, datagram: bytes) -> None:
        """Receive a datagram from the network."""
        if len(self._queue) < self._room:
            host, _, port = source.rpartition(":")
            self._queue.append(((host, int(port)), datagram, self.dropped))
        else:
            self.dropped += 1
            self._lost(datagram)
        self.readable.set()

    def read(self) -> Received:
        taken, self._queue = self._queue[:DRAIN_MAX], self._queue[DRAIN_MAX:]
        if not self._queue:
            self.readable.clear()
        return Received.of(taken)

    def idle(self) -> bool:
        return not self._queue

    def send(self, data: bytes, address: Address) -> None:
        self._network.send(self._address, "{}:{}".format(*address), data)

    def queue(self) -> KernelQueue:
        return KernelQueue(sum(len(datagram) for _, datagram, _ in self._queue), self.dropped)

    def cookie(self) -> int:
        return self._number


class Stream:
    """The collector's end of a connection. It offers what `tailrace.sources.connection.Connection` uses of a socket."""

    def __init__(self, connection: Connection) -> None:
        self.readable = Flag()
        self.connection = connection
        connection.came = self._came

    def settimeout(self, seconds: float) -> None:
        assert seconds == 0, "nothing here waits"

    def recv(self, size: int) -> bytes:
        connection = self.connection
        self.readable.clear()
        if connection.broken:
            raise ConnectionResetError(104, "Connection reset by peer")
        data = connection.up.read(size)
        if connection.up.data or connection.up.ended:
            self.readable.set()
        if not data and not connection.up.ended:
            raise BlockingIOError
        return data

    def send(self, data: bytes, flags: int) -> int:
        del flags
        sent = self.connection.send(self.connection.down, data)
        if data and not sent:
            raise BlockingIOError
        return sent

    def close(self) -> None:
        if not self.connection.broken:
            self.connection.end(self.connection.down)

    def _came(self) -> None:
        self.readable.set()
